"""The writer: one open append-only file. Every unit goes through `reserve`, then `add`, then `wait`.

What is kept true:

- Methods marked [lock] are called with `lock` held; it is the store's one lock. No fsync runs under it,
  but for those where one segment ends and the next begins, and they are short because both files were
  synced before. Space is filled with zeros ahead, away from the lock (aof/ahead.py); if that is late,
  a little of it is under the lock.
- A unit is in at most one frame, frames follow each other without a gap, and `written_lsn` is the last
  record that the kernel has. Units gathered for the next frame lie between it and `next_lsn`.
- A life begins at its first write: the segment before is on the disk whole, then a new segment gets its
  name, then its first frame is the life's EPOCH.
- `synced_lsn` rises only after an fsync returned, and stays for ever once one failed.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgpack

from tidelog.aof import durable, frame, identity, segment
from tidelog.aof.ahead import Ahead
from tidelog.aof.commit import Callback, EverySecond, GroupCommit, bare
from tidelog.aof.durable import DurableFile
from tidelog.aof.errors import AofError, LogClosed, LogPoisoned, NoSpace, UnitTooLarge
from tidelog.aof.frame import HEADER_BYTES, MAGIC
from tidelog.aof.recovery import Recovered
from tidelog.aof.segment import End, Position, SegmentHeader
from tidelog.aof.start import Start
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.disk.real import NOT_BEGUN, OUT_OF_SPACE
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.effects import END, EPOCH, Effect

Policy = Literal["always", "everysec", "no"]
POLICIES: Final = ("always", "everysec", "no")

WRITTEN: Final = 1  # the kernel has the record: it survives the process
FSYNCED: Final = 2  # the disk has it: it survives a power cut

SEGMENT_BYTES: Final = 64 << 20
CHUNK_BYTES_MIN: Final = 256 << 10
CHUNK_BYTES_MAX: Final = 8 << 20
# When so much of a segment is left, 1/4, 1/32 and 1/128, it is synced in the background, so that little
# is left to sync when it ends. At the first, a spare for the next segment is made as well.
NEAR_END_SHIFTS: Final = (2, 5, 7)
QUICK_S: Final = 0.002  # an fsync may hold up an event loop for so long, as a long command does
UNPROVEN_S: Final = 0.1  # assumed of a disk at first: it takes some hundred quick fsyncs to forget
SLOWEST_DECAY: Final = 29 / 30
NEVER: Final = 1 << 62  # an offset that is not reached

_pack_head = frame.UNCHECKED.pack  # names of this module: they are looked up once per unit
_pack_framed = frame.CHECKED.pack


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Log:
    """One open, writable AOF. `recovered` says where the one before it ended; LOCK is held by the caller.

    began         called [lock] with the EPOCH effect once it is in the log; the store applies it
    incarnation   random 64-bit number of this life, drawn unless given
    offset, room  [lock] a unit of n bytes has its room already while offset + n <= room: who is in a hurry may ask
                  that in place of `reserve`
    last_now      unix ms: what `add` is given as `now_ms` must not be less, nor ever decrease
    slowest_s     seconds that the slowest of the last fsyncs took: forgotten by a thirtieth with each
    on_sync       called with the seconds that each fsync took which succeeded, by whoever made it; must not fail
    """

    __slots__ = (
        "lock",
        "next_lsn",
        "written_lsn",
        "synced_lsn",
        "parked",
        "_pressed",
        "last_now",
        "incarnation",
        "epoch",
        "room",
        "offset",
        "_append",
        "_chain",
        "_seed",
        "_gathered",
        "_gathered_now",
        "_dirty_since",
        "_sync_since",
        "_synced_offset",
        "_allocated",
        "_limit",
        "_fill_from",
        "_near_end",
        "_chunk",
        "_chunk_min",
        "_chunk_max",
        "_segment_bytes",
        "_disk",
        "_ahead",
        "_directory",
        "_uuid",
        "_before",
        "_file",
        "_durable",
        "_position",
        "_firsts",
        "_bases",
        "_base",
        "_mutex",
        "_commit",
        "_policy",
        "_always",
        "_every_second",
        "_began",
        "_begins",
        "_doubt",
        "_refused",
        "_fsync_failed",
        "_closed",
        "_clock",
        "on_sync",
        "slowest_s",
    )

    def __init__(
        self,
        disk: Disk,
        root: Path,
        uuid: bytes,
        recovered: Recovered,
        *,
        lock: threading.Lock | None = None,
        began: Callable[[Effect], object] | None = None,
        begins: Callable[[], object] | None = None,
        policy: Policy = "always",
        segment_bytes: int = SEGMENT_BYTES,
        chunk_bytes_min: int = CHUNK_BYTES_MIN,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
        incarnation: int | None = None,
        clock: Callable[[], int] = _wall_ms,
        ahead: Ahead | None = None,
    ) -> None:
        self.lock = lock or threading.Lock()
        self.next_lsn = recovered.last_lsn + 1
        self.written_lsn = recovered.last_lsn
        self.synced_lsn = recovered.last_lsn
        # everysec and the disk lags two seconds, or `press`: `wait` for WRITTEN does wait
        self.parked = self._pressed = False
        self.last_now = max(recovered.now, clock())
        self.incarnation = secrets.randbits(64) if incarnation is None else incarnation
        self.epoch = recovered.epochs[-1].number + 1 if recovered.epochs else 1

        self.room = -1
        self.offset = 0
        self._append: Callable[[int, bytes], None] = _no_segment
        self._chain = recovered.crc
        self._seed = crc32c_of(uuid)
        self._gathered: list[bytes] = []  # units for the next frame,
        self._gathered_now = 0  # and when the last of them was made
        self._dirty_since = 0.0  # time.monotonic() of the oldest record after the last sync began
        self._sync_since = 0.0  # the same of those a running sync covers
        self._synced_offset = 0
        self._allocated = 0  # bytes of the segment that are prepared
        self._limit = 0
        self._fill_from = NEVER  # when frames reach this offset, the next chunk is begun
        self._near_end: list[int] = []  # offsets where the end is prepared, the next one last
        self._chunk = self._chunk_min = chunk_bytes_min
        self._chunk_max = chunk_bytes_max
        self._segment_bytes = segment_bytes

        self._disk = disk
        self._directory = root / identity.AOF
        self._ahead = ahead or Ahead(disk, self._directory)
        self._uuid = uuid
        self._before = recovered.end
        self._file: File | None = None
        self._durable: DurableFile | None = None
        self._position = recovered.position
        # Of each segment that this open has read or written: its first LSN, and what is to be added to an offset
        # in it to have the bytes of all frames since the first of them. `_base` is that of the present one.
        self._firsts: list[int] = []
        self._bases: list[int] = []
        self._base = 0
        for first_lsn, end in recovered.read:
            self._firsts.append(first_lsn)
            self._bases.append(self._base - segment.HEADER_BYTES)
            self._base += end - segment.HEADER_BYTES
        self._mutex = threading.Lock()  # held by whoever syncs; taken after `lock`, never before it
        self._commit = GroupCommit(self._sync, recovered.last_lsn)
        self._began, self._begins = began, begins
        self._doubt: BaseException | None = None
        self._refused: tuple[str, int, int] | None = None  # why, bytes, and `next_lsn` of then
        self._fsync_failed = False
        self._closed = False
        self.slowest_s = UNPROVEN_S
        self._clock = clock
        self.on_sync: Callable[[float], object] | None = None
        self._every_second: EverySecond | None = None
        self._policy: Policy = "no"
        self.policy = policy

    # --- the hot path

    def reserve(self, nbytes: int) -> None:
        """[lock] See that a unit whose records are `nbytes` long can be added without failing.

        The first call of a life creates the segment and writes the EPOCH, so LSNs move here. Raises
        NoSpace or UnitTooLarge or OSError: nothing changed, and a later call may succeed; LogPoisoned
        or LogClosed: none will.
        """
        if self.offset + nbytes > self.room:
            self._make_room(nbytes)

    def add(self, body: bytes, count: int, now_ms: int, flush: bool = True) -> int:
        """[lock] Log one unit whose room is reserved: `count` packed records, END in the last.

        With `flush` the kernel has it on return, together with all that was gathered; without, it is
        gathered until the next commit (`wait` and `subscribe` see to that, at every level). Under `always`
        it is gathered as well while a sync is in flight: its reply waits for the next one in any case.
        Returns the LSN of the unit's last record. After an exception log and memory are in doubt: the log
        refuses further units, and the store recovers from it.
        """
        if self._gathered or not flush or (self._always and self.syncing):
            # Hot: most units of a server come here. Only what others look at meanwhile is kept up.
            try:
                self._gathered.append(body)
                self._gathered_now = now_ms
                self.room -= len(body)
                self.next_lsn = lsn = self.next_lsn + count
            except BaseException as error:
                self._doubts(error)
                raise
            if flush and not (self._always and self.syncing):
                self.flush()
            return lsn - 1
        return self._write(body, count, now_ms, self._append)

    def _write(
        self, body: bytes, count: int, now_ms: int, append: Callable[[int, bytes], None]
    ) -> int:
        """[lock] Hand one frame to the kernel. Returns the LSN of its last record."""
        lsn = self.written_lsn + 1
        offset = self.offset
        size = len(body)
        try:
            head = _pack_head(
                MAGIC,
                size,
                lsn,
                count,
                now_ms,
                self.synced_lsn,
                self._chain,
                crc32c_of(body),
            )
            crc = crc32c_after(self._seed, head)
            append(offset, _pack_framed(head, crc) + body)
            self._chain = crc
            self.offset = offset + HEADER_BYTES + size
            self.next_lsn = lsn = lsn + count
            self.written_lsn = lsn = lsn - 1
            if not self._dirty_since:
                self._dirty_since = time.monotonic()
        except BaseException as error:
            self._doubts(error)
            raise
        return lsn

    def wait(self, lsn: int, level: int) -> None:
        """Return when all records through `lsn` hold `level`, WRITTEN or FSYNCED. Without the lock.

        Raises LogPoisoned if that cannot be known any more. Under `everysec`, WRITTEN waits for the
        disk while something is on its way there for more than two seconds.
        """
        if level == WRITTEN and not self.parked:
            if self.written_lsn < lsn:
                with self.lock:
                    try:
                        self.flush()
                    except OSError:
                        self._check()
                        raise
            return
        self._commit.wait(lsn)

    def subscribe(self, lsn: int, level: int, callback: Callback) -> None:
        """As `wait`, for event loops: `callback(None)`, or `callback(LogPoisoned)`, exactly once.

        Called from the syncer thread, or at once if it is decided already. Subscriptions with equal
        callbacks are called once for all that one round serves.
        """
        if level == WRITTEN and not self.parked:
            try:
                self.wait(lsn, WRITTEN)
            except LogPoisoned as error:
                callback(error)
            else:
                callback(None)
            return
        self._commit.subscribe(lsn, callback)

    def sync_if_quick(self) -> bool:
        """Put what is written on the disk at once, by the calling thread, which that holds up. Without the lock.

        For event loops: two wake-ups of threads cost more than the fsync of a fast disk. Only while fsyncs are quick
        (`slowest_s`), and if none is on its way. Whether that was done; if it failed, `failure` tells.
        """
        if self.slowest_s > QUICK_S or self._mutex.locked():
            return False
        return self._commit.lead()

    def flush(self) -> None:
        """[lock] Hand everything gathered to the kernel as one frame. Raises as `add`."""
        if self._gathered:
            self._check()
            try:
                body = b"".join(self._gathered)
                # `next_lsn` stays: others look at it without the lock, and these units are in no file yet.
                count = self.next_lsn - 1 - self.written_lsn
                self.room += len(body)
                self._gathered = []
                # Company: to write would give up the interpreter lock with this lock held, and all who come
                # meanwhile would queue for it. That halves the rate, so here a mapping is worth its price.
                assert self._file is not None  # the room of what is gathered is reserved
                self._write(body, count, self._gathered_now, self._file.append)
            except BaseException as error:
                self._doubts(error)
                # Others wait for these units, and no later round can serve them.
                self._commit.fail(error)
                raise

    def _gathered_bytes(self) -> int:
        return sum(map(len, self._gathered))

    # --- for checkpoints

    def position(self) -> Position:
        """[lock] Where what was written ends, after everything gathered was written. Raises as `flush`, and
        LogPoisoned or LogClosed if no checkpoint may be taken any more."""
        self._check()
        self.flush()
        if self._file is None:
            return self._position
        return Position(
            self.written_lsn, self._chain, self._firsts[-1], self.offset, self.incarnation
        )

    def sync_through(self, lsn: int) -> None:
        """Return when all records through `lsn` are on the disk, whatever the policy. Without the lock.

        Raises LogPoisoned: then nothing that rests on them may be committed."""
        self._commit.wait(lsn)

    def since(self, position: Position | Start) -> tuple[int, int]:
        """[lock] The log's growth behind a position: (bytes of frames, records), gathered ones included.

        What this open neither read nor wrote is not among the bytes."""
        at = bisect_left(self._firsts, position.segment)
        if at == len(self._firsts):
            nbytes = 0
        elif self._firsts[at] == position.segment:
            nbytes = self._base + self.offset - self._bases[at] - position.offset
        else:
            nbytes = self._base + self.offset - self._bases[at] - segment.HEADER_BYTES
        return nbytes + self._gathered_bytes(), self.next_lsn - 1 - position.lsn

    # --- what is exposed, and the policy

    @property
    def policy(self) -> Policy:
        """`always`, `everysec` or `no`: who syncs when nobody waits for it. Assign to switch."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        if policy not in POLICIES:
            raise ValueError(f"fsync policy {policy!r} is none of {', '.join(POLICIES)}")
        stricter = POLICIES.index(policy) < POLICIES.index(self._policy)
        if (
            policy == "everysec" and self._every_second is None
        ):  # first: there may be no thread for it
            self._every_second = EverySecond(self._commit, self._oldest, self._park)
        self._policy = policy
        self._always = policy == "always"
        if self._file is not None:
            self._append = self._appender(self._file)
        if policy != "everysec" and self._every_second is not None:
            self._every_second.stop()
            self._every_second = None
        if stricter and self.next_lsn - 1 > self.synced_lsn:
            self._commit.request()

    @property
    def syncing(self) -> bool:
        """Is a sync in flight? Then units added for FSYNCED may as well be gathered."""
        return self._mutex.locked()

    @property
    def in_doubt(self) -> bool:
        """Did a write break off? Then recovery tells what is in the log; no fsync has failed."""
        return self._doubt is not None and not self._fsync_failed

    @property
    def failure(self) -> BaseException | None:
        """Why the log is poisoned or in doubt, None while it is neither."""
        return self._commit.failure or self._doubt

    def refusal(self) -> str | None:
        """Why the last unit could not be logged, as on a full disk; None once another unit was, or `try_again` made
        room. Without the lock."""
        refused = self._refused
        return None if refused is None or refused[2] != self.next_lsn else refused[0]

    def try_again(self) -> None:
        """[lock] See whether there is room by now for the unit that was refused last. Raises as `reserve`."""
        refused = self._refused
        if refused is not None and refused[2] == self.next_lsn:
            self.reserve(refused[1])
            self._refused = None

    def exposed(self) -> tuple[int, float]:
        """What a power cut could take at this moment: bytes, and the age in seconds of the oldest."""
        oldest = self._oldest()
        if oldest is None:
            return 0, 0.0
        nbytes = self.offset - self._synced_offset + self._gathered_bytes()
        return max(nbytes, 0), max(time.monotonic() - oldest, 0.0)

    def _oldest(self) -> float | None:
        if self.next_lsn - 1 <= self.synced_lsn:
            return None
        if not (self._sync_since or self._dirty_since):
            self._dirty_since = time.monotonic()  # gathered, or added just when a sync began
        return self._sync_since or self._dirty_since

    def press(self, on: bool) -> None:
        """[lock] Have replies wait for the disk, as the store has them wait for more than that; or not any more."""
        self._pressed = on
        self._park(on)

    def _park(self, parked: bool) -> None:
        self.parked = parked or self._pressed
        if self._fsync_failed:  # which may have come in between
            self.parked = True

    # --- making room: all [lock]

    def _make_room(self, nbytes: int) -> None:
        self._check()
        if nbytes > frame.BODY_BYTES_MAX:
            raise UnitTooLarge(nbytes, frame.BODY_BYTES_MAX)
        try:
            if self._gathered_bytes() + nbytes > frame.BODY_BYTES_MAX:
                self.flush()
            if self._file is None:
                self._begin(nbytes)
            elif self._end_after(nbytes) > self._limit:
                self._roll(nbytes)
            self._extend(self._end_after(nbytes))
        except (AofError, OSError) as error:  # from a step that can be taken again
            self._refused = str(error), nbytes, self.next_lsn
            raise
        except BaseException as error:
            self._doubts(error)
            raise

    def _end_after(self, nbytes: int) -> int:
        return self.offset + HEADER_BYTES + self._gathered_bytes() + nbytes

    def _check(self) -> None:
        if self._commit.failure is not None:  # first: a log that was retired is closed as well
            raise self._commit.error()
        if self._closed:
            raise LogClosed("the log is closed")
        if self._doubt is not None:
            raise LogPoisoned(
                f"a write to the log broke off ({self._doubt!r}); recover before writing again"
            ) from self._doubt

    def _doubts(self, error: BaseException) -> None:
        if self._doubt is None:
            self._doubt = bare(error)
        self.room = -1

    def _begin(self, nbytes: int) -> None:
        """The life's first write: its segment, and its EPOCH in a frame of its own."""
        if self._begins is not None:
            self._begins()  # may refuse: nothing is there yet
        effect: Effect = (EPOCH | END, self.epoch, self.incarnation)
        body: bytes = msgpack.packb(effect)
        if self._durable is None:
            with self._space_for(durable.FILE_BYTES):
                self._durable = DurableFile(self._disk, self._directory, self._uuid)
        self._new_segment(self._before, 2 * HEADER_BYTES + len(body) + nbytes)
        self._write(body, 1, self.last_now, self._append)
        if self._began is not None:
            self._began(effect)

    def _roll(self, nbytes: int) -> None:
        """End the segment and go on in a new one."""
        self.flush()
        # Whatever happens from here on, nothing more is appended to this segment: the header of the
        # next one, which may become visible before an error, says where this one ends.
        self.room = -1
        self._limit = 0
        old = self._file
        assert old is not None
        self._ahead.filled()
        try:
            self._sync_file()
        except OSError as error:
            self._commit.fail(error)
            raise self._commit.error() from error
        offset = self.offset
        if offset > segment.HEADER_BYTES:
            self._before = End(self.written_lsn, offset, self._chain)
        # Else a unit that reserves its room bit by bit has outgrown the segment that was made for it. That one has no
        # frame, and the next replaces it under the same name: it goes on behind the last one that has.
        self._new_segment(self._before, HEADER_BYTES + nbytes)
        self._ahead.end(old, offset)

    def _new_segment(self, before: End, room: int) -> None:
        """Publish a segment with space for `room` bytes behind its header, and write there."""
        time_ms = max(self.last_now, self._clock())
        header = SegmentHeader(self._uuid, self.incarnation, self.next_lsn, time_ms, before)
        path = self._directory / segment.file_name(self.next_lsn)
        size = segment.HEADER_BYTES + room
        with self._space_for(room):
            file, filled = self._ahead.take_spare() or self._bare_spare()
            try:
                if filled < size:
                    # Not much: it is fsynced with the header, under the lock.
                    filled = self._fill(file, filled, size, segment.HEADER_BYTES + self._chunk_min)
                file.write(0, header.pack())
                file.map(filled)
            except BaseException:
                file.close()
                raise
            try:
                recipe.publish_open(self._disk, file, path)
            except OSError as error:
                file.close()
                if error.errno not in NOT_BEGUN:
                    self._poison(error)
                    raise self._commit.error() from error
                raise
        self._note_segment()
        self._file = file
        self._append = self._appender(file)
        self.offset = self._synced_offset = segment.HEADER_BYTES
        self._limit = max(self._segment_bytes, size)
        self._near_end = [self._limit - (self._limit >> k) for k in reversed(NEAR_END_SHIFTS)]
        self._prepared_to(filled, since=self.offset)
        self.room = min(filled - HEADER_BYTES, self.offset + frame.BODY_BYTES_MAX)

    def _note_segment(self) -> None:
        """A segment begins at `next_lsn`; `offset` is still in the one before, 0 if there is none."""
        self._base += self.offset - segment.HEADER_BYTES
        if self._firsts and self._firsts[-1] == self.next_lsn:  # another life's, without a frame
            self._firsts.pop()
            self._bases.pop()
        self._firsts.append(self.next_lsn)
        self._bases.append(self._base)

    def _bare_spare(self) -> tuple[File, int]:
        return self._disk.create(self._directory / segment.SPARE), 0

    def _appender(self, file: File) -> Callable[[int, bytes], None]:
        """How frames get into the file. A page that was changed through a mapping makes each fdatasync a
        quarter dearer (docs/decisions/append.md), so where every unit is synced they are written."""
        return file.write if self._policy == "always" else file.append

    def _extend(self, need: int) -> None:
        """Prepare the segment up to offset `need` at least."""
        file = self._file
        assert file is not None
        if need > self._allocated:
            with self._space_for(need - self._allocated):
                filled = max(self._ahead.filled(), self._allocated)
                if filled < need:  # the background is late
                    filled = self._fill(file, filled, need, filled + self._chunk_min)
                file.map(filled)
            self._append = self._appender(file)
            self._chunk = min(2 * self._chunk, self._chunk_max)
            self._prepared_to(filled, since=self._allocated)
        self._look_ahead(file, need)
        prepared = min(self._allocated, self._limit, self._fill_from, *self._near_end[-1:])
        self.room = (
            min(prepared - HEADER_BYTES, self.offset + frame.BODY_BYTES_MAX)
            - self._gathered_bytes()
        )

    def _prepared_to(self, allocated: int, since: int) -> None:
        self._allocated = allocated
        # Early, as the thread may have to wait for the interpreter lock once per piece.
        self._fill_from = since + (allocated - since) // 4 if allocated < self._limit else NEVER

    def _look_ahead(self, file: File, need: int) -> None:
        """Begin in the background what is due when frames reach `need`."""
        if need > self._fill_from:
            self._fill_from = NEVER
            end = min(self._allocated + self._chunk, self._limit)
            self._ahead.fill(file, self._allocated, end, gently=self._policy == "always")
        if self._near_end and need > self._near_end[-1]:
            first = len(self._near_end) == len(NEAR_END_SHIFTS)
            while self._near_end and need > self._near_end[-1]:
                self._near_end.pop()
            self._ahead.do(self._sync_ahead)
            if first:
                self._ahead.make_spare(min(self._chunk, self._segment_bytes))

    def _sync_ahead(self) -> None:
        """In the background: have less to sync when the segment ends."""
        try:
            self._sync_file()
        except OSError as error:
            self._commit.fail(error)

    def _fill(self, file: File, start: int, need: int, wanted: int) -> int:
        """Write zeros from `start` to `need` at least, and on to `wanted` while the segment and space last."""
        end = min(wanted, max(self._limit, self._segment_bytes))
        reached = file.fill(start, max(need, end))
        if reached < need:
            raise NoSpace(file.path, need - start)
        return reached

    @contextlib.contextmanager
    def _space_for(self, nbytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                raise NoSpace(self._directory, nbytes) from error
            raise

    # --- syncing, and the end

    def _sync(self) -> int:
        """A round of group commit: everything gathered and written so far is on the disk."""
        if self._gathered:
            with self.lock:
                self.flush()
        self._sync_file()
        return self.synced_lsn

    def _sync_file(self) -> None:
        with self._mutex:
            # In this order: what is added from now on belongs to the next sync, and a record that
            # `written_lsn` counts lies in the file read after it, or in one that was synced before.
            lsn = self.written_lsn
            if lsn <= self.synced_lsn:
                return
            if self._fsync_failed:  # an interrupt struck before that was said
                raise OSError(errno.EIO, "an earlier sync failed")
            if self._append is _no_segment:  # retired, and an interrupt struck before that was said
                raise LogClosed("the log was retired")
            self._sync_since, self._dirty_since = self._dirty_since, 0.0
            file, offset = self._file, self.offset
            assert file is not None
            started = time.monotonic()
            try:
                file.fdatasync()
            except OSError:
                self._fsync_failed = True  # here, where no interrupt can come between
                self._stop_answering()
                raise
            ended = time.monotonic()
            self.synced_lsn = lsn
            self._synced_offset = min(offset, self.offset)
            if self.written_lsn > lsn and not self._dirty_since:
                self._dirty_since = started
            self._sync_since = 0.0
            self.parked = self._pressed
            self.slowest_s = max(ended - started, self.slowest_s * SLOWEST_DECAY)
            if self._durable is not None:
                try:
                    self._durable.write(self.incarnation, lsn)
                except OSError:
                    pass  # DURABLE may lag: it is there to prove damage, nobody is answered from it
            if self.on_sync is not None:
                self.on_sync(ended - started)

    def _stop_answering(self) -> None:
        """An fsync failed: no write more, and not one reply, at any level."""
        self._fsync_failed = True
        self.room = -1
        self.parked = True

    def _poison(self, error: BaseException) -> None:
        self._stop_answering()
        self._commit.fail(error)

    def close(self) -> None:
        """Write and sync what there is, cut the segment, end the threads. Closing twice is allowed.

        A log that failed is only released, and LogPoisoned says how much was never confirmed.
        """
        with self.lock:
            if self._closed:
                return
            self.room = -1
            if self.failure is None:
                with contextlib.suppress(Exception):  # which leaves its mark in `failure`
                    self.flush()
            self._closed = True
        try:
            if self._every_second is not None:
                self._every_second.stop()
            self._ahead.stop()
            if self.failure is None:
                with contextlib.suppress(LogPoisoned):
                    self._commit.wait(self.written_lsn)
            self._commit.stop()
            if self.failure is None and self._file is not None:
                self._cut(self._file)
        finally:
            self._release()
        if self.failure is not None:
            unsure = self.next_lsn - 1 - self.synced_lsn
            raise LogPoisoned(
                f"closed, but {unsure} records from LSN {self.synced_lsn + 1} on were never "
                f"confirmed by the disk: {self.failure!r}"
            ) from self.failure

    def retire(self) -> None:
        """[lock] Let go of a log in doubt, so that recovery may go on in its place, under the same LOCK.

        Whoever waits is told that the outcome is unknown. Waits for a sync in flight; its thread ends by itself.
        """
        self._closed = True
        self.room = -1
        if self._every_second is not None:
            self._every_second.stop()
        self._ahead.stop()
        with self._mutex:
            self._release()
        self._commit.retire(self._doubt or LogClosed("the log was retired"))

    def abandon(self) -> None:
        """In the child after a fork: let go of the descriptors and touch nothing else."""
        self._closed = True
        self.room = -1
        self._ahead.abandon()
        self._release()

    def _cut(self, file: File) -> None:
        file.unmap()
        try:
            file.truncate(self.offset)
            file.fsync()
        except OSError as error:
            self._poison(error)

    def _release(self) -> None:
        self._append = _no_segment
        if self._file is not None:
            self._file.close()
        if self._durable is not None:
            self._durable.close()


def _no_segment(offset: int, data: bytes) -> None:
    raise LogClosed("the log has no open segment")
