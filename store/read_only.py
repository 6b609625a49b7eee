"""A store opened read-only, also beside its writer: shows what the log holds. Creates, locks and writes nothing.

It shows what was written when it was opened or last refreshed; expired keys are missing. XREAD may block; the next
`refresh`, by any caller, serves it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tidelog.aof import errors as aof
from tidelog.aof import identity, layout
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import FrameTuple, Replay
from tidelog.aof.start import Start
from tidelog.aof.tail import Tail
from tidelog.disk.interface import Disk
from tidelog.engine.api import Context, Effect, Settings, State
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.snapshot import swap
from tidelog.snapshot.rows.opened import Opened, open_copy
from tidelog.store.checkpoints import check_owner
from tidelog.store.clock import Clock, resumed
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.core import Answer, Core
from tidelog.store.commit.landing import RELOAD, Landing
from tidelog.store.commit.reads import reads_only
from tidelog.store.directory import is_snapshot
from tidelog.store.errors import NewerFormat, StoreDamaged, from_command
from tidelog.store.lifetime import Keeper, keep

READONLY = b"READONLY You can't write against a read only store."


class _ReadLog:
    """Stands in for a log: everything that was read holds every level, and nothing can be added."""

    policy = "no"
    parked = syncing = in_doubt = False
    failure = None
    incarnation = 0
    last_now = 0

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next_lsn = 1

    @property
    def written_lsn(self) -> int:
        return self.next_lsn - 1

    synced_lsn = written_lsn

    def reserve(self, nbytes: int) -> None:
        raise from_command(CommandError(READONLY))

    def full(self, nbytes: int) -> bool:
        return False

    def exposed(self) -> tuple[int, float]:
        return 0, 0.0

    def refusal(self) -> str | None:
        return None

    def wait(self, lsn: int, level: int) -> None: ...

    def subscribe(self, lsn: int, level: int, callback: Callable[[None], object]) -> None:
        callback(None)

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class _Beneath:
    """The open checkpoint under a read-only store. The Keeper releases it like a writer's checkpoints."""

    def __init__(self) -> None:
        self.opened: Opened | None = None

    def open(self, disk: Disk, folder: Path) -> Opened | None:
        """Open the newest checkpoint instead, if there is one. Raises Damage, CheckpointError, OSError."""
        self.release()
        try:
            self.opened = open_copy(disk, folder)
        except FileNotFoundError:
            return None
        return self.opened

    def is_newest(self) -> bool:
        """Whether no checkpoint was committed since this one was opened."""
        opened = self.opened
        return opened is None or opened.environment.committed() == opened.rows.number()

    def give_up(self) -> None: ...

    def release(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.close()


class _Reading:
    """Follows the log of a store on top of its checkpoint, or shows a snapshot.

    log       the part of the log that was read
    beneath   the checkpoint
    observer  is told of the records before they are applied
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self.observer: Callable[[list[Effect]], None] | None = None
        self.log = _ReadLog()
        self.beneath = _Beneath()
        self._disk = disk
        self._root = root
        self._directory = root / identity.AOF
        self._tail: Tail | None = None  # of the part of the log that was not read yet
        self._snapshot = is_snapshot(disk, root)
        self._uuid = b""
        self._store = 0, 0  # identity of the file STORE, which a swap replaces

    def read_on(self, landing: Landing) -> None:
        """Apply the part of the log that was not read yet. Raises Damage, NewerFormat, CorruptBlock, OSError."""
        if self._snapshot:
            return
        if self._tail is not None and self.beneath.is_newest() and self._is_same():
            try:
                self._follow_log(self._tail, landing)
                return
            except (aof.Vanished, FileNotFoundError):
                # Either a newer checkpoint holds the records and the writer released the segment, or another store
                # replaced this one.
                pass
            except (aof.AofError, OSError):
                # The log of a store that is taking the place of this one is no damage.
                if not self._is_replaced():
                    raise
        # Start over from the newest checkpoint. This releases the old one, so that the writer may reuse its pages.
        landing.waiting.signal(list(landing.waiting.keys))
        landing.watches.touch(list(landing.watches.keys))
        landing.renew(self.anew(landing))

    def _follow_log(self, tail: Tail, landing: Landing) -> None:
        replay = Replay(partial(self._apply, landing))
        while (stretch := tail.look()) is not None:
            # Skip frames that were applied before: after an interrupt, the tail may give them again.
            replay.run(stretch.path, filter(self._is_new, stretch.frames))
            self._runs_on(landing, stretch.frames[-1][3])
            tail.position = stretch.end

    def _is_new(self, fields: FrameTuple) -> bool:
        return fields[1] >= self.log.next_lsn

    def _apply(self, landing: Landing, records: list[Effect]) -> None:
        if self.observer is not None:
            self.observer(records)
        landing.follow(records)
        self.log.next_lsn += len(records)

    def anew(self, landing: Landing) -> State:
        """Read everything again, from the newest checkpoint. Raises as `read_on`."""
        # Until this method ends, memory and position do not fit together. If it fails, `trouble` makes the next call
        # start over.
        landing.trouble = RELOAD
        self._tail = None
        if self._snapshot:
            self._over_snapshot(landing)
        else:
            while True:
                swap.wait(self._disk, self._root)
                self._uuid = identity.read(self._disk, self._root)
                self._store = self._store_file()
                try:
                    self._over_log(landing)
                    break
                except (aof.AofError, OSError):
                    if not self._is_replaced():
                        raise
        return landing.state

    def _over_log(self, landing: Landing) -> None:
        scan, replay = recovery.read_beside(
            self._disk, self._directory, self._uuid, partial(self._begin, landing)
        )
        if scan is not None:
            self._tail = Tail(self._disk, self._directory, self._uuid, scan.position)
        self._runs_on(landing, replay.now)

    def _runs_on(self, landing: Landing, newest: int) -> None:
        """The log was read as far as the time `newest`."""
        landing.now = max(landing.now, newest)
        opened, wall = self.beneath.opened, landing.time_ns() // 1_000_000
        resumes = resumed(newest, wall, 0 if opened is None else opened.meta.lead)
        if resumes > landing.time_ms():
            landing.run_from(resumes)

    def _is_replaced(self) -> bool:
        """Whether a follower's writer swaps the store now, or has done so since it was read."""
        return self._disk.exists(self._root / identity.SWAP) or not self._is_same()

    def _is_same(self) -> bool:
        """Whether the directory holds the store that was read, and no other has taken its place."""
        return self._store_file() == self._store

    def _store_file(self) -> tuple[int, int]:
        try:
            file = self._disk.open(self._root / identity.NAME)
        except FileNotFoundError:
            return 0, 0  # it is being moved
        try:
            return file.identity()
        finally:
            file.close()

    def _begin(self, landing: Landing) -> tuple[Start | None, Callable[[list[Effect]], object]]:
        """For recovery: open the newest checkpoint. Returns its start and a function that applies records over it."""
        opened = self.beneath.open(self._disk, self._root / identity.CHECKPOINT)
        if opened is not None:
            check_owner(opened.environment.path, opened.meta, self._uuid)
        landing.state = State() if opened is None else opened.state()
        self.log.next_lsn = 1 if opened is None else opened.meta.position.lsn + 1
        return None if opened is None else opened.meta.start, partial(self._apply, landing)

    def _over_snapshot(self, landing: Landing) -> None:
        # here: most stores that are opened are no snapshots
        from tidelog.snapshot import portable

        self.beneath.release()
        self.beneath.opened = opened = portable.open_snapshot(self._disk, self._root)
        landing.state = opened.state()
        self.log.next_lsn = opened.meta.position.lsn + 1
        self._runs_on(landing, opened.meta.now)


class ReadOnlyCore(Core):
    """A core that refuses every write and follows its log on `refresh`."""

    def __init__(self, reading: _Reading, root: Path, clock: Clock) -> None:
        log: Any = reading.log
        super().__init__(log, State(), Settings(), reading.anew, clock, reads_only(READONLY))
        self.landing.expiring = False
        self.root = root
        self.beneath = reading.beneath
        self._reading = reading

    def add(self, db: int, key: bytes, row: tuple[bytes, ...], flush: bool = True) -> Any:
        raise CommandError(READONLY)

    def decided(
        self,
        db: int,
        work: Callable[[Context], Reply],
        caller: Callable[[], Caller] | None = None,
    ) -> Answer:
        raise CommandError(READONLY)

    def observe_records(self, observer: Callable[[list[Effect]], None]) -> None:
        """Let `observer` see the records that `refresh` reads, before they are applied. Only one may be set."""
        self._reading.observer = observer

    def refresh(self) -> int:
        """Apply the part of the log that was not read yet. Returns the last LSN. Raises StoreDamaged, NewerFormat."""
        with self.lock:
            if self.trouble is not None:
                self.mend()
            try:
                self._reading.read_on(self.landing)
            except aof.Damage as error:
                raise StoreDamaged(str(error)) from error
            except aof.NewerFormat as error:
                raise NewerFormat(str(error)) from error
            finally:
                # The records read before an error are applied, so serve the waiters that they signalled.
                if self.waiting.signalled and self.trouble is None:
                    self.waits.serve()
            return self._reading.log.next_lsn - 1


def open_read_only(disk: Disk, root: Path, clock: Clock) -> ReadOnlyCore:
    """Open the store, or the snapshot, in `root`. Raises NotAStore, Damage, NewerFormat, CorruptBlock, OSError."""
    disk.guard(root)
    reading = _Reading(disk, root)
    core = ReadOnlyCore(reading, root, clock)
    layout.check(disk, root)
    try:
        core.landing.renew(reading.anew(core.landing))
        # Measure the pauses that the writer stored from the time of this open.
        core.opened_at = core.landing.time_ms(), clock.monotonic()
    except BaseException:
        reading.beneath.release()
        raise
    keep(core, Keeper(reading.log, None, reading.beneath))
    return core
