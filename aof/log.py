"""The writer: one open append-only file. Every unit goes through `reserve`, then `add`, then `wait`.

Invariants:

- The caller of a method marked [lock] holds `lock`, the store's only lock. No fsync runs under the lock,
  except where one segment ends and the next begins. Those are short, because both files were synced
  before. Space is filled with zeros in the background, without the lock (aof/ahead.py); if that is late,
  a small part is filled under the lock.
- A unit is never split between frames, and frames follow each other without a gap. `written_lsn` is the
  last record that the kernel has; units gathered for the next frame lie between it and `next_lsn`.
- A life begins at its first write: the previous segment is on the disk whole, then a new segment gets its
  name, then the life's EPOCH is written as the first frame.
- `synced_lsn` rises only after an fsync has returned, and never again once one has failed.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgpack

from tidelog.aof import durable, frame, identity, segment
from tidelog.aof.ahead import Ahead
from tidelog.aof.commit import Callback, EverySecond, GroupCommit, bare
from tidelog.aof.durable import DurableFile
from tidelog.aof.errors import (
    AofError,
    BadFrame,
    FollowerLog,
    LeaderLog,
    LogClosed,
    LogPoisoned,
    NoSpace,
    SuspendedLog,
    UnitTooLarge,
)
from tidelog.aof.frame import HEADER_BYTES, MAGIC
from tidelog.aof.reading.recovery import Recovered
from tidelog.aof.segment import End, Position, SegmentHeader
from tidelog.aof.start import Start
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.disk.real import NOT_BEGUN, OUT_OF_SPACE
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.engine.effects.effect import END, EPOCH, Effect

if TYPE_CHECKING:
    # a program that never follows does not load this module
    from tidelog.aof.received import Batch

Policy = Literal["always", "everysec", "no"]
POLICIES: Final = ("always", "everysec", "no")

WRITTEN: Final = 1  # the kernel has the record: it survives the end of the process
FSYNCED: Final = 2  # the disk has it: it survives a power cut

SEGMENT_BYTES: Final = 64 << 20
CHUNK_BYTES_MIN: Final = 256 << 10
CHUNK_BYTES_MAX: Final = 8 << 20
# The log syncs a segment in the background when 1/4, 1/32 and 1/128 of it are left, so that little is left to sync at
# its end. At the first of these points, the log also starts to prepare the spare, the file of the next segment.
NEAR_END_SHIFTS: Final = (2, 5, 7)
# an fsync may block an event loop this long, as a long command does
QUICK_S: Final = 0.002
# assumed time of an fsync before one was measured; about a hundred quick fsyncs lower the assumption below QUICK_S
UNPROVEN_S: Final = 0.1
SLOWEST_DECAY: Final = 29 / 30
NO_OFFSET: Final = 1 << 62  # an offset that no segment reaches
NO_ROOM: Final = -1 << 62  # however many gathered bytes are added to it, no unit fits
NO_QUOTA: Final = 1 << 62  # bytes that no log reaches

# module globals, because each unit looks them up and globals are faster than attributes
_pack_head = frame.UNCHECKED.pack
_pack_framed = frame.CHECKED.pack


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Log:
    """One open, writable AOF that continues after `recovered`. The caller holds LOCK.

    began         called [lock] with the EPOCH effect once it is in the log; the store applies it
    begins        called [lock] before the first write of the life; may raise to refuse it
    incarnation   random 64-bit number of this life, drawn unless given
    role          segment.LEADER, or segment.FOLLOWER: then only received frames enter the log
    epoch         number of the EPOCH of this life (aof/epochs.py), one more than the last life's unless given
    offset, room  [lock] `reserve(n)` does nothing while offset + n <= room; a hot path may test that instead
    last_now      unix ms; the `now_ms` of `add` must be at least this, and must never decrease
    slowest_s     seconds that the slowest recent fsync took; decays by a thirtieth with each fsync
    on_sync       called with the seconds of each successful fsync, in the thread that made it; must not raise
    """

    __slots__ = (
        "lock",
        "next_lsn",
        "written_lsn",
        "synced_lsn",
        "parked",
        "_pressed",
        "_suspended",
        "_full_at",
        "last_now",
        "incarnation",
        "epoch",
        "role",
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
        "_alarm",
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
        role: int = segment.LEADER,
        epoch: int | None = None,
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
        # While `parked` is set, a `wait` for WRITTEN waits for the disk. It is set in three cases: under everysec while
        # the disk lags two seconds behind; by `press`; and after a failed fsync.
        self.parked = self._pressed = self._suspended = False
        self._full_at = NO_QUOTA  # `frames_bytes` from which on the log is `full`
        self.last_now = max(recovered.now, clock())
        self.incarnation = secrets.randbits(64) if incarnation is None else incarnation
        self.role = role
        if epoch is None:
            epoch = recovered.epochs[-1].number + 1 if recovered.epochs else 1
        self.epoch = epoch

        self.room = -1
        self.offset = 0
        self._append: Callable[[int, bytes], None] = _no_segment
        self._chain = recovered.crc
        self._seed = crc32c_of(uuid)
        self._gathered: list[bytes] = []  # units for the next frame
        self._gathered_now = 0  # `now_ms` of the newest gathered unit
        # time.monotonic() when the oldest record was added that no started sync covers
        self._dirty_since = 0.0
        self._sync_since = 0.0  # the same for the oldest record that the running sync covers
        self._synced_offset = 0
        self._allocated = 0  # bytes of the segment that are prepared
        self._limit = 0
        # when frames reach this offset, the log starts to fill the next chunk
        self._fill_from = NO_OFFSET
        # the offsets that belong to NEAR_END_SHIFTS and that frames have not reached yet, in descending order
        self._near_end: list[int] = []
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
        # Both lists have one item for each segment read or written since the open. `_firsts`: the segment's first LSN.
        # `_bases`: what to add to an offset in the segment to get the bytes of all frames up to there.
        # `_base`: the same for the current segment.
        self._firsts: list[int] = []
        self._bases: list[int] = []
        self._base = 0
        for first_lsn, end in recovered.read:
            self._firsts.append(first_lsn)
            self._bases.append(self._base - segment.HEADER_BYTES)
            self._base += end - segment.HEADER_BYTES
        self._mutex = threading.Lock()  # held during a sync; never take `lock` while holding it
        self._commit = GroupCommit(self._sync, recovered.last_lsn)
        self._began, self._begins = began, begins
        self._doubt: BaseException | None = None
        self._refused: tuple[str, int, int] | None = None  # reason, bytes, `next_lsn` at that time
        self._alarm: Callable[[], object] | None = None
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
        """[lock] Reserve space, so that `add` of a unit with `nbytes` bytes of records does not fail.

        The first call of a life creates the segment and writes the EPOCH, so it advances `next_lsn`. Raises
        NoSpace, UnitTooLarge or OSError if nothing changed and a later call may succeed; LogPoisoned or
        LogClosed if no later call will.
        """
        if self.offset + nbytes > self.room:
            self._make_room(nbytes)

    def add(self, body: bytes, count: int, now_ms: int, flush: bool = True) -> int:
        """[lock] Log one unit whose space is reserved: `body` has `count` packed records, END in the last.

        With `flush` the kernel has the unit on return, and all gathered units with it. Without, the unit is
        gathered until the next flush; `wait` and `subscribe` flush at every level. Under `always` a unit is
        also gathered while a sync is in flight, since its reply waits for the next sync in any case.

        Returns the LSN of the unit's last record. After an exception, log and memory may differ: the log
        refuses further units, and the store recovers from the log.
        """
        if self._gathered or not flush or (self._always and self.syncing):
            # Hot path: most units of a server take this branch. Update only the fields that other code reads before the
            # flush.
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

    def receive(self, batch: Batch) -> None:
        """[lock] Append frames of the leader's log to a follower's log, in one write.

        Creates the segment if this is the first write of the open. Raises BadFrame if the batch does not continue the
        log, LeaderLog on a leader's log, and NoSpace or OSError: then nothing changed and a later call may succeed.
        After another exception the log refuses further batches, and the store recovers from the log; LogPoisoned,
        LogClosed.
        """
        self._check()
        if self.role != segment.FOLLOWER:
            raise LeaderLog
        if batch.first != self.next_lsn or batch.prev != self._chain:
            raise BadFrame(
                self.next_lsn,
                f"it begins with LSN {batch.first} behind a frame with the checksum {batch.prev:08x}, but this log "
                f"ends with the checksum {self._chain:08x}",
            )
        self._alarmed()
        data = batch.data
        self._prepare(len(data) - HEADER_BYTES)
        offset = self.offset
        try:
            # A crash may tear the batch. Recovery then keeps its first whole frames, because the `synced` of received
            # frames proves nothing about this disk.
            self._append(offset, data)
            self._chain = batch.crc
            self.offset = offset + len(data)
            self.next_lsn = batch.last + 1
            self.written_lsn = batch.last
            if not self._dirty_since:
                self._dirty_since = time.monotonic()
            self.last_now = max(self.last_now, batch.now)
        except BaseException as error:
            self._doubts(error)
            raise

    def begin_life(self) -> None:
        """[lock] Write the EPOCH of a leader's life now if it is not written yet. Raises as `reserve`."""
        if self._file is None or self.role != segment.LEADER:
            self._make_room(0)
        else:
            self._check()

    def good(self, level: int) -> tuple[int, int]:
        """(first LSN of the newest segment, offset through which its frames hold `level`). Without the lock.

        Everything in earlier segments holds both levels. After a failed fsync, the answer for WRITTEN is that for
        FSYNCED, since the kernel may have dropped the rest.
        """
        while True:
            if self._file is None:
                return self._position.segment, self._position.offset
            first = self._firsts[-1]
            offset = self._synced_offset if level == FSYNCED else self.offset
            if self._fsync_failed:
                offset = self._synced_offset
            # If a new segment began in between, the offset may be one of either segment.
            if self._firsts[-1] == first:
                return first, offset

    @property
    def chain(self) -> int:
        """[lock] The header checksum of the frame that ends with `written_lsn`."""
        return self._chain

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
        """Return when all records through `lsn` have reached `level`, WRITTEN or FSYNCED. Without the lock.

        While the log is `parked`, WRITTEN waits for the disk too: under `everysec` when the oldest unsynced
        record is two seconds old. Raises LogPoisoned if the outcome is unknown; OSError, LogClosed.
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
        """As `wait`, for event loops: calls `callback(None)` or `callback(LogPoisoned)` exactly once.

        See `GroupCommit.subscribe` for the thread. Equal callbacks that one round serves are called once.
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
        """Sync in the calling thread if fsyncs are quick (`slowest_s`) and none is in flight. Without the lock.

        For event loops: two thread wake-ups cost more than the fsync of a fast disk. Returns whether it ran a sync;
        `failure` says if the sync failed.
        """
        if self.slowest_s > QUICK_S or self._mutex.locked():
            return False
        return self._commit.lead()

    def flush(self) -> None:
        """[lock] Write all gathered units to the kernel as one frame. Raises as `add`, and LogPoisoned, LogClosed."""
        if self._gathered:
            self._check()
            try:
                body = b"".join(self._gathered)
                # Do not change `next_lsn` here, because other threads read it without the lock.
                count = self.next_lsn - 1 - self.written_lsn
                self.room += len(body)
                self._gathered = []
                # Other threads are active. A write(2) would release the interpreter lock while this thread holds
                # `lock`; the other threads would then queue for `lock`, which halves the rate. So store into the
                # mapping, which is cheaper here.
                assert self._file is not None  # space for the gathered units is reserved
                self._write(body, count, self._gathered_now, self._file.append)
            except BaseException as error:
                self._doubts(error)
                # Pass the error to the callers that wait for these units, because no later round can serve them.
                self._commit.fail(error)
                raise

    def alarm(self, callback: Callable[[], object]) -> None:
        """[lock] Call `callback` once, under the lock, when the next unit or batch is about to be added.

        A log without an alarm pays nothing for it: the alarm leaves no room, so the next `reserve` comes to
        `_make_room`.
        """
        self._alarm = callback
        self.room = NO_ROOM

    def suspend(self, on: bool) -> None:
        """[lock] Refuse every unit from now on with SuspendedLog, or take units again. It costs `add` nothing.

        Units that were gathered before are written by the next flush.
        """
        self._suspended = on
        self.room = NO_ROOM

    def fill_to(self, nbytes: int) -> None:
        """[lock] The log is `full` when `frames_bytes` reaches this. It costs `add` nothing, and refuses nothing."""
        if nbytes != self._full_at:
            self._full_at = nbytes
            self.room = NO_ROOM

    def full(self, nbytes: int) -> bool:
        """[lock] Whether one more unit, of this size, would pass the limit of `fill_to`.

        Every unit that does comes to `reserve` first, so a caller of `reserve` may ask this and refuse the unit.
        """
        if self.offset + nbytes <= self.room:
            return False
        after = self.frames_bytes + self._gathered_bytes() + HEADER_BYTES + nbytes
        return after > self._full_at

    def _alarmed(self) -> None:
        callback, self._alarm = self._alarm, None
        if callback is not None:
            callback()

    def _gathered_bytes(self) -> int:
        return sum(map(len, self._gathered))

    # --- for checkpoints

    def position(self) -> Position:
        """[lock] Flush, then return the position where the written log ends.

        Raises as `flush`; LogPoisoned or LogClosed if no checkpoint may be taken any more.
        """
        self._check()
        self.flush()
        if self._file is None:
            return self._position
        return Position(
            self.written_lsn, self._chain, self._firsts[-1], self.offset, self.incarnation
        )

    def sync_through(self, lsn: int) -> None:
        """Return when all records through `lsn` are on the disk, whatever the policy. Without the lock.

        Raises LogPoisoned; the caller must then not commit a checkpoint that depends on them."""
        self._commit.wait(lsn)

    def since(self, position: Position | Start) -> tuple[int, int]:
        """[lock] How much was logged after a position: (bytes of frames, records), gathered units included.

        Bytes that were neither read nor written since the open are not counted."""
        at = bisect_left(self._firsts, position.segment)
        if at == len(self._firsts):
            nbytes = 0
        elif self._firsts[at] == position.segment:
            nbytes = self._base + self.offset - self._bases[at] - position.offset
        else:
            nbytes = self._base + self.offset - self._bases[at] - segment.HEADER_BYTES
        return nbytes + self._gathered_bytes(), self.next_lsn - 1 - position.lsn

    @property
    def frames_bytes(self) -> int:
        """[lock] The bytes of all frames that were read or written since the open, gathered units left out."""
        return self._base + self.offset

    # --- exposure and policy

    @property
    def policy(self) -> Policy:
        """`always`, `everysec` or `no`: when the log is synced without a caller that waits. Assign to switch.

        Switching raises ValueError for another name, and NoThread if `everysec` gets no thread.
        """
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        if policy not in POLICIES:
            raise ValueError(
                f"unknown fsync policy {policy!r}: choose one of {', '.join(POLICIES)}"
            )
        stricter = POLICIES.index(policy) < POLICIES.index(self._policy)
        if (
            policy == "everysec" and self._every_second is None
        ):  # first, because it may raise NoThread
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
        """Whether a sync is in flight. Units for FSYNCED may then be gathered at no cost."""
        return self._mutex.locked()

    @property
    def in_doubt(self) -> bool:
        """Whether a write failed midway, and no fsync did: recovery can find out what is in the log."""
        return self._doubt is not None and not self._fsync_failed

    @property
    def failure(self) -> BaseException | None:
        """The error that poisoned the log or put it in doubt; None while it is neither.

        None of a log that was retired in order, too: that says nothing about the disk, and the next log goes on.
        """
        ending = self.ending
        return None if isinstance(ending, LogClosed) and not self._fsync_failed else ending

    @property
    def ending(self) -> BaseException | None:
        """Why this log acknowledges no further record: `failure`, or LogClosed if it was retired; else None."""
        return self._commit.failure or self._doubt

    def refusal(self) -> str | None:
        """Why the last unit was refused, for example a full disk. Without the lock.

        None if none was, a later unit was logged, or `try_again` succeeded.
        """
        refused = self._refused
        return None if refused is None or refused[2] != self.next_lsn else refused[0]

    def try_again(self) -> None:
        """[lock] Try to reserve space for the unit that was refused last, if any. Raises as `reserve`."""
        refused = self._refused
        if refused is not None and refused[2] == self.next_lsn:
            self._check()
            self._prepare(refused[1])
            self._refused = None

    def exposed(self) -> tuple[int, float]:
        """The data that a power cut could lose now: (bytes, age in seconds of the oldest record)."""
        oldest = self._oldest()
        if oldest is None:
            return 0, 0.0
        nbytes = self.offset - self._synced_offset + self._gathered_bytes()
        return max(nbytes, 0), max(time.monotonic() - oldest, 0.0)

    def _oldest(self) -> float | None:
        if self.next_lsn - 1 <= self.synced_lsn:
            return None
        if not (self._sync_since or self._dirty_since):
            self._dirty_since = time.monotonic()  # records gathered, or added as a sync began
        return self._sync_since or self._dirty_since

    def press(self, on: bool) -> None:
        """[lock] Start or stop making replies wait for the disk. The store does it while memory is over its budget."""
        self._pressed = on
        self._park(on)

    def _park(self, parked: bool) -> None:
        self.parked = parked or self._pressed
        if self._fsync_failed:  # check this last: an fsync may fail while `parked` is being set
            self.parked = True

    # --- making room: all [lock]

    def _make_room(self, nbytes: int) -> None:
        self._check()
        if self.role == segment.FOLLOWER:
            raise FollowerLog
        if self._suspended:
            raise SuspendedLog
        self._alarmed()
        if nbytes > frame.BODY_BYTES_MAX:
            raise UnitTooLarge(nbytes, frame.BODY_BYTES_MAX)
        self._prepare(nbytes)

    def _prepare(self, nbytes: int) -> None:
        """Prepare space for a header and `nbytes` bytes behind the gathered units. The first call begins the life."""
        try:
            if self._gathered_bytes() + nbytes > frame.BODY_BYTES_MAX:
                self.flush()
            if self._file is None:
                self._begin(nbytes)
            elif self._end_after(nbytes) > self._limit:
                self._roll(nbytes)
            self._extend(self._end_after(nbytes))
        except (AofError, OSError) as error:  # from a step that can be retried
            self._refused = str(error), nbytes, self.next_lsn
            raise
        except BaseException as error:
            self._doubts(error)
            raise

    def end_segment(self) -> None:
        """[lock] Go on in a new segment, if this one has frames: a checkpoint can then release it. Raises as `reserve`.

        Begins the life if it has not begun, which begins a segment too.
        """
        if self._file is None or self.offset + self._gathered_bytes() > segment.HEADER_BYTES:
            self._limit = 0
            self._make_room(0)

    def _end_after(self, nbytes: int) -> int:
        return self.offset + HEADER_BYTES + self._gathered_bytes() + nbytes

    def _check(self) -> None:
        if self._commit.failure is not None:  # first, since a retired log is also closed
            raise self._commit.error()
        if self._closed:
            raise LogClosed("the log is closed")
        if self._doubt is not None:
            raise LogPoisoned(
                f"a write to the log was interrupted ({self._doubt!r}); recover the log before writing again"
            ) from self._doubt

    def _doubts(self, error: BaseException) -> None:
        if self._doubt is None:
            self._doubt = bare(error)
        self.room = -1

    def _begin(self, nbytes: int) -> None:
        """Begin the life: create its segment and, as leader, write its EPOCH in a frame of its own."""
        if self._begins is not None:
            self._begins()  # may raise: nothing is written yet
        if self._durable is None:
            with self._space_for(durable.FILE_BYTES):
                self._durable = DurableFile(self._disk, self._directory, self._uuid)
        if self.role == segment.FOLLOWER:
            self._new_segment(self._before, HEADER_BYTES + nbytes)
            return
        effect: Effect = (EPOCH | END, self.epoch, self.incarnation)
        body: bytes = msgpack.packb(effect)
        self._new_segment(self._before, 2 * HEADER_BYTES + len(body) + nbytes)
        self._write(body, 1, self.last_now, self._append)
        if self._began is not None:
            self._began(effect)

    def _roll(self, nbytes: int) -> None:
        """End the segment and go on in a new one."""
        self.flush()
        # From here on, append nothing to this segment, even after an error: the next segment's header states where this
        # segment ends, and that header may be visible before the error.
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
        # If the old segment has no frame, it was too small for its first unit. Then the new segment replaces it under
        # the same name, and continues the last segment that has a frame.
        self._new_segment(self._before, HEADER_BYTES + nbytes)
        self._ahead.end(old, offset)

    def _new_segment(self, before: End, room: int) -> None:
        """Publish a segment with space for `room` bytes after its header, and direct writes to it."""
        time_ms = max(self.last_now, self._clock())
        header = SegmentHeader(
            self._uuid, self.incarnation, self.next_lsn, time_ms, before, self.role
        )
        path = self._directory / segment.file_name(self.next_lsn)
        size = segment.HEADER_BYTES + room
        with self._space_for(room):
            file, filled = self._ahead.take_spare() or self._bare_spare()
            try:
                if filled < size:
                    # Fill as little as possible here: this thread fsyncs the zeros together with the header while it
                    # holds the lock.
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
        self._limit = max(self._segment_bytes, size)
        self._near_end = [self._limit - (self._limit >> k) for k in reversed(NEAR_END_SHIFTS)]
        self._prepared_to(filled, since=self.offset)
        self._set_room(filled)

    def _set_room(self, prepared: int) -> None:
        """Let `reserve` do nothing until frames reach the offset `prepared`.

        A follower's log and a held one refuse every unit.
        """
        if self.role == segment.LEADER and not self._suspended:
            last = min(
                prepared - HEADER_BYTES,
                self.offset + frame.BODY_BYTES_MAX,
                self._full_at - self._base - HEADER_BYTES,
            )
            self.room = last - self._gathered_bytes()

    def _note_segment(self) -> None:
        """Record that a segment begins at `next_lsn`. `offset` is still that of the one before; 0 if none."""
        base = self._base = self._base + self.offset - segment.HEADER_BYTES
        # The offset changes before the segment's name: `good` reads them without the lock, and may then return too
        # small an offset of the old segment, but no offset of the old one as one of the new.
        self.offset = self._synced_offset = segment.HEADER_BYTES
        if self._firsts and self._firsts[-1] == self.next_lsn:  # replaces a segment without a frame
            self._bases[-1] = base
        else:
            self._bases.append(base)
            self._firsts.append(self.next_lsn)

    def _bare_spare(self) -> tuple[File, int]:
        return self._disk.create(self._directory / segment.SPARE), 0

    def _appender(self, file: File) -> Callable[[int, bytes], None]:
        """The function that puts frames into the file: `write` if every unit is synced, else `append`.

        A page changed through a mapping makes each fdatasync a quarter slower (docs/decisions/append.md).
        """
        return file.write if self._policy == "always" else file.append

    def _extend(self, need: int) -> None:
        """Prepare the segment up to offset `need` or further, and update `room`."""
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
        self._set_room(min(self._allocated, self._limit, self._fill_from, *self._near_end[-1:]))

    def _prepared_to(self, allocated: int, since: int) -> None:
        self._allocated = allocated
        # Start to fill the next chunk early, because the filling thread may have to wait for the interpreter lock once
        # per piece.
        self._fill_from = since + (allocated - since) // 4 if allocated < self._limit else NO_OFFSET

    def _look_ahead(self, file: File, need: int) -> None:
        """Start the background work that is due when frames reach offset `need`."""
        if need > self._fill_from:
            self._fill_from = NO_OFFSET
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
        """Sync in the background, so that less is left to sync when the segment ends."""
        try:
            self._sync_file()
        except OSError as error:
            self._commit.fail(error)

    def _fill(self, file: File, start: int, need: int, wanted: int) -> int:
        """Write zeros from `start` to `need`, and on to `wanted` if the segment and the disk have space.

        Returns the offset reached. Raises NoSpace if that is below `need`.
        """
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

    # --- syncing and closing

    def _sync(self) -> int:
        """One round of group commit: flush, sync, and return `synced_lsn`."""
        if self._gathered:
            with self.lock:
                self.flush()
        self._sync_file()
        return self.synced_lsn

    def _sync_file(self) -> None:
        with self._mutex:
            # Read `written_lsn` before `_file`. Then the records up to that LSN are in this file, or in an earlier file
            # that was synced already. The next sync covers records added from now on.
            lsn = self.written_lsn
            if lsn <= self.synced_lsn:
                return
            if self._fsync_failed:  # a sync failed, but an interrupt prevented the report
                raise OSError(errno.EIO, "an earlier sync failed")
            # the log was retired, but an interrupt prevented the report
            if self._append is _no_segment:
                raise LogClosed("the log was retired")
            self._sync_since, self._dirty_since = self._dirty_since, 0.0
            file, offset = self._file, self.offset
            assert file is not None
            started = time.monotonic()
            try:
                file.fdatasync()
            except OSError:
                # `_stop_answering` also sets `_fsync_failed`, but an interrupt could come first
                self._fsync_failed = True
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
                    # a failure here is harmless: DURABLE only helps to prove damage, and no reply depends on it
                    pass
            if self.on_sync is not None:
                self.on_sync(ended - started)

    def _stop_answering(self) -> None:
        """After a failed fsync: allow no further write and no reply, at any level."""
        self._fsync_failed = True
        self.room = -1
        self.parked = True

    def _poison(self, error: BaseException) -> None:
        self._stop_answering()
        self._commit.fail(error)

    def close(self) -> None:
        """Flush and sync, cut the segment's unused space, and stop the threads. Idempotent.

        If the log has failed, it only releases its resources and raises LogPoisoned with the number of records
        that were never confirmed.
        """
        with self.lock:
            if self._closed:
                return
            self.room = -1
            if self.failure is None:
                with contextlib.suppress(Exception):  # `failure` has it
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
                f"the log was closed, but {unsure} records from LSN {self.synced_lsn + 1} on were never confirmed to "
                f"be on the disk ({self.failure!r}). Open the store again and read the data to find out which exist"
            ) from self.failure

    def retire(self) -> None:
        """[lock] Give up a log in doubt, so that recovery can replace it under the same LOCK.

        Waiting callers get LogPoisoned: outcome unknown. Waits for a sync in flight; the syncer thread ends by itself.
        """
        self._closed = True
        self.room = -1
        if self._every_second is not None:
            self._every_second.stop()
        self._ahead.stop()
        with self._mutex:
            self._release()
        self._commit.retire(self._doubt or LogClosed("the log was retired"))

    def sync_whole(self) -> None:
        """[lock] Flush, and sync all of it in this thread. Raises as `flush`; LogPoisoned, LogClosed."""
        self._check()
        self.flush()
        try:
            self._sync_file()
        except OSError as error:
            self._commit.fail(error)
            raise self._commit.error() from error

    def hand_over(self, now_ms: int) -> Recovered:
        """[lock] End the log, all of it on the disk, and return its end: another Log continues it under the same LOCK.

        `now_ms` is the time of the last frame, or a later one. Call `sync_whole` first; after an exception in here,
        `retire` this log and recover.
        """
        position = self.position()
        self.sync_whole()
        file, end = self._file, self._before
        ends = [after - at + segment.HEADER_BYTES for at, after in pairwise(self._bases)]
        if file is not None:
            ends.append(self.offset)
            if self.offset > segment.HEADER_BYTES:
                end = End(self.written_lsn, self.offset, self._chain)
            self._ahead.filled()
            with contextlib.suppress(OSError):  # zeros after the last frame do no harm
                file.unmap()
                file.truncate(self.offset)
        elif self._bases:
            ends.append(self._base - self._bases[-1])
        self._commit.synced = max(self._commit.synced, self.synced_lsn)
        self.retire()
        read = tuple(zip(self._firsts, ends, strict=True))
        return Recovered(self.written_lsn, self._chain, now_ms, [], end, 0, None, position, read)

    def abandon(self) -> None:
        """Close the descriptors and touch nothing else, in the child after a fork."""
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
