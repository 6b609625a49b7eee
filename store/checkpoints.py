"""Checkpoints of an open store: when the log is folded, what may then leave memory, and which segments may go.

One thread looks at the triggers a few times a second and does all of it, also what callers ask for: so no interrupt
strikes between a commit and what follows from it.

    log bytes, or changes and seconds, since the last checkpoint      Options.checkpoint_bytes, .save
    changed bytes over half the memory budget                         over the budget, who writes waits for it
    snapshot_every                                                    a snapshot, which is made of a checkpoint
    a clean close with a tail that would be felt at the next open     TAIL_BYTES

A checkpoint that fails changes nothing: the log goes on, a warning says why, and it is tried again after a pause.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.aof import identity
from tidelog.aof.errors import AofError, NoThread
from tidelog.aof.reader import Epoch, segments
from tidelog.aof.release import release
from tidelog.aof.segment import Position
from tidelog.aof.start import Start
from tidelog.aof.threads import start
from tidelog.disk.interface import Disk
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.freeze import Frozen, freeze, load_state, settle, thaw
from tidelog.engine.state import State
from tidelog.engine.values import PENDING_BYTES
from tidelog.snapshot.checkpoint import Cancelled, write_checkpoint
from tidelog.snapshot.environment import ColdRows, Environment, open_environment
from tidelog.snapshot.errors import CheckpointError, DamagedCheckpoint
from tidelog.snapshot.meta import Meta, read_meta
from tidelog.store.errors import CheckpointFailed, StoreClosed, TidelogError
from tidelog.store.options import Options
from tidelog.store.residence import Residence, give_back
from tidelog.store.waiters import Bell

if TYPE_CHECKING:
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.scrub import Finding
    from tidelog.store.core import Core

LOOK_S: Final = 0.1  # how often the triggers are looked at
TAIL_BYTES: Final = 128 << 10  # replayed in the time that a checkpoint takes to be written
RETRY_S: Final = 1.0  # after a failure; doubled with each
RETRY_S_MAX: Final = 60.0
PRESS_S: Final = 0.01  # how often growth is looked at while a checkpoint is being written
SAMPLE: Final = 1000  # changed streams whose pending entries are counted
LOGGED_BYTES: Final = 8  # of a pending entry, which takes PENDING_BYTES in memory

BEGINNING: Final = Position(0, 0, 0, 0, 0)
NEWER: Final = "a newer checkpoint lies beneath"

T = TypeVar("T")

_logger = logging.getLogger("tidelog")


def check_owner(path: Path, meta: Meta, uuid: bytes) -> None:
    """Raises CheckpointError if the checkpoint in `path` is not that of the store `uuid`."""
    if meta.uuid != uuid:
        raise CheckpointError(
            f"{path} is the checkpoint of another store, {meta.uuid.hex()}; if it was copied here by mistake, "
            "move it away"
        )


class _Request:
    """What a caller waits for, to be done by the thread."""

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

    meta      of the newest one, None before the first
    epochs    every life of the store so far
    """

    def __init__(self, disk: Disk, root: Path, uuid: bytes, options: Options) -> None:
        self.meta: Meta | None = None
        self.epochs: list[Epoch] = []
        self.residence = Residence(options.memory_budget)
        self.failure: BaseException | None = None  # of the last attempt
        self.seconds = 0.0  # that the last one took
        self._disk, self._root, self._uuid, self.options = disk, root, uuid, options
        self._directory = root / identity.CHECKPOINT
        self._possible = disk.beneath(self._directory) is not None
        self._environment: Environment | None = None
        self._rows: ColdRows | None = None
        self._one = threading.Lock()  # held while the file is in use
        # Of the requests, and of whether there is a thread to serve them.
        self._gate = threading.Lock()
        self._requests: deque[_Request] = deque()
        self._wake = Bell()
        self._stopping = self._abandoned = False
        self._thread: threading.Thread | None = None
        self._publisher: threading.Thread | None = None
        self._making: list[int] = []  # LSNs: behind them begins the log of a snapshot under way
        self._core: Callable[[], Core | None] = lambda: None
        self._beneath = 0  # number of the checkpoint that the present state was loaded over
        self._began = self._snapshot_at = time.monotonic()
        self._failures = 0
        self._not_before = self._press_at = 0.0
        if self._possible and disk.exists(self._directory / identity.DATA):
            self._attach()

    # --- opening

    def _attach(self) -> None:
        """Open the file, and read what it says of itself. Raises Damage, CheckpointError, OSError."""
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
        """A state to replay the log onto, and from where. Also to rebuild memory in the middle of a life."""
        meta, rows = self.meta, self._rows
        if meta is None or rows is None:
            return State(), None
        rows.renew()  # one that was just committed counts
        self.meta = meta = read_meta(rows, rows.path) or meta
        self._beneath = meta.number
        return load_state(rows, meta.tables), meta.start

    def attend(self, core: Core) -> None:
        """From now on look after this store; it is not kept alive by that."""
        self._core = weakref.ref(core)
        core.checkpoints = self

    def get_ready(self) -> None:
        """[lock] A life is about to begin with its first write. Raises NoThread: without a checkpoint now and then the
        log would grow for ever.
        """
        if self._possible:
            with self._gate:
                self._start()

    def lived(self, epoch: Epoch) -> None:
        """[lock] A life has begun with its first write: from now on there is something to look at."""
        self.epochs.append(epoch)
        if self._possible:
            with self._gate:
                self._start()

    def _start(self) -> None:
        """[gate] See that there is a thread."""
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name="tidelog-checkpoint", daemon=True)
            start(thread, "write checkpoints")
            self._thread = thread

    # --- what is due

    @property
    def position(self) -> Position:
        """Where the newest checkpoint was taken."""
        return BEGINNING if self.meta is None else self.meta.position

    def change(self, options: Options) -> None:
        """Go by other rules from now on, and another memory budget. What is due is noticed within a moment."""
        self.options = options
        self.residence.budget = options.memory_budget
        self.residence.next_survey = 0.0

    def _due(self, core: Core) -> bool:
        options = self.options
        with core.lock:
            if core.ended or core.trouble is not None or core.log.failure is not None:
                return False
            nbytes, changes = core.log.since(self.position)
        if changes <= 0:
            return False
        budget = options.memory_budget
        if budget is not None and self._press(core) > budget // 2:
            return True
        if options.checkpoint_bytes and nbytes >= options.checkpoint_bytes:
            return True
        age = time.monotonic() - self._began
        return any(age >= seconds and changes >= many for seconds, many in options.save)

    def _press(self, core: Core) -> int:
        """About the bytes that no checkpoint holds yet; over the budget, who writes waits for the next one."""
        budget = self.options.memory_budget
        now = time.monotonic()
        if budget is None or now < self._press_at:
            return 0
        self._press_at = now + PRESS_S
        with core.lock:
            logged, _ = core.log.since(self.position)
            # A pending entry takes more in memory than in the log.
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
                    pass  # told already, or the next call tells
                except Exception:
                    _logger.exception("looking after the checkpoints of %s failed", self._root)
                    self._not_before = time.monotonic() + RETRY_S_MAX
            del core

    def is_this_thread(self) -> bool:
        """Whether the calling thread is the one that writes checkpoints: it cannot wait for itself."""
        return threading.current_thread() is self._thread

    def _ask(self, work: Callable[[Core], T]) -> T:
        """Have the thread do something, and wait for it. An interrupt ends the waiting, not the work."""
        core = self._core()
        if core is not None:
            core.check_open()  # in a forked child there is no thread to wait for
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
        now = time.monotonic()
        if now < self._not_before:
            return
        every = self.options.snapshot_every
        snapshot = every is not None and now - self._snapshot_at >= every
        if snapshot:
            self._snapshot_at = now
        if snapshot or self._due(core):
            try:
                self.residence.relieve(core)  # nothing leaves while a checkpoint is being written
            finally:
                self._folded(core)
        if snapshot:
            self._publish_beside()
        self.residence.relieve(core)

    # --- folding

    def fold(self) -> int:
        """Fold the log into the checkpoint. P: the LSN that it holds everything up to.

        Raises CheckpointFailed: nothing changed, and the log is kept; StoreClosed.
        """
        self._check_possible()
        return self._ask(self._folded)

    def _check_possible(self) -> None:
        if not self._possible:
            raise CheckpointFailed(
                f"{self._directory}: this disk lies in memory, so there can be no checkpoint on it"
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
                        # Memory was rebuilt meanwhile, or is about to be.
        finally:
            relief = core.durability.relief
            if relief is not None:  # also after a failure: better too much memory than to hang
                give_back()  # the pages that it was made of, before more comes
                core.press(None)
                relief.set()

    def _fold(self, core: Core) -> int:
        started = time.monotonic()
        frozen: Frozen | None = None
        committed = False
        state = core.state
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
                position = core.log.position()
                if self.meta is not None and self.meta.position.lsn == position.lsn:
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
                # Trouble: a unit broke, perhaps while it copied what it was about to change.
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
                    # Memory was rebuilt over the one before, in the very moment of the commit.
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
        self.residence.next_survey = 0.0  # what was written may leave memory now
        self._release_segments(core, position.lsn)
        return position.lsn

    def _failed(self, error: BaseException) -> BaseException:
        if not isinstance(error, (CheckpointError, AofError, CorruptBlock, OSError)):
            return error
        self.failure = error
        pause = min(RETRY_S * 2**self._failures, RETRY_S_MAX)
        self._failures += 1
        self._not_before = time.monotonic() + pause
        _logger.warning(
            "no checkpoint of %s: %s. The log goes on; tried again in %d s",
            self._root,
            error,
            pause,
        )
        told = CheckpointFailed(str(error))
        told.__cause__ = error
        return told

    def _release_segments(self, core: Core, lsn: int) -> None:
        """Let go of segments that nobody needs: checkpoint, kept snapshots, or retention."""
        options = self.options
        directory = self._root / identity.AOF
        try:
            keep_from = min([lsn, *self._making])  # first: one that is through is among the kept
            kept = self._oldest_snapshot()
            if kept is not None:
                keep_from = min(keep_from, kept)
            if options.retain_seconds is not None:
                since = core.time_ns() // 1_000_000 - int(options.retain_seconds * 1000)
                # The segment before the first that was begun since then may hold what is as young.
                first_lsn = 1
                for found in segments(self._disk, directory, self._uuid):
                    if found.header.time >= since:
                        break
                    first_lsn = found.header.first_lsn
                keep_from = min(keep_from, first_lsn - 1)
            release(self._disk, directory, keep_from, options.retain_bytes)
        except (AofError, OSError) as error:
            _logger.warning("old segments of %s stay for now: %s", self._root, error)

    def _oldest_snapshot(self) -> int | None:
        """The LSN of the oldest kept snapshot: the log behind it stays."""
        directory = self._root / identity.SNAPSHOTS
        if not self._disk.exists(directory):
            return None
        from tidelog.snapshot import portable

        return portable.oldest_lsn(self._disk, directory)

    # --- snapshots

    def snapshot(self) -> Snapshot:
        """Fold the log, and publish a copy of the checkpoint. Raises CheckpointFailed, StoreClosed."""
        self.fold()
        return self._publish()

    def _publish(self) -> Snapshot:
        """In the caller's thread, which may take its time: checkpoints go on meanwhile."""
        from tidelog.snapshot import portable  # not with the rest: many stores never have one

        directory = self._root / identity.SNAPSHOTS
        held = self.position.lsn
        self._making.append(held)  # the log behind it stays, though nobody sees the snapshot yet
        try:
            environment = open_environment(self._disk, self._directory)
            try:
                made = portable.create(self._disk, environment, directory, waits=self._waits)
            finally:
                environment.close()
            if self.options.keep_snapshots:
                keep = self.options.keep_snapshots
                portable.prune(self._disk, directory, keep, waits=self._waits)
        except (AofError, CorruptBlock, OSError) as error:
            raise CheckpointFailed(f"no snapshot could be made: {error}") from error
        finally:
            self._making.remove(held)
        return made

    def _waits(self) -> bool:
        return not self._stopping  # a close does not wait for another process's snapshot

    def _publish_beside(self) -> None:
        """In a thread of its own, unless the one before is not through."""
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
                _logger.warning("%s: no snapshot could be made: %s", self._root, error)

    def verify(self) -> list[Finding]:
        """Read everything that is stored: checkpoint, log, and whether they fit. Raises CheckpointFailed if it cannot
        be read just now.
        """
        from tidelog.snapshot.scrub import verify_store  # not with the rest: few ask for it

        try:
            return verify_store(self._disk, self._root)
        except CheckpointError as error:
            raise CheckpointFailed(f"not verified: {error}") from error

    def info(self, core: Core) -> dict[str, Any]:
        """What INFO says of persistence and memory."""
        position, meta, residence = self.position, self.meta, self.residence
        failure = self.failure or self.damage
        with core.lock:
            nbytes, changes = (0, 0) if core.ended else core.log.since(position)
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
        }

    @property
    def damage(self) -> DamagedCheckpoint | None:
        """What the check of the file found. While it is not None no checkpoint is made and no segment released."""
        environment = self._environment
        return None if environment is None else environment.damage

    # --- the end

    def finish(self, core: Core) -> None:
        """Before a clean close: fold a tail that would be felt at the next open, and end the thread."""
        try:
            with core.lock:
                sound = not core.ended and core.log.failure is None
                nbytes, _ = core.log.since(self.position) if sound else (0, 0)
            if self._possible and nbytes >= TAIL_BYTES:
                self.fold()
        except (CheckpointFailed, StoreClosed):
            pass  # it was told, or somebody else closes
        with self._gate:
            self._stopping = True
            thread = self._thread
        self._wake.ring()
        for each in (thread, self._publisher):
            if each is not None and each is not threading.current_thread():
                each.join()

    def release(self) -> None:
        """Let go of the file. Nothing is read from it any more; a checkpoint that is being written is given up."""
        self.give_up()
        with self._one:
            self._detach()

    def give_up(self) -> None:
        """End the checkpoint that is being written, and make no other. Rows may be read on."""
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
