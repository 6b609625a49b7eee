"""Logs as lists of frames, for tests of where histories part: cheap to copy, cut, restart, promote and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from tidelog.aof.epochs import next_generation
from tidelog.aof.reading.reader import Epoch
from tidelog.engine.crc32c import crc32c
from tidelog.replication import history
from tidelog.replication.handshake import Follow, Rejoin, Reply, Resync, Stop, parse_follow
from tidelog.replication.history import NoFrame, Own, Upstream

UUID = bytes(range(16))
_unique = count(1)


class Frame(NamedTuple):
    """`records` are names that no other record has, so equal frames have one history."""

    first: int
    records: tuple[int, ...]
    now: int
    crc: int
    life: Epoch | None  # that begins with it

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


@dataclass
class Log:
    """One store's log. The first `released` frames are no longer in its files.

    remembers   it knows the checksums of frames that it has released
    """

    frames: list[Frame] = field(default_factory=list)
    released: int = 0
    now: int = 1_000_000
    following: bool = False
    uuid: bytes = UUID
    id: bytes = field(default_factory=lambda: next(_unique).to_bytes(16, "big"))
    remembers: bool = False

    @property
    def last(self) -> int:
        return self.frames[-1].last if self.frames else 0

    @property
    def crc(self) -> int:
        return self.frames[-1].crc if self.frames else 0

    @property
    def lives(self) -> tuple[Epoch, ...]:
        return tuple(f.life for f in reversed(self.frames) if f.life is not None)

    def write(self, *counts: int, ms: int = 1) -> Log:
        """Frames with these numbers of records, `ms` apart."""
        for records in counts:
            self.now += ms
            self._append(tuple(next(_unique) for _ in range(records)), None)
        return self

    def restart(self) -> Log:
        return self._begin(self.lives[0].number + 1 if self.frames else 1)

    def promote(self) -> Log:
        self.following = False
        return self._begin(next_generation(self.lives[0].number if self.frames else 0))

    def copy(self, frames: int | None = None) -> Log:
        """Another copy of this store, of its first frames."""
        kept = self.frames[:frames]
        now = kept[-1].now if kept else self.now
        return replace(self, frames=kept, now=now, released=0, id=next(_unique).to_bytes(16, "big"))

    def repack(self, records: int) -> Log:
        """Leave only the first records of the last frame, in a frame of another checksum: a restore to an LSN."""
        last = self.frames.pop()
        self._append(last.records[:records], last.life)
        return self

    def end_at(self, lsn: int) -> Log:
        """Rewind to a frame's end."""
        self.frames = [f for f in self.frames if f.last <= lsn]
        assert self.last == lsn
        return self

    def frame_at(self, lsn: int) -> int | NoFrame:
        start = self.frames[self.released].first - 1 if self.released else 0
        if lsn < start:
            return NoFrame.RELEASED
        if lsn == 0:
            return 0
        return next((f.crc for f in self.frames if f.last == lsn), NoFrame.INSIDE)

    def own(self, lsn: int) -> Own:
        behind = [f for f in self.frames[self.released :] if f.last > lsn]
        place = self.frame_at(lsn)
        known = behind and place is not NoFrame.RELEASED
        return Own(place, self.frames[-1].now - behind[0].now if known else None)

    def follow(self, consent: bool = False) -> Follow:
        """Its request, as it arrives."""
        request = Follow(self.uuid, self.id, 6379, self.last, self.crc, self.lives, consent)
        return parse_follow(request.words())

    def upstream(self) -> Upstream:
        return Upstream(
            *(self.uuid, self.id, self.lives, self.last, self.frame_at, self.following),
            self._known_at,
        )

    def _known_at(self, lsn: int) -> int | None:
        return next((f.crc for f in self.frames if f.last == lsn and self.remembers), None)

    def _begin(self, number: int) -> Log:
        incarnation = next(_unique)
        self._append((incarnation,), Epoch(number, incarnation, self.last + 1))
        return self

    def _append(self, records: tuple[int, ...], life: Epoch | None) -> None:
        said = repr((self.crc, self.last, records, self.now)).encode()
        self.frames.append(Frame(self.last + 1, records, self.now, crc32c(said), life))


def asked(leader: Log, follower: Log, consent: bool = False, seconds_max: float = 10) -> Reply:
    """The result of a handshake: the leader's reply, or the follower's decision about a REJOIN."""
    reply = history.judge(leader.upstream(), follower.follow(consent))
    if not isinstance(reply, Rejoin):
        return reply
    own = follower.own(reply.lsn)
    decided: Rejoin | Resync | Stop
    decided = history.consider(reply, own, follower.last, seconds_max, consent)
    return decided


def common(one: Sequence[Frame], other: Sequence[Frame]) -> int:
    """The LSN through which two logs have the same frames."""
    lsn = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        lsn = a.last
    return lsn
