"""Opening: lock the directory, recover, and return a core. Also rebuilds the memory after a call that broke halfway.

A directory that holds anything else is refused and left unchanged. The options of an open are not stored.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import shlex
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidelog.aof import errors as aof
from tidelog.aof import identity, layout, segment
from tidelog.aof.epochs import first_number, generation
from tidelog.aof.lock import acquire
from tidelog.aof.log import Log, Policy
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import Epoch
from tidelog.aof.reading.recovery import Recovered
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.disk.real import RealDisk
from tidelog.engine.api import APPLY, Effect, Settings, State, applier
from tidelog.engine.errors import CorruptBlock
from tidelog.resp.urls import shown
from tidelog.snapshot import swap
from tidelog.snapshot.errors import ADVICE as CHECKPOINT_ADVICE
from tidelog.snapshot.errors import NewerSnapshot, NotASnapshot, SnapshotDamaged
from tidelog.store.checkpoints import Checkpoints
from tidelog.store.clock import KEPT_MS, SET_MS, Clock, resumed
from tidelog.store.commit.core import Core
from tidelog.store.commit.landing import SUSPENDED, Landing
from tidelog.store.directory import is_snapshot
from tidelog.store.errors import (
    CannotOpen,
    DataError,
    NewerFormat,
    NotAStore,
    OfParent,
    StoreDamaged,
    StoreLocked,
    StorePoisoned,
)
from tidelog.store.lifetime import Keeper, keep
from tidelog.store.options import (
    Options,
)
from tidelog.store.role import ALONE
from tidelog.store.roles import Roles

AnyPath = str | os.PathLike[str]
LOCK_LOOK_S = 0.01  # pause between two attempts to take LOCK

of_parent: Path | None = (
    None  # in a process of a run: the store that the process of the run has open
)

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_logger = logging.getLogger("tidelog")

# Advice for errors of the operating system.
ADVICE = {
    errno.EACCES: "this user may not write to the directory; to read it, use read_only=True",
    errno.EROFS: "the file system is read-only; to read a store on it, use read_only=True",
    errno.ENOENT: "create the parent directory first",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EEXIST: "the path exists and is not a directory; perhaps it is a broken symbolic link",
    errno.EISDIR: "a directory has the name of a file of the store; move it away",
    errno.ENOSPC: "free some space and open it again",
    errno.EDQUOT: "free some space and open it again",
}


def open_core(
    path: AnyPath,
    options: Options,
    disk: Disk | None,
    clock: Clock,
    lock_timeout: float = 0.0,
    *,
    served: bool = False,
) -> Core:
    """Open the core that the faces use; see api/opening.py. `served`: a server opens it, and perhaps creates it."""
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise DataError(f"{name!r} cannot be the path of a directory")
    if is_url(path):
        raise DataError(
            f"{shown(name)!r} is a URL, and open takes the path of a directory; use tidelog.connect for a server"
        )
    root = Path(name).absolute()
    refuse_parents(root)
    disk = disk or RealDisk()
    disk.guard(root)
    with _explained(root, options.read_only):
        if options.read_only:
            # imported here: a writer does not need it
            from tidelog.store.read_only import open_read_only

            return open_read_only(disk, root, clock)
        return _open(disk, root, options, clock, lock_timeout, served)


def refuse_parents(root: Path) -> None:
    """Raise OfParent in a process of a run, if the process of the run has this store open."""
    if of_parent is not None and os.path.realpath(root) == os.path.realpath(of_parent):
        raise OfParent(
            f"{root} is open in the process whose run this process works for. A handler reaches it by job.store; what "
            'opens a store when the program is imported belongs under if __name__ == "__main__":',
            os.getppid(),
        )


def is_url(path: AnyPath) -> bool:
    """Whether this is a URL and no path of a directory."""
    return isinstance(path, str) and _URL.match(path) is not None


def is_new(path: AnyPath) -> bool:
    """Whether an open would create the store. Raises CannotOpen and its subclasses if the directory cannot be read."""
    root = Path(os.fsdecode(path)).absolute()
    with _explained(root, False):
        return identity.is_new(RealDisk(), root)


def was_served(path: AnyPath) -> bool:
    """Whether a server has created the store, and not an earlier version or a program. Raises as `is_new`."""
    root = Path(os.fsdecode(path)).absolute()
    with _explained(root, False):
        return identity.look(RealDisk(), root).served


@contextmanager
def _explained(root: Path, read_only: bool) -> Iterator[None]:
    """Turn the errors of an open into those of store/errors.py."""
    try:
        yield
    except aof.StoreLocked as error:
        raise StoreLocked(str(error), error.pid) from error
    except (aof.NotAStore, NotASnapshot) as error:
        raise NotAStore(str(error)) from error
    except (aof.NewerFormat, NewerSnapshot) as error:
        raise NewerFormat(str(error)) from error
    except SnapshotDamaged as error:
        raise StoreDamaged(str(error)) from error
    except aof.Damage as error:
        raise StoreDamaged(str(error)) from error
    except CorruptBlock as error:
        raise StoreDamaged(f"{error}. {CHECKPOINT_ADVICE}") from error
    except aof.AofError as error:
        raise CannotOpen(str(error)) from error
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, "no stored data was changed")
        if read_only and error.errno in (errno.EACCES, errno.EROFS):
            advice = "this user may not read the directory"
        raise CannotOpen(
            f"{error.filename or root}: {error.strerror or error}; {advice}"
        ) from error


def _locked(disk: Disk, root: Path, seconds: float) -> File:
    """The lock of the store. Waits so long for another process to release it. Raises as `acquire`."""
    until = time.monotonic() + seconds
    while True:
        try:
            return acquire(disk, root, os.getpid())
        except aof.StoreLocked:
            if time.monotonic() >= until:
                raise
        # flock can wait, but not for a time, and nothing else tells that the lock was released.
        time.sleep(LOCK_LOOK_S)


def _open(
    disk: Disk, root: Path, options: Options, clock: Clock, lock_timeout: float, served: bool
) -> Core:
    if identity.is_new(disk, root):
        recipe.make_directory(disk, root)
    elif is_snapshot(disk, root):
        raise CannotOpen(
            f"{root} is a snapshot. Open it with read_only=True, or restore it into a new store: {aof.RESTORE}"
        )
    else:
        try:
            # check before LOCK is created, because the directory may not be a store
            identity.read(disk, root)
        except (aof.AofError, OSError):
            if swap.pending(disk, root) is None:
                raise
    layout.check(disk, root)
    lock = _locked(disk, root, lock_timeout)
    try:
        swap.finish(disk, root)
        if identity.is_new(disk, root):
            identity.create(disk, root, secrets.token_bytes(16), served=served, new=True)
        return _Opener(disk, root, options, clock).open(lock)
    except BaseException:
        lock.close()
        raise


def _shown(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat()


class _Opener:
    """Opens a store, and replaces its log when the end of the log is in doubt or the store's role changes."""

    def __init__(self, disk: Disk, root: Path, options: Options, clock: Clock) -> None:
        self._disk, self._root, self._options = disk, root, options
        self._clock = clock
        self._identity = identity.look(disk, root)
        self._roles = Roles(disk, root, self)
        self._checkpoints = Checkpoints(disk, root, self._identity, options)
        self._core: Callable[[], Core | None] = lambda: None
        self._retired: Log | None = None

    def open(self, lock: Any) -> Core:
        """Recover and start. The lock file is released when the store ends."""
        try:
            policy: Policy = self._options.fsync  # type: ignore[assignment]  # it was checked
            log, state = self._recover(policy, None)
            core = Core(log, state, Settings(), self.rebuild, self._clock)
        except BaseException:
            self._checkpoints.release()
            raise
        core.root = self._root
        self._core = weakref.ref(core)
        self._checkpoints.attend(core)
        self._checkpoints.clear_passing()
        self._roles.attend(core)
        self._say_way_back()
        if not self._roles.role.follows:
            self._say_lead(core)
            swap.clear(self._disk, self._root)  # a promotion may have ended a resync
        self._keeper = Keeper(log, lock, self._checkpoints)
        keep(core, self._keeper)
        return core

    def rebuild(self, landing: Landing) -> State:
        """[lock] Build a new state from checkpoint and log, because memory may be ahead of them.

        If the log is sound, the units gathered by others are written first and the log stays in use. If a write broke
        off, only recovery can find the log's end, and a new life begins. Raises AofError, OSError, CorruptBlock.
        """
        log = landing.log
        if log.failure is None and log is not self._retired:
            try:
                log.flush()
                state = self._read()
                self._roles.settle()  # an interrupt may have struck a change of the role after its last step in the log
                return state
            except aof.LogPoisoned:
                pass
        if not log.in_doubt and log is not self._retired:
            raise StorePoisoned("the log failed; close the store and open it again")
        # Set `_retired` before retiring the log. An interrupt may come anywhere below, and then the next call starts
        # here again.
        self.retiring(log)
        log.retire()
        swap.finish(self._disk, self._root)
        self.own()
        self._checkpoints.reopen()
        self._roles.read()
        new, state = self._recover(log.policy, landing.lock)
        self._put_in_place(landing, new)
        self._roles.settle()
        return state

    # --- for changes of the role

    def retiring(self, log: Log) -> None:
        """[lock] The log is about to end. Until `replace` returns, a rebuild recovers from what is on the disk."""
        self._retired = log

    def replace(self, landing: Landing, end: Recovered) -> None:
        """[lock] Go on after `end`, the end of the log in use, with another log in the role that the store has now."""
        log = landing.log
        end = end._replace(epochs=self._checkpoints.epochs)
        self._put_in_place(landing, self._log(end, log.policy, landing.lock))

    def own(self) -> None:
        """[lock] STORE may say something else from now on. Raises as `identity.look`."""
        self._identity = identity.look(self._disk, self._root)
        self._checkpoints.own(self._identity)

    @property
    def uuid(self) -> bytes:
        return self._identity.uuid

    # --- the log

    def _recover(self, policy: Policy, lock: Any) -> tuple[Log, State]:
        state, start = self._checkpoints.begin()
        recovered = recovery.recover(self._disk, self._root, self.uuid, applier(state), start)
        if recovered.role == segment.FOLLOWER and self._roles.role == ALONE:
            _logger.warning(
                "%s was a follower, and the file %s that says whom it follows is missing, so it leads now. If its "
                "leader goes on, both will have records that the other one lacks: let this store follow it (REPLICAOF, "
                "or tidelog.follow) before anything is written here",
                *(self._root, layout.REPLICA),
            )
        self._checkpoints.epochs = list(recovered.epochs)
        if lock is None and not self._roles.role.follows:
            # Time goes on while a store is closed, also that of one whose time leads the wall clock.
            wall, meta = self._clock.time_ns() // 1_000_000, self._checkpoints.meta
            lead = 0 if meta is None else meta.lead
            recovered = recovered._replace(now=resumed(recovered.now, wall, lead))
        return self._log(recovered, policy, lock), state

    def _say_way_back(self) -> None:
        """Say once, before this version writes to a store of an earlier one, what may keep that one from opening it."""
        if self._identity.is_earlier:
            _logger.warning(
                "%s comes from tidelog 0.1, which cannot open it any more once this version has written one of these: "
                "a dedup ID that is freed or held (cancel, purge, forget, or put with dedup=), or XADD with IDMP in a "
                "stream whose IDs are ahead of the clock. To be able to go back, make a snapshot now, and copy it "
                "elsewhere: tidelog snapshot create %s (docs/guides/upgrading.md)",
                *(self._root, shlex.quote(str(self._root))),
            )
            with suppress(OSError):  # a full disk: then the next open says it again
                identity.adopt(self._disk, self._root, self._identity)

    def _say_lead(self, core: Core) -> None:
        wall, store = self._clock.time_ns() // 1_000_000, core.landing.time_ms()
        lead = core.clocks().lead
        if wall < SET_MS and store - wall >= KEPT_MS:
            _logger.warning(
                "this machine's clock shows %s, so it is not set. Until it is, the time of %s goes on from %s",
                *(_shown(wall), self._root, _shown(store)),
            )
        elif lead >= KEPT_MS:
            _logger.warning(
                "the time of %s is %s ahead of this machine's clock: the clock was ahead once, or is behind now. The "
                "store's time never goes back, and runs on: new IDs, and delays, ttl, retries and expiry, go by it. "
                "at=, cron expressions and intervals go by the machine's clock",
                *(self._root, timedelta(seconds=lead // 1000)),
            )

    def _log(self, end: Recovered, policy: Policy, lock: Any) -> Log:
        """A log that continues after `end`, in the store's role."""
        last = end.epochs[-1].number if end.epochs else 0
        role = self._roles.role
        behind = generation(last) < role.generation
        return Log(
            self._disk,
            self._root,
            self.uuid,
            end,
            lock=lock,
            began=self._began,
            begins=self._checkpoints.get_ready,
            role=segment.FOLLOWER if role.follows else segment.LEADER,
            epoch=first_number(role.generation) if behind else last + 1,
            clock=self._now_ms,
            policy=policy,
            segment_bytes=self._options.segment_bytes,
        )

    def _now_ms(self) -> int:
        """The time for the log, in a follower the leader's."""
        core = self._core()
        if core is not None:
            following = core.following
            return core.landing.time_ms() if following is None else following.time_ns() // 1_000_000
        return 0 if self._roles.role.follows else self._clock.time_ns() // 1_000_000

    def _put_in_place(self, landing: Landing, log: Log) -> None:
        log.on_sync = landing.log.on_sync
        core = self._core()
        if core is not None and core.durability.relief is not None:
            log.press(True)
        if core is not None and core.refusal is SUSPENDED:
            log.suspend(True)
        self._keeper.log = log
        landing.log = log

    def _read(self) -> State:
        state, start = self._checkpoints.begin()
        directory = self._root / identity.AOF
        _, replay = recovery.read_all(self._disk, directory, self.uuid, applier(state), start=start)
        self._checkpoints.epochs = list(replay.epochs)
        return state

    def _began(self, effect: Effect) -> None:
        # The log's threads outlive the last reference to a store. They must not keep the core alive, so refer to it
        # weakly.
        core = self._core()
        if core is not None:
            APPLY[effect[0]](core.state, effect)
            self._checkpoints.lived(Epoch(effect[1], effect[2], core.log.written_lsn))
