"""Checkpoints of an open store: when to fold the log, which data may then leave memory, which segments may go.

One thread checks the triggers a few times a second and does all the work, callers' requests too. So no interrupt can
strike between a commit and its follow-up.

    log bytes, or changes and seconds, since the last checkpoint      Options.checkpoint_bytes, .save
    changed bytes over half the memory budget                         over the whole budget, writers wait for it
    an eighth of the quota was logged, or a tenth of it is free       over the quota, units that add are refused
    snapshot_every                                                    a snapshot, which is a copy of a checkpoint
    a clean close after more than TAIL_BYTES of log                   replaying them would slow the next open
    the store's time leads the wall clock by other than it says       the next open needs that (`Meta.lead`)

A failed checkpoint changes nothing: the log stays in use, a warning says why, and it is tried again after a pause.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.aof import identity
from tidelog.aof.bookmarks import Unusable
from tidelog.aof.errors import AofError, NoThread
from tidelog.aof.identity import Identity
from tidelog.aof.layout import FOLLOWERS
from tidelog.aof.lock import NAME as LOCK
from tidelog.aof.reading.reader import Epoch, segments
from tidelog.aof.release import release
from tidelog.aof.segment import Position
from tidelog.aof.start import Start
from tidelog.aof.threads import start
from tidelog.disk.interface import Disk, File
from tidelog.disk.links import is_at, is_unlinked
from tidelog.engine.api import PENDING_BYTES, Frozen, State, freeze, load_state, settle, thaw
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.checkpoint import Cancelled, write_checkpoint
from tidelog.snapshot.errors import CheckpointError, DamagedCheckpoint
from tidelog.snapshot.rows.environment import ColdRows, Environment, open_environment
from tidelog.snapshot.rows.meta import Meta, read_meta
from tidelog.store.clock import KEPT_MS
from tidelog.store.commit.callers import Bell
from tidelog.store.errors import CheckpointFailed, StoreClosed, TidelogError
from tidelog.store.keepers import Keeper, Pin, in_the_way, keepers, lacking, pins, void
from tidelog.store.options import Options
from tidelog.store.quota import PART, Quota, Used
from tidelog.store.residence import Residence, give_back

if TYPE_CHECKING:
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.scrub import Finding
    from tidelog.store.commit.core import Core

LOOK_S: Final = 0.1  # pause between checks of the triggers
ROOM_S: Final = 1.0  # least time between two looks at how full the disk is
TAIL_BYTES: Final = 128 << 10  # replaying this much log takes as long as writing a checkpoint
RETRY_S: Final = 1.0  # pause after a failed checkpoint; doubled after each further failure
RETRY_S_MAX: Final = 60.0
PRESS_S: Final = 0.01  # pause between checks of memory while a checkpoint is being written
SAMPLE: Final = 1000  # at most this many changed streams are looked at to count pending entries
FLUSHED_KEYS: Final = (
    10_000  # from this number of keys on, a flush leaves memory that the system should have again
)
FULL_BYTES: Final = 4096  # a store that refuses a unit of this size counts as full
LOGGED_BYTES: Final = 8  # bytes of a pending entry in the log; in memory it takes PENDING_BYTES

BEGINNING: Final = Position(0, 0, 0, 0, 0)
NEWER: Final = "memory is older than the checkpoint"

T = TypeVar("T")

_logger = logging.getLogger("tidelog")


def check_owner(path: Path, meta: Meta, uuid: bytes) -> None:
    """Raise CheckpointError if the checkpoint in `path` belongs to another store than `uuid`."""
    if meta.uuid != uuid:
        raise CheckpointError(
            f"{path} is the checkpoint of another store (uuid {meta.uuid.hex()}); if it was copied here by mistake, "
            "move it away"
        )


def _lead(core: Core) -> int:
    """How far the store's time is ahead of the wall clock, in ms; 0 if it is too little to be kept."""
    lead = core.clocks().lead
    return lead if lead >= KEPT_MS else 0


class _Request:
    """Work that a caller waits for and the thread does."""

    def __init__(self, work: Callable[[Core], Any]) -> None:
        self.work = work
        self.done = Bell()
        self.answer: Any = None
        self.error: BaseException | None = None

    def serve(self, core: Core | None) -> None:
        try:
            if core is None:
                raise StoreClosed("the store was closed; open it again")
            self.answer = self.work(core)
        except BaseException as error:
            self.error = error
        self.done.ring()


class Checkpoints:
    """The checkpoints of one store that is open for writing.

    meta        of the newest checkpoint, None before the first
    epochs      every life of the store so far
    keep_dead   which dead jobs of its queues go
    """

    def __init__(self, disk: Disk, root: Path, owned: Identity, options: Options) -> None:
        self.meta: Meta | None = None
        self.epochs: list[Epoch] = []
        self.residence = Residence(options.memory_budget)
        self.quota = Quota(disk, root, options.maxdisk)
        self.failure: BaseException | None = None  # of the last attempt
        self.seconds = 0.0  # duration of the last one
        self._disk, self._root, self.options = disk, root, options
        self.own(owned)
        self._directory = root / identity.CHECKPOINT
        self._lock_file: File | None = None
        self._possible = disk.beneath(self._directory) is not None
        self._environment: Environment | None = None
        self._rows: ColdRows | None = None
        self._one = threading.Lock()  # held while the file is in use
        # Protects the requests, and the decision whether the thread still serves them.
        self._gate = threading.Lock()
        self._requests: deque[_Request] = deque()
        self._wake = Bell()
        self._stopping = self._abandoned = False
        self._thread: threading.Thread | None = None
        self._publisher: threading.Thread | None = None
        # LSNs of snapshots being made; the log after the least of them is kept
        self._said_void: set[Keeper | Unusable] = set()
        self._said_near: set[str] = set()  # followers that soon keep no log
        self._making: list[int] = []
        self._publishing = threading.Lock()  # held while a snapshot is made or deleted
        self.followers: Callable[[], list[Keeper]] = list  # what a server keeps for them
        self._core: Callable[[], Core | None] = lambda: None
        self._beneath = 0  # number of the checkpoint on which the present state is based
        self._began = self._snapshot_at = time.monotonic()
        self._failures = 0
        self._moved = False  # said that the directory was moved
        self._trims = False  # the checkpoint that frees the names of flushed keys is still to come
        self._not_before = self._press_at = self._room_at = self._quota_at = 0.0
        if self._possible and disk.exists(self._directory / identity.DATA):
            self._attach()

    # --- opening

    def _attach(self) -> None:
        """Open the file and read its meta row. Raises Damage, CheckpointError, OSError."""
        self._environment = open_environment(self._disk, self._directory)
        try:
            self._rows = ColdRows(self._environment)
            self.meta = read_meta(self._rows, self._environment.path)
            if self.meta is not None:
                check_owner(self._rows.path, self.meta, self._uuid)
        except BaseException:
            self._detach()
            raise

    def begin(self) -> tuple[State, Start | None]:
        """The state of the newest checkpoint, and where to start replaying the log onto it. Also used for a rebuild."""
        meta, rows = self.meta, self._rows
        if meta is None or rows is None:
            return State(), None
        rows.renew()  # sees one that was just committed
        self.meta = meta = read_meta(rows, rows.path) or meta
        self._beneath = meta.number
        return load_state(rows, meta.tables), meta.start

    def attend(self, core: Core) -> None:
        """Look after this store from now on. Holds it weakly."""
        self._core = weakref.ref(core)
        core.checkpoints = self
        core.landing.over_quota = self.quota.text
        if self.options.maxdisk is not None:
            self._used(core, anew=True)

    def own(self, owned: Identity) -> None:
        """[lock] STORE says this from now on. If the uuid is another one, there is no checkpoint, or `reopen` is called
        next.
        """
        self._uuid = owned.uuid
        # Version 0.2 is the first that says so, and the first with these limits.
        self._began_empty = owned.made > 0
        self.keep_dead = self.options.keep_dead(self._began_empty)

    def reopen(self) -> None:
        """[lock] Use the file that the directory has now: another store may have taken the place of this one.

        The thread does not write meanwhile, because memory is in doubt. Raises Damage, CheckpointError, OSError.
        """
        if not self._possible:
            return
        if self._environment is None or not self._environment.is_in_place():
            self._detach()
            self.meta = None
            if self._disk.exists(self._directory / identity.DATA):
                self._attach()

    def get_ready(self) -> None:
        """[lock] A life is about to begin with its first write. Raises NoThread: without checkpoints the log would grow
        for ever.
        """
        if self._possible:
            with self._gate:
                self._start()

    def lived(self, epoch: Epoch) -> None:
        """[lock] A life has begun with its first write, so from now on there is something to look after."""
        self.epochs.append(epoch)
        if self._possible:
            with self._gate:
                self._start()

    def _start(self) -> None:
        """[gate] Start the thread if there is none."""
        if self._thread is None and not self._stopping:
            self._was_removed()  # from here on
            thread = threading.Thread(target=self._run, name="tidelog-checkpoint", daemon=True)
            start(thread, "write checkpoints")
            self._thread = thread

    # --- what is due

    @property
    def position(self) -> Position:
        """The log position of the newest checkpoint."""
        return BEGINNING if self.meta is None else self.meta.position

    def change(self, options: Options) -> None:
        """Use other rules and another memory budget from now on. The thread notices within LOOK_S."""
        self.options = options
        self.keep_dead = options.keep_dead(self._began_empty)
        self.residence.budget = options.memory_budget
        self.residence.next_survey = 0.0
        core = self._core()
        if core is not None and options.maxdisk != self.quota.limit:
            self.quota.limit = options.maxdisk
            self._used(core, anew=True)

    def _due(self, core: Core) -> bool:
        options = self.options
        with core.lock:
            if core.ended or core.trouble is not None or core.log.failure is not None:
                return False
            nbytes, changes = core.log.since(self.position)
        if changes <= 0:
            return False
        if self._has_other_lead(core) and self._is_automatic():
            return True
        budget = options.memory_budget
        if budget is not None and self._press(core) > budget // 2:
            return True
        if options.checkpoint_bytes and nbytes >= options.checkpoint_bytes:
            return True
        if options.maxdisk is not None and nbytes >= options.maxdisk // PART:
            return True
        age = time.monotonic() - self._began
        return any(age >= seconds and changes >= many for seconds, many in options.save)

    def _has_other_lead(self, core: Core) -> bool:
        """Whether the store's time leads the wall clock by other than the newest checkpoint says. The next open needs
        that, to know how much time has passed. A follower's time is its leader's.
        """
        noted = 0 if self.meta is None else self.meta.lead
        return core.following is None and abs(_lead(core) - noted) >= KEPT_MS

    def _is_automatic(self) -> bool:
        """Whether checkpoints are made unasked."""
        return bool(self.options.checkpoint_bytes or self.options.save)

    def _press(self, core: Core) -> int:
        """The approximate bytes that no checkpoint holds yet. If they exceed the budget, makes writers wait."""
        budget = self.options.memory_budget
        now = time.monotonic()
        if budget is None or now < self._press_at:
            return 0
        self._press_at = now + PRESS_S
        with core.lock:
            logged, _ = core.log.since(self.position)
            # Add the memory of pending entries, because a pending entry takes more bytes in memory than in the log.
            streams = islice(core.state.changes.streams.values(), SAMPLE)
            groups = (group for each in streams for group in each.groups.values())
            pending = sum(len(group.pending) for group in groups if not group.lost)
        changed = logged + min(pending * PENDING_BYTES, logged * PENDING_BYTES // LOGGED_BYTES)
        if changed > budget and core.durability.relief is None:
            core.press(threading.Event())
        return changed

    # --- the thread

    def _run(self) -> None:
        while True:
            self._wake.wait(LOOK_S)
            core = self._core()
            while self._requests:
                self._requests.popleft().serve(core)
            with self._gate:
                if self._requests:
                    self._wake.ring()
                elif self._stopping or core is None or core.ended:
                    self._stopping = True
                    return
            if core is not None and not core.ended:
                try:
                    self._look(core)
                except TidelogError:
                    pass  # logged already, or raised by the next call
                except Exception:
                    _logger.exception(
                        "the checkpoint thread of %s failed; it tries again", self._root
                    )
                    self._not_before = time.monotonic() + RETRY_S_MAX
            del core

    def is_this_thread(self) -> bool:
        """Whether the calling thread is the checkpoint thread, which cannot wait for itself."""
        return threading.current_thread() is self._thread

    def _ask(self, work: Callable[[Core], T]) -> T:
        """Have the thread do something, and wait for it. An interrupt ends the wait, not the work."""
        core = self._core()
        if core is not None:
            core.check_open()  # a forked child has no thread to wait for
        request = _Request(work)
        with self._gate:
            if self._stopping:
                raise StoreClosed("the store was closed; open it again")
            try:
                self._start()
            except NoThread as error:
                raise CheckpointFailed(str(error)) from error
            self._requests.append(request)
            self._wake.ring()
        request.done.wait()
        if request.error is not None:
            raise request.error
        answer: T = request.answer
        return answer

    def _look(self, core: Core) -> None:
        if self._was_removed():
            # Writes still reach the files, which have no names any more. So no call would notice before a new file.
            with core.lock:
                if not core.ended:
                    _logger.error("%s", self._removed())
                    core.end(self._removed)
            return
        self._say_moved()
        self._make_room(core)
        if core.state.changes.flushed >= FLUSHED_KEYS:
            with core.lock:
                core.state.changes.flushed = 0
            self._trims = True
            give_back()
        now = time.monotonic()
        if now < self._not_before:
            return
        self._heed_quota(core)
        every = self.options.snapshot_every
        snapshot = every is not None and now - self._snapshot_at >= every
        if snapshot:
            self._snapshot_at = now
            snapshot = self._may_add_snapshot(core)
        if snapshot or self._due(core):
            try:
                self.residence.relieve(core)  # during a checkpoint nothing can be evicted
            finally:
                self._folded(core)
        if snapshot:
            self._publish_beside()
        self.residence.relieve(core)

    def _used(self, core: Core, anew: bool = False) -> Used | None:
        """The bytes that the store has on disk. None: these cannot be counted now. `anew`: look at the files again."""
        try:
            return self.quota.look(core) if anew else self.quota.used(core)
        except (AofError, OSError) as error:
            _logger.warning("it is unknown how much %s has on disk: %s", self._root, error)
            return None

    def _heed_quota(self, core: Core) -> None:
        """Near the quota, fold and release the log early, and look whether others have made room.

        A follower refuses nothing, so it only keeps less log.
        """
        now = time.monotonic()
        quota = self.quota
        if quota.limit is None or now < self._quota_at:
            return
        used = self._used(core)
        if used is None or quota.short(used) <= 0:
            return
        with core.lock:
            full = core.log.full(FULL_BYTES)
        leads = core.following is None
        # Do this at most half of the time, so that other work goes on.
        if (
            leads
            and (full or used.log > quota.limit // PART)
            and now >= self._began + 2 * self.seconds
        ):
            self._folded(core)
        self._release_segments(core, self.position.lsn)
        self._quota_at = time.monotonic() + ROOM_S

    def _may_add_snapshot(self, core: Core) -> bool:
        """Whether an automatic snapshot may be made. At the quota it may only take the place of an older one."""
        quota = self.quota
        if quota.limit is None or self.options.keep_snapshots:
            return True
        used = self._used(core)
        if used is None or used.total < quota.limit:
            return True
        with core.lock:
            why = quota.text()
        _logger.warning("%s: no automatic snapshot is made: %s", self._root, why)
        return False

    def _removed(self) -> StoreClosed:
        return StoreClosed(
            f"{self._root} was removed while the store was open; restore a backup. To open this path again begins a "
            "new store"
        )

    def _was_removed(self) -> bool:
        """Whether LOCK has no name any more. In a directory that was moved it has."""
        try:
            self._lock_file = self._lock_file or self._disk.open(self._root / LOCK)
            return is_unlinked(self._lock_file)
        except OSError:
            return False  # no descriptor is left for it: a later look tells

    def _say_moved(self) -> None:
        """Say once that the directory was moved. The store goes on in it, and other processes do not find it."""
        try:
            moved = self._lock_file is not None and not is_at(self._lock_file, self._root / LOCK)
        except OSError:
            return  # it cannot be seen now
        if moved and not self._moved:
            _logger.error(
                "the directory %s was moved while the store was open. The store goes on in it until it needs a new "
                "file, and no other process finds it: move it back, or close the store and open it there",
                self._root,
            )
        self._moved = moved

    # --- folding

    def fold(self) -> int:
        """Fold the log into the checkpoint. Returns the last LSN that the checkpoint covers.

        Raises CheckpointFailed (nothing changed, and the log is kept), StoreClosed.
        """
        self._check_possible()
        return self._ask(self._folded)

    def _check_possible(self) -> None:
        if not self._possible:
            raise CheckpointFailed(
                f"{self._directory}: checkpoints need a real disk, and this one is simulated in memory"
            )

    def _folded(self, core: Core) -> int:
        try:
            with self._one:
                while True:
                    try:
                        return self._fold(core)
                    except Cancelled:
                        if core.ended or self._abandoned:
                            raise StoreClosed(
                                "the store was closed while a checkpoint was being written"
                            ) from None
                        # The store is open, so memory was rebuilt meanwhile, or is about to be. Try again.
        finally:
            relief = core.durability.relief
            # Let the waiting writers go on, even after a failure: too much memory is better than a hang.
            if relief is not None:
                give_back()  # first return to the system the memory that the checkpoint freed
                core.press(None)
                relief.set()
            elif self._trims:
                self._trims = False
                give_back()

    def _fold(self, core: Core) -> int:
        started = time.monotonic()
        frozen: Frozen | None = None
        committed = False
        state = core.state
        ends_segment = core.following is None and self._short(core) > 0
        try:
            if self._environment is None:
                if self._abandoned:
                    raise Cancelled
                self._attach()
            environment, rows = self._environment, self._rows
            assert environment is not None and rows is not None
            with core.lock:
                if core.trouble is not None:
                    core.mend()
                if self._environment is not environment:
                    raise Cancelled  # another store took the place of this one just now
                if ends_segment:
                    self._end_segment(core)
                position = core.log.position()
                same = self.meta is not None and self.meta.position.lsn == position.lsn
                if same and not self._has_other_lead(core):
                    return position.lsn
                state, now = core.state, core.now
                meta = Meta(
                    uuid=self._uuid,
                    position=position,
                    epochs=tuple(self.epochs),
                    now=now,
                    number=1 if self.meta is None else self.meta.number + 1,
                    taken=core.time_ns() // 1_000_000,
                    tables=state.tables_meta(),
                    lead=_lead(core),
                )
                frozen = freeze(state)
                self._began = started
            write_checkpoint(
                environment,
                rows,
                frozen,
                meta,
                lock=core.lock,
                sync=lambda: core.log.sync_through(position.lsn),
                # `trouble` means that an exception interrupted a unit. If that unit was copying what it was about to
                # change, the frozen state is incomplete.
                cancelled=lambda: bool(core.state is not state or core.trouble or self._abandoned),
                progress=lambda rows: self._press(core),
            )
            committed = True
            with core.lock:
                rows.renew()
                self.meta = meta
                if core.state is state:
                    state.changes.cold = rows
                    settle(state, frozen)
                    self._beneath = meta.number
                elif self._beneath != meta.number:
                    # Just before this commit, memory was rebuilt from the previous checkpoint. So memory does not fit
                    # the new rows, and has to be rebuilt.
                    core.doubt(NEWER)
        except BaseException as error:
            if frozen is not None and state.changes.frozen is frozen:
                with core.lock:
                    if not committed:
                        thaw(state, frozen)
                    elif core.state is state:
                        core.doubt(NEWER)
            raise self._failed(error)
        self.failure, self._failures = None, 0
        self.seconds = time.monotonic() - started
        _logger.info("checkpoint of %s: LSN %d, in %.3f s", self._root, position.lsn, self.seconds)
        self.residence.next_survey = 0.0  # the data it wrote may be evicted now
        self._release_segments(core, position.lsn)
        return position.lsn

    def _end_segment(self, core: Core) -> None:
        """[lock] Near the quota: what the checkpoint will cover can be deleted behind it, however small that is."""
        try:
            core.log.end_segment()
        except (AofError, OSError) as error:
            # A log in doubt is told to the next call, which rebuilds memory. Otherwise the fold goes on as usual.
            core.landing.unreserved(error)

    def _failed(self, error: BaseException) -> BaseException:
        if not isinstance(error, (CheckpointError, AofError, CorruptBlock, OSError)):
            return error
        self.failure = error
        pause = min(RETRY_S * 2**self._failures, RETRY_S_MAX)
        self._failures += 1
        self._not_before = time.monotonic() + pause
        _logger.warning(
            "the checkpoint of %s failed: %s. The log continues; the next attempt is in %d s",
            self._root,
            error,
            pause,
        )
        told = CheckpointFailed(str(error))
        told.__cause__ = error
        return told

    def _release_segments(self, core: Core, lsn: int) -> None:
        """Delete segments that neither the checkpoint, kept snapshots nor retention need."""
        options = self.options
        directory = self._root / identity.AOF
        try:
            keep_from = min([lsn, *self._making])  # first: a finished one is listed below
            found, unusable = keepers(self._disk, self._root, self._uuid, options)
            beyond = void(self._disk, self._root, found)
            keep_from = min([keep_from, *(each.lsn for each in found if each not in beyond)])
            kept = self.followers()
            if kept:
                beyond |= self._void_followers(kept, keep_from)
                keep_from = min([keep_from, *(each.lsn for each in kept if each not in beyond)])
            self._say_void(beyond, unusable)
            if options.retain_seconds is not None:
                since = core.clocks().store - int(options.retain_seconds * 1000)
                # Also keep the last segment begun before `since`, because it may hold records newer than `since`.
                first_lsn = 1
                for info in segments(self._disk, directory, self._uuid):
                    if info.header.time >= since:
                        break
                    first_lsn = info.header.first_lsn
                keep_from = min(keep_from, first_lsn - 1)
            retained = 0 if self._short(core) > 0 else options.retain_bytes
            release(self._disk, directory, keep_from, retained)
        except (AofError, OSError) as error:
            _logger.warning(
                "old segments of %s could not be deleted; the next checkpoint tries again: %s",
                self._root,
                error,
            )
        self._used(core, anew=True)

    def _short(self, core: Core | None) -> int:
        """Bytes that are missing until a tenth of the quota is free; 0 or less: none."""
        used = None if core is None else self._used(core)
        return 0 if used is None else self.quota.short(used)

    def pins(self) -> list[Pin]:
        """The keepers without which a part of the log could go. Reads the disk. Raises AofError, OSError."""
        found, _ = keepers(self._disk, self._root, self._uuid, self.options)
        return pins(self._disk, self._root, self._uuid, found + self.followers(), self.position.lsn)

    def _void_followers(self, kept: list[Keeper], needed_from: int) -> dict[Keeper, str]:
        """The followers that keep no log, and why. Warns once of each that is about to be one of them."""
        disk, root = self._disk, self._root
        beyond = void(disk, root, kept)
        short = max(lacking(disk, root), self._short(self._core()))
        beyond |= in_the_way(disk, root, kept, needed_from, short)
        most = [each for each in kept if each.nbytes_max is not None and each not in beyond]
        near = void(
            disk, root, [each._replace(nbytes_max=(each.nbytes_max or 0) * 3 // 4) for each in most]
        )
        for each in near:
            if each.name not in self._said_near:
                _logger.warning(
                    "%s: the follower %s is at LSN %d, and three quarters of the log that is kept for it "
                    "(repl-backlog-size) lie behind that. If it falls further behind, it has to get a copy",
                    *(root, each.name, each.lsn),
                )
        self._said_near = {each.name for each in near}
        return beyond

    def _make_room(self, core: Core) -> None:
        """While the disk is nearly full, keep no log for followers. Deletes it also if no checkpoint can be made."""
        now = time.monotonic()
        if now < self._room_at:
            return
        self._room_at = now + ROOM_S
        try:
            if lacking(self._disk, self._root) <= 0 or not self.followers():
                return
        except OSError:
            return  # the next checkpoint says why
        self._release_segments(core, self.position.lsn)

    def _say_void(self, beyond: dict[Keeper, str], unusable: list[Unusable]) -> None:
        """Warn once of each keeper that keeps nothing."""
        said: dict[Keeper | Unusable, str] = {
            each: f"the {each.kind} {each.name} at LSN {each.lsn} is void and keeps no log: {why}"
            for each, why in beyond.items()
        }
        said |= {each: f"the bookmark {each.name} keeps no log: {each.why}" for each in unusable}
        for each in said.keys() - self._said_void:
            _logger.warning("%s: %s", self._root, said[each])
        self._said_void = set(said)

    # --- snapshots

    def snapshot(self, *, passing: bool = False) -> Snapshot:
        """Fold the log and publish a copy of the checkpoint. Raises CheckpointFailed, StoreClosed.

        passing   it is for a follower: it is none of the snapshots that the store keeps, until it is asked for again
        """
        self.fold()
        return self._publish(passing)

    def passing(self) -> list[Path]:
        """The snapshots that were made for followers and belong to nobody else. Raises OSError."""
        directory = self._root / identity.SNAPSHOTS
        if not self._disk.exists(directory / FOLLOWERS):
            return []
        from tidelog.snapshot import passing  # imported here: many stores never make one

        return [directory / name for name in sorted(passing.names(self._disk, directory))]

    def delete_passing(self, path: Path) -> bool:
        """Delete a snapshot that was made for followers, unless it belongs to the store by now. False: it is held.

        Raises SnapshotsLocked, OSError.
        """
        from tidelog.snapshot import portable  # imported here: many stores never make one

        with self._publishing:
            return portable.delete_passing(
                self._disk, self._root / identity.SNAPSHOTS, path, waits=self._waits
            )

    def clear_passing(self) -> None:
        """The store was just opened, so no follower fetches anything: delete what was made for followers.

        One that a reader in another process holds stays, until a server of this store, or the next open, tries again.
        """
        try:
            for path in self.passing():
                if self.delete_passing(path):
                    _logger.info("%s was made for a follower, and is deleted", path)
        except (AofError, OSError) as error:
            _logger.warning("snapshots that were made for followers stay: %s", error)

    def _publish(self, passing: bool = False) -> Snapshot:
        """Publish a snapshot in the caller's thread; checkpoints go on meanwhile."""
        with self._publishing:
            return self._published(passing)

    def _published(self, passing: bool) -> Snapshot:
        from tidelog.snapshot import portable  # imported here: many stores never make one

        directory = self._root / identity.SNAPSHOTS
        held = self.position.lsn
        # keeps the log after `held` until the snapshot is published and listed
        self._making.append(held)
        try:
            core = self._core()
            # the store's own clock, by which its keys expire
            now_ms = None if core is None else core.time_ns() // 1_000_000
            del core
            environment = open_environment(self._disk, self._directory)
            try:
                made = portable.create(
                    *(self._disk, environment, directory),
                    created_ms=now_ms,
                    passing=passing,
                    waits=self._waits,
                )
            finally:
                environment.close()
            if self.options.keep_snapshots:
                keep = self.options.keep_snapshots
                others = self.passing()
                pruned = portable.prune(
                    self._disk, directory, keep, passing=others, waits=self._waits
                )
                for item in pruned.held:
                    _logger.info("%s is kept while a reader holds a lease of it", item.path)
        except (AofError, CorruptBlock, OSError) as error:
            raise CheckpointFailed(f"the snapshot failed: {error}") from error
        finally:
            self._making.remove(held)
        core = self._core()
        if core is not None:
            self._used(core, anew=True)
        return made

    def _waits(self) -> bool:
        return not self._stopping  # a close does not wait for another process's snapshot

    def _publish_beside(self) -> None:
        """Publish a snapshot in its own thread, unless the previous one is still being made."""
        if self._publisher is None or not self._publisher.is_alive():

            def publish() -> None:
                try:
                    self._publish()
                except CheckpointFailed as error:
                    _logger.warning("%s: %s", self._root, error)

            self._publisher = threading.Thread(target=publish, name="tidelog-snapshot", daemon=True)
            try:
                start(self._publisher, "make a snapshot")
            except NoThread as error:
                _logger.warning("%s: the snapshot failed: %s", self._root, error)

    def verify(self) -> list[Finding]:
        """Check everything that is stored: checkpoint, log, and whether they fit. Raises CheckpointFailed if the
        checkpoint cannot be read right now.
        """
        from tidelog.snapshot.scrub import verify_store  # imported here: rarely used

        try:
            return verify_store(self._disk, self._root)
        except CheckpointError as error:
            raise CheckpointFailed(f"the store could not be verified: {error}") from error

    def info(self) -> dict[str, Any]:
        """The persistence and memory figures of INFO."""
        core = self._core()
        assert core is not None  # the caller holds it
        position, meta, residence = self.position, self.meta, self.residence
        failure = self.failure or self.damage
        used = self._used(core)
        with core.lock:
            nbytes, changes = (0, 0) if core.ended else core.log.since(position)
            full = core.log.full(FULL_BYTES)
        return {
            "checkpoint_running": self._one.locked(),
            "checkpoint_lsn": position.lsn,
            "checkpoint_unix_ms": 0 if meta is None else meta.taken,
            "checkpoint_seconds": self.seconds,
            "checkpoint_failure": None if failure is None else str(failure),
            "bytes_since_checkpoint": nbytes,
            "changes_since_checkpoint": changes,
            "memory_budget": residence.budget,
            "memory_estimate": residence.bytes,
            "writers_wait": core.durability.relief is not None,
            "maxdisk": self.quota.limit,
            "disk_bytes": None if used is None else used.total,
            "disk_full": full,
            "keep_dead_seconds": self.keep_dead.seconds,
            "keep_dead_jobs": self.keep_dead.jobs,
        }

    @property
    def damage(self) -> DamagedCheckpoint | None:
        """The damage that a check of the file found. While there is one, no checkpoint is made, no segment deleted."""
        environment = self._environment
        return None if environment is None else environment.damage

    @contextmanager
    def steady(self) -> Iterator[None]:
        """No checkpoint is committed meanwhile. Waits for one under way. Do not hold the store's lock."""
        with self._one:
            yield

    # --- while the log is rewound, or the store swapped

    @contextmanager
    def paused(self) -> Iterator[int]:
        """No checkpoint is written meanwhile, and no snapshot is made, in no process. Waits for those under way.

        Gives the last LSN that the checkpoint or a snapshot of the store covers. Do not hold the store's lock. Raises
        SnapshotsLocked, OSError.
        """
        from tidelog.snapshot import portable  # imported here: many stores never make one

        directory = self._root / identity.SNAPSHOTS
        with self._one, portable.held(self._disk, directory, self._waits):
            yield max(self.position.lsn, portable.newest_lsn(self._disk, directory) or 0)

    # --- the end

    def finish(self) -> None:
        """Before a clean close: fold a log tail that would slow the next open, and end the thread."""
        core = self._core()
        assert core is not None  # the caller holds it
        try:
            with core.lock:
                sound = not core.ended and core.log.failure is None
                nbytes, _ = core.log.since(self.position) if sound else (0, 0)
            lead = sound and self._has_other_lead(core) and self._is_automatic()
            if self._possible and (nbytes >= TAIL_BYTES or lead):
                self.fold()
        except (CheckpointFailed, StoreClosed):
            pass  # reported already, or another caller closes
        with self._gate:
            self._stopping = True
            thread = self._thread
        self._wake.ring()
        for each in (thread, self._publisher):
            if each is not None and each is not threading.current_thread():
                each.join()

    def release(self) -> None:
        """Close the file. Cancels a checkpoint that is being written; rows can no longer be read."""
        self.give_up()
        with self._one:
            self._detach()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def give_up(self) -> None:
        """Cancel the checkpoint that is being written and make no other. Rows can still be read."""
        self._stopping = self._abandoned = True
        self._wake.ring()
        with self._one:
            pass

    def _detach(self) -> None:
        rows, self._rows = self._rows, None
        environment, self._environment = self._environment, None
        if rows is not None:
            rows.close()
        if environment is not None:
            environment.close()
