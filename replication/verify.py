"""Verify: a follower compares the digest of its state with its leader's, at one LSN.

    TIDELOG DIGEST <lsn> <crc>           asked over a connection of its own; crc: of the follower's frame there

    +DIGEST <lsn> <digest>               of the leader's state behind that frame, 64 hex digits
    -BEYOND <lsn> <reason>               the leader's checkpoint holds everything through this LSN already
    -PARTED <lsn> <reason>               the leader's log has another frame there
    -ERR <reason>

Child processes of both sides read checkpoint and log from their own disks (snapshot/digested.py): neither is held up.
The follower chooses an LSN that it has just received. If a checkpoint overtakes it meanwhile, it chooses a later one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.replication.errors import Different, LinkError, ProtocolError
from tidelog.snapshot.digested import Beyond, Digested, Digesting, NotDigested
from tidelog.snapshot.errors import CheckpointError
from tidelog.store.commit.core import Core

ATTEMPTS: Final = 10
_LSN_MAX: Final = (1 << 64) - 1
_DIGEST: Final = re.compile(rb"\+DIGEST ([0-9]{1,20}) ([0-9a-f]{64})")
_BEYOND: Final = re.compile(rb"-BEYOND ([0-9]{1,20}) .*", re.DOTALL)


class FrameEnd(NamedTuple):
    """The end of a frame: its last LSN, and its header checksum."""

    lsn: int
    crc: int

    def words(self) -> list[bytes]:
        """The question, as the words of a command."""
        return [b"TIDELOG", b"DIGEST", b"%d" % self.lsn, b"%08x" % self.crc]


def parse_frame_end(words: Sequence[bytes]) -> FrameEnd:
    """The place in the words of TIDELOG DIGEST. Raises ProtocolError."""
    lsn, crc = words[2:4]
    if not re.fullmatch(rb"[1-9][0-9]{0,19}", lsn) or int(lsn) > _LSN_MAX:
        raise ProtocolError("TIDELOG DIGEST needs an LSN")
    if not re.fullmatch(rb"[0-9a-f]{8}", crc):
        raise ProtocolError("TIDELOG DIGEST needs a checksum of 8 hex digits")
    return FrameEnd(int(lsn), int(crc, 16))


def answer(core: Core, place: FrameEnd) -> bytes:
    """The line that answers, without its CRLF. Slow: call it in a thread. Raises TidelogError, AofError."""
    roles = core.roles
    assert roles is not None  # a store that is open read-only is not asked
    last = written(core).lsn
    if place.lsn > last:
        return b"-ERR the log here ends with LSN %d" % last
    try:
        found = _begun(core, place.lsn).result()
    except Beyond as error:
        return b"-BEYOND %d %b" % (error.lsn, str(error).encode(errors="surrogateescape"))
    except (NotDigested, CheckpointError, OSError) as error:
        return b"-ERR the state cannot be read: %b" % " ".join(str(error).split()).encode(
            errors="surrogateescape"
        )
    if (found.lsn, found.crc) != place:
        here = b"no frame ends there here" if found.lsn != place.lsn else b"%08x here" % found.crc
        return b"-PARTED %d its frame has checksum %08x there, and %b" % (
            place.lsn,
            place.crc,
            here,
        )
    return b"+DIGEST %d %b" % (found.lsn, found.digest.encode())


def written(core: Core) -> FrameEnd:
    """The end of the log, which is in its files by then."""
    with core.lock:
        if core.trouble is not None:
            core.mend()
        core.log.flush()
        return FrameEnd(core.log.written_lsn, core.log.chain)


def _begun(core: Core, lsn: int) -> Digesting:
    """A process that has opened the checkpoint, so that no later one overtakes it. Raises CheckpointError."""
    assert core.roles is not None and core.checkpoints is not None
    with core.checkpoints.steady():
        digesting = Digesting(core.roles.disk, core.root, lsn)
        digesting.opened()
    return digesting


class Comparison:
    """One attempt, at the end of the follower's log as it is when `begin` is called.

    place   that is compared; LSN 0 before it is chosen
    """

    def __init__(self, core: Core) -> None:
        assert core.roles is not None and core.checkpoints is not None
        self.place = FrameEnd(0, 0)
        self._core, self._roles, self._checkpoints = core, core.roles, core.checkpoints
        self._agreed = core.roles.agreed
        self._digesting: Digesting | None = None
        self._ended = False

    def begin(self) -> FrameEnd:
        """Choose the place, and start the process. Waits: call it in a thread.

        Raises LinkError if there is nothing to compare; TidelogError, CheckpointError.
        """
        with self._checkpoints.steady():
            self.place = written(self._core)
            if not self.place.lsn:
                raise LinkError("there is nothing to verify: this store is empty")
            self._digesting = Digesting(self._roles.disk, self._core.root, self.place.lsn)
            self._digesting.opened()
        if self._ended:  # meanwhile
            self._digesting.end()
        return self.place

    def again_from(self, line: bytes) -> int | None:
        """The LSN from which on the leader can be asked, if it cannot answer for this one; None if it has answered.

        Raises LinkError.
        """
        if found := _BEYOND.fullmatch(line):
            return int(found[1])
        if line.startswith(b"-") and not line.startswith(b"-PARTED "):
            raise LinkError(f"the leader does not verify: {line[1:].decode(errors='replace')}")
        return None

    def conclude(self, line: bytes) -> int | None:
        """The LSN at which both states agree; None if this store's checkpoint is beyond it. Waits: call it in a thread.

        Raises Different if they do not agree; ProtocolError, LinkError.
        """
        if line.startswith(b"-PARTED "):
            why = line.split(b" ", 2)[2].decode(errors="replace")
            raise Different(self._agreed, self.place.lsn, f"their logs differ there: {why}")
        found = _DIGEST.fullmatch(line)
        if found is None or int(found[1]) != self.place.lsn:
            raise ProtocolError(f"it answered TIDELOG DIGEST with {line[:100]!r}")
        assert self._digesting is not None
        try:
            own: Digested = self._digesting.result()
        except Beyond:
            return None
        except NotDigested as error:
            raise LinkError(f"the data here cannot be verified: {error}") from error
        if own[:2] != self.place:
            raise LinkError(f"the log here changed while LSN {self.place.lsn} was verified")
        if own.digest != found[2].decode():
            why = f"the digest of the leader's is {found[2][:16].decode()}..., and here {own.digest[:16]}..."
            raise Different(self._agreed, self.place.lsn, why)
        return self.place.lsn

    def end(self) -> None:
        """Kill the process, if it still runs."""
        self._ended = True
        if self._digesting is not None:
            self._digesting.end()
