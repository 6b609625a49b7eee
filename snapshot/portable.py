"""Snapshots: portable copies of a store at one moment, below its folder snapshots/.

    snapshots/
        00000000000000004711/   a snapshot: data.mdb and manifest.json (snapshot/manifest.py)
        work/                   a snapshot that is being made or deleted; not valid, may be deleted at any time
        fold/                   a copy into which the tail of a log is folded; not valid, may be deleted at any time
        LOCK                    held with flock to make, sweep or prune snapshots; readers do not take it
        FOLLOWERS               which of them were made for followers (snapshot/passing.py)

A snapshot gets its name last: before that everything in it is fsynced, read again past the page cache, walked by a
child process and counted. It loses its name first: deleting begins with a rename to work/. So a directory with a name
of twenty digits was complete once, and the holder of the lock may empty the two other folders.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import AofError
from tidelog.aof.identity import DATA
from tidelog.aof.layout import FOLD, WORK
from tidelog.aof.lock import holder
from tidelog.aof.threads import start
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import NotPlain
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot import passing as spared
from tidelog.snapshot.content import Content, content_of
from tidelog.snapshot.errors import (
    CheckpointError,
    NotASnapshot,
    SnapshotDamaged,
    SnapshotError,
    SnapshotsLocked,
)
from tidelog.snapshot.lease import unleased
from tidelog.snapshot.manifest import Manifest, disagreement, lsn_of
from tidelog.snapshot.rows.environment import ColdRows, Environment
from tidelog.snapshot.rows.meta import read_meta
from tidelog.snapshot.rows.opened import Opened, open_copy
from tidelog.snapshot.walk import WalkFinding, walk

LOCK: Final = "LOCK"
PIECE_BYTES: Final = 1 << 20

WAIT_S = 600.0  # how long to wait for another process's snapshot; after that it counts as stuck
POLL_S: Final = 0.02
_LISTS_MAX: Final = 100  # a list is made anew if a snapshot in it vanishes meanwhile

Waits = Callable[[], bool]
"""`waits()` is asked again and again while another snapshot is waited for; False ends that."""

Advance = Callable[[int], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""`progress(what, bytes)` opens a progress bar; what the context gives is called with each step's bytes."""


class Snapshot(NamedTuple):
    """A snapshot of a store.

    Attributes:
        path: Its directory, for `tidelog.open(path, read_only=True)` and `tidelog snapshot restore`.
        manifest: Its description: when and where it was taken, and what it counts.
        existed: The call that should make it found it already made.
    """

    path: Path
    manifest: Manifest
    existed: bool = False

    @property
    def lsn(self) -> int:
        """The last LSN in the snapshot."""
        return self.manifest.lsn


class Unreadable(NamedTuple):
    """A directory that has the name of a snapshot and cannot be used, and the reason."""

    path: Path
    error: SnapshotError


class Pruned(NamedTuple):
    """The result of a prune.

    deleted   the snapshots that it deleted, or would delete
    kept      the newest ones, which it was told to keep
    left      unreadable ones, which it left alone
    held      old ones that it passed over, because a reader holds a lease of them
    """

    deleted: list[Snapshot]
    kept: list[Snapshot]
    left: list[Unreadable]
    held: list[Snapshot]


def silent(what: str, nbytes: int) -> AbstractContextManager[Advance]:
    """A Progress that shows nothing."""
    return nullcontext(lambda done: None)


def always() -> bool:
    """A Waits that waits until WAIT_S is over."""
    return True


def directory_name(lsn: int) -> str:
    return f"{lsn:020d}"


# --- looking


def snapshots(disk: Disk, directory: Path) -> list[Snapshot | Unreadable]:
    """List the snapshots in `directory`, the folder snapshots/ of a store, oldest first. Reads only the manifests.

    A writer may make and remove snapshots meanwhile. The list has no removed one, and the one that replaces it.
    Raises OSError.
    """
    for _ in range(_LISTS_MAX):
        found = [_listed(disk, path) for path in _paths(disk, directory)]
        gone = [
            each for each in found if isinstance(each, Unreadable) and not disk.exists(each.path)
        ]
        if not gone:
            break
    return [each for each in found if each not in gone]


def _listed(disk: Disk, path: Path) -> Snapshot | Unreadable:
    try:
        return read_snapshot(disk, path)
    except SnapshotError as error:
        return Unreadable(path, error)


def read_snapshot(disk: Disk, path: Path) -> Snapshot:
    """Read one snapshot and make only the quick checks: its manifest, its name, the size of its data.

    Raises NotASnapshot, SnapshotDamaged, NewerSnapshot, OSError.
    """
    disk.guard(path)
    try:
        return _read_snapshot(disk, path)
    except NotPlain as error:
        raise SnapshotDamaged(Path(error.filename), error.what) from None


def _read_snapshot(disk: Disk, path: Path) -> Snapshot:
    manifest = manifests.read(disk, path)
    manifests.check_name(path, manifest)
    data = path / DATA
    try:
        size: int | None = recipe.size(disk, data)
    except FileNotFoundError:
        size = None
    manifests.check_data(data, size, manifest)
    return Snapshot(path, manifest)


def lsns(disk: Disk, directory: Path) -> list[int]:
    """The LSNs of the snapshots in `directory`, judged by name. Raises OSError."""
    return [lsn_of(path.name) or 0 for path in _paths(disk, directory)]


def bytes_of_all(disk: Disk, directory: Path) -> int:
    """Bytes of the data of all snapshots in `directory`. Raises OSError."""
    nbytes = 0
    for path in _paths(disk, directory):
        with suppress(FileNotFoundError):  # somebody deletes it
            nbytes += recipe.size(disk, path / DATA)
    return nbytes


def newest_lsn(disk: Disk, directory: Path) -> int | None:
    """The LSN of the newest snapshot in `directory`, judged by name; None if there is none. Raises OSError."""
    return max(lsns(disk, directory), default=None)


def _paths(disk: Disk, directory: Path) -> list[Path]:
    try:
        names = disk.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [directory / name for name in names if lsn_of(name) is not None]


def open_snapshot(disk: Disk, path: Path) -> Opened:
    """Open the data of a snapshot for a read-only store.

    Only quick checks are made: the manifest, the size of the data, and that both are of the same store and position.
    Each row is checked when it is read. `scrub.verify_snapshot` checks everything. Raises NotASnapshot,
    SnapshotDamaged, NewerSnapshot, DamagedCheckpoint, NewerFormat, CheckpointError, OSError.
    """
    snapshot = read_snapshot(disk, path)
    opened = open_copy(disk, path)
    fault = disagreement(snapshot.manifest, opened.meta)
    if fault:
        opened.close()
        raise SnapshotDamaged(path, fault)
    return opened


# --- changing


def create(
    disk: Disk,
    environment: Environment,
    directory: Path,
    *,
    created_ms: int | None = None,
    progress: Progress = silent,
    passing: bool = False,
    waits: Waits = always,
) -> Snapshot:
    """Publish a copy of a checkpoint in `directory`, the folder snapshots/ of its store.

    passing   it is for a follower: it does not belong to the store, until it is asked for again without this

    If a snapshot of the same LSN exists, return that one. The time is proportional to the size of the checkpoint, which
    is read and written whole; for the store this is one more reader. `created_ms` is unix ms, default the wall clock.
    Raises SnapshotsLocked, CheckpointError, SnapshotDamaged, OSError.
    """
    disk, directory = beneath(disk, directory)
    now_ms = time.time_ns() // 1_000_000 if created_ms is None else created_ms
    with held(disk, directory, waits):
        if not environment.is_in_place():
            raise CheckpointError(
                f"{environment.path}: a copy of the leader's data has replaced the store; repeat the call"
            )
        rows = ColdRows(environment)
        try:
            meta = read_meta(rows, environment.path)
        finally:
            rows.close()
        if meta is not None:
            path = directory / directory_name(meta.position.lsn)
            existing = there(disk, path)
            if not passing:
                spared.take(disk, directory, path)
            if existing is not None:
                return existing

        def copy(folder: Path) -> None:
            copy_of(disk, environment, folder, progress)

        return publish(
            disk,
            directory,
            copy,
            lambda folder: read_all(disk, folder, now_ms, progress),
            now_ms,
            progress,
            passing=passing,
        )


def beneath(disk: Disk, path: Path) -> tuple[Disk, Path]:
    """The real disk and path for LMDB, which opens files by itself. Raises CheckpointError on a disk in memory."""
    place = disk.beneath(path)
    if place is None:
        raise CheckpointError(
            f"{path}: snapshots need a real disk, and this one is simulated in memory"
        )
    return place


def copy_of(disk: Disk, environment: Environment, folder: Path, progress: Progress) -> None:
    """Write a compact copy of a checkpoint into a folder. Raises CheckpointError, OSError.

    LMDB writes to a descriptor. It gets one end of a socket, so that the file itself is written through `disk`.
    """
    file = disk.create(folder / DATA)
    try:
        source, sink = socket.socketpair()
        copier = _Copier(environment, sink)
        try:
            start(copier, "copy the checkpoint")
        except AofError:
            source.close()
            sink.close()
            raise
        try:
            offset = 0
            with progress("copying", environment.size()) as advance:
                while piece := source.recv(PIECE_BYTES):
                    file.write(offset, piece)
                    offset += len(piece)
                    advance(len(piece))
        finally:
            # If writing failed, shut the socket down: the copier then ends with a broken pipe. Closing the socket would
            # not end it if a forked child also holds the socket.
            _shut(source)
            copier.join()
    finally:
        file.close()
    if copier.failure is not None:
        raise copier.failure


class _Copier(threading.Thread):
    """Lets LMDB write its copy into a socket, then closes the socket. `failure` is the exception, if any."""

    def __init__(self, environment: Environment, sink: socket.socket) -> None:
        super().__init__(name="tidelog-copy", daemon=True)
        self.failure: BaseException | None = None
        self._environment, self._sink = environment, sink

    def run(self) -> None:
        try:
            self._environment.copy_to(self._sink.fileno())
        except BaseException as error:
            self.failure = error
        finally:
            _shut(self._sink)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):  # the other end was closed first
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def read_all(disk: Disk, folder: Path, created_ms: int, progress: Progress) -> Content:
    """Walk a copy in a child process, then count its contents. Raises SnapshotDamaged if it is not sound."""
    walk_or_raise(disk, folder, progress)
    return content_of(disk, folder, created_ms)


def walk_or_raise(disk: Disk, folder: Path, progress: Progress) -> None:
    """Let a child process read every row of a copy. Raises SnapshotDamaged with the first finding."""
    findings: list[WalkFinding] = list(walk(disk, folder, progress))
    if findings:
        text = findings[0].text.removeprefix(f"{folder / DATA}: ")
        more = f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""
        raise SnapshotDamaged(folder / DATA, text + more)


def there(disk: Disk, path: Path) -> Snapshot | None:
    """The snapshot at `path`, with `existed` set; None if no snapshot can be read there."""
    try:
        return read_snapshot(disk, path)._replace(existed=True)
    except (NotASnapshot, SnapshotDamaged):
        return None


@contextmanager
def held(disk: Disk, directory: Path, waits: Waits = always) -> Iterator[None]:
    """Hold the lock of the folder snapshots/, which is created if missing, and remove what dead attempts left.

    If another snapshot is being made, in this process or another, wait for it: at most WAIT_S, and only while `waits()`
    is true. Raises SnapshotsLocked, OSError.
    """
    recipe.make_directory(disk, directory)
    disk.sync_directory(directory.parent)
    lock = _lock(disk, directory / LOCK, waits)
    try:
        # the pid is only for people, so a full disk must not stop a prune here
        with suppress(OSError):
            text = b"%d\n" % os.getpid()
            lock.write(0, text)
            lock.truncate(len(text))
        sweep(disk, directory)
        yield
    finally:
        # Sweep now, to free the space at once. If this fails, the next process that takes the lock sweeps.
        with suppress(OSError):
            sweep(disk, directory)
        lock.unlock()
        lock.close()


def _lock(disk: Disk, path: Path, waits: Waits) -> File:
    begun = time.monotonic()
    while True:
        lock = disk.lock(path)
        if lock is not None:
            return lock
        waited = time.monotonic() - begun
        if waited >= WAIT_S or not waits():
            raise SnapshotsLocked(path, holder(disk, path), waited)
        # Poll the lock, because a blocking flock(2) has no timeout and cannot be cancelled.
        time.sleep(POLL_S)


def sweep(disk: Disk, directory: Path) -> None:
    """Empty work/ and fold/. The caller holds the lock. The folders stay for the next attempt."""
    for folder in (directory / WORK, directory / FOLD):
        if disk.exists(folder):
            for name in disk.listdir(folder):
                disk.unlink(folder / name)


def publish(
    disk: Disk,
    directory: Path,
    copy: Callable[[Path], object],
    content: Callable[[Path], Content],
    created_ms: int,
    progress: Progress = silent,
    *,
    passing: bool = False,
) -> Snapshot:
    """Make a snapshot in `directory`, the `held` folder, and give it its name.

    `copy(folder)` writes data.mdb into a folder; `content(folder)` reads every byte of it and returns its contents. If
    a snapshot of the same LSN exists, return that one; a damaged one under that name is replaced. Raises
    SnapshotDamaged if the disk does not return what was written; OSError.
    """
    work = directory / WORK
    if not disk.exists(work):
        disk.mkdir(work)
    copy(work)
    file = disk.open(work / DATA, write=True)
    try:
        file.fsync()
    finally:
        file.close()
    size, digest = hashed(disk, work / DATA, progress, "verifying")
    # `hashed` has dropped the page cache, so this call reads the medium
    found = content(work)
    for name in disk.listdir(work):
        if name != DATA:  # LMDB's lock file
            disk.unlink(work / name)
    final = directory / directory_name(found.position.lsn)
    existing = there(disk, final)
    if existing is not None:
        return existing
    made = Manifest(
        uuid=found.uuid,
        position=found.position,
        epochs=found.epochs,
        now_ms=found.now_ms,
        created_ms=created_ms,
        data_bytes=size,
        blake2b=digest,
        counts=found.counts,
    )
    recipe.publish(disk, work / manifests.NAME, manifests.render(made))
    disk.sync_directory(work)
    if passing:
        spared.add(disk, directory, final)
    if disk.exists(final):  # it is damaged: `there` returned None
        _give_up_name(disk, directory, final, FOLD)
    disk.rename(work, final)
    disk.sync_directory(directory)
    return Snapshot(final, made)


def hashed(disk: Disk, path: Path, progress: Progress, what: str) -> tuple[int, str]:
    """The size in bytes and the BLAKE2b (hex) of a file, read past the page cache. Raises OSError."""
    total = blake2b(digest_size=manifests.HASH_BYTES)
    file = disk.open(path)
    try:
        file.drop_cache()
        offset = 0
        with progress(what, file.size()) as advance:
            while piece := file.pread(PIECE_BYTES, offset):
                total.update(piece)
                offset += len(piece)
                advance(len(piece))
    finally:
        file.close()
    return offset, total.hexdigest()


def prune(
    disk: Disk,
    directory: Path,
    keep: int,
    *,
    dry_run: bool = False,
    passing: Collection[Path] = (),
    waits: Waits = always,
) -> Pruned:
    """Delete all but the newest `keep` snapshots in `directory`. `dry_run`: only return which those are.

    passing   snapshots that are neither counted nor deleted

    Unreadable snapshots are neither counted nor deleted, because one may be the only copy of its data. Snapshots that
    a reader holds (snapshot/lease.py) are not deleted. Raises SnapshotsLocked, OSError.
    """
    assert keep >= 0
    if dry_run or not _paths(disk, directory):
        return _pruned(disk, _to_prune(disk, directory, keep, passing), lambda snapshot: None)

    def delete(snapshot: Snapshot) -> None:
        _give_up_name(disk, directory, snapshot.path, WORK)
        sweep(disk, directory)

    with held(disk, directory, waits):
        return _pruned(disk, _to_prune(disk, directory, keep, passing), delete)


def delete_passing(disk: Disk, directory: Path, path: Path, *, waits: Waits = always) -> bool:
    """Delete the snapshot at `path` if it was made for followers and is still theirs. False: a reader holds it.

    Raises SnapshotsLocked, OSError.
    """
    with held(disk, directory, waits):
        if path.name not in spared.names(disk, directory):
            return True
        if disk.exists(path):
            with unleased(disk, path) as free:
                if not free:
                    return False
                _give_up_name(disk, directory, path, WORK)
        spared.take(disk, directory, path)
        return True


def _pruned(disk: Disk, plan: Pruned, delete: Callable[[Snapshot], object]) -> Pruned:
    """Delete the snapshots of a plan that no reader holds."""
    deleted: list[Snapshot] = []
    passed_over: list[Snapshot] = []
    for snapshot in plan.deleted:
        with unleased(disk, snapshot.path) as free:
            if free:
                delete(snapshot)
        (deleted if free else passed_over).append(snapshot)
    return plan._replace(deleted=deleted, held=passed_over)


def _to_prune(disk: Disk, directory: Path, keep: int, passing: Collection[Path]) -> Pruned:
    found = [item for item in snapshots(disk, directory) if item.path not in passing]
    sound = [item for item in found if isinstance(item, Snapshot)]
    cut = max(len(sound) - keep, 0)
    left = [item for item in found if isinstance(item, Unreadable)]
    return Pruned(sound[:cut], sound[cut:], left, [])


def _give_up_name(disk: Disk, directory: Path, path: Path, folder: str) -> None:
    # A rename replaces an empty folder, so an empty work/ or fold/ need not be removed first.
    disk.rename(path, directory / folder)
    disk.sync_directory(directory)
