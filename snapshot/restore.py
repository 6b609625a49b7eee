"""Restore: a snapshot becomes a store in a directory of its own, rolled forward through a log if that is asked for.

    1. What can be refused is refused before the target is touched: a manifest that does not hold, a target that
       is not empty, a log that does not go on from the snapshot or does not reach the bound.
    2. RESTORING appears in the target, and LOCK is held. Whoever opens the directory now is told what it is.
    3. data.mdb is copied to checkpoint/, its BLAKE2b compared, and walked by a child process.
    4. Records behind the snapshot are applied over the copy and folded into it.
    5. aof/ with a first segment at P+1 that has no frame, DURABLE, and last of all STORE: from here on it is a store.
    6. RESTORING goes.

Cut short before the end of 5, the directory holds RESTORING and no STORE: opening it is refused, and restoring into
it again begins anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import identity
from tidelog.aof.errors import DoesNotFit, StoreLocked
from tidelog.aof.identity import CHECKPOINT, DATA, SNAPSHOTS
from tidelog.aof.lock import NAME as LOCK
from tidelog.aof.lock import acquire
from tidelog.aof.start import Start, create_behind
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.engine.apply import applier
from tidelog.engine.effects import Effect
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotRefused
from tidelog.snapshot.folding import fold_into
from tidelog.snapshot.manifest import Manifest
from tidelog.snapshot.opened import open_copy
from tidelog.snapshot.portable import (
    PIECE_BYTES,
    Progress,
    Snapshot,
    beneath,
    disagreement,
    read_snapshot,
    silent,
    walk_or_raise,
)
from tidelog.snapshot.tail import NO_BOUND, Bound, Tail, follow, last_bytes

UNFINISHED: Final = identity.RESTORING

_OURS: Final = frozenset((UNFINISHED, UNFINISHED + recipe.BESIDE, LOCK))
_FOLDERS: Final = (CHECKPOINT, identity.AOF)


class Restored(NamedTuple):
    """The store that a restore made.

    path        its directory
    uuid        the store's, that of the snapshot
    lsn         the last LSN that it holds
    now_ms      time of the newest unit in it
    records     how many were taken from the log, behind the snapshot
    bound       the log goes on behind `lsn`, and what was asked for left that out
    """

    path: Path
    uuid: bytes
    lsn: int
    now_ms: int
    records: int
    bound: bool


def restore(
    disk: Disk,
    snapshot: Path,
    target: Path,
    *,
    aof: Path | None = None,
    until_lsn: int | None = None,
    until_ms: int | None = None,
    created_ms: int | None = None,
    progress: Progress = silent,
) -> Restored:
    """Make `target`, a missing or empty directory, a store that holds what the snapshot does.

    aof         the log to roll forward with: the folder, or the store that it is of. Without it, with a bound,
                that of the store in whose folder the snapshot lies
    until_lsn   up to the last unit that ends at or before it
    until_ms    up to the last unit that was written at or before this moment, unix ms
    created_ms  the present time, if not the clock's

    With `aof` and no bound, to the end of that log. Raises SnapshotRefused, NotASnapshot, SnapshotDamaged,
    NewerSnapshot; Damage of the log; StoreLocked; OSError.
    """
    found = read_snapshot(disk, snapshot)
    disk.guard(target)
    check_target(disk, target)
    plan = None
    if aof is not None or until_lsn is not None or until_ms is not None:
        bound = Bound(
            NO_BOUND if until_lsn is None else until_lsn,
            NO_BOUND if until_ms is None else until_ms,
        )
        check_bound(found, bound)
        plan = Plan(disk, _log_of(disk, snapshot, aof), found.manifest, bound, progress)
    settle = _over_lmdb(disk, found, plan, progress)
    now_ms = time.time_ns() // 1_000_000 if created_ms is None else created_ms
    return install(disk, found, target, settle, now_ms, progress)


def check_bound(snapshot: Snapshot, bound: Bound) -> None:
    """Raise SnapshotRefused if the snapshot holds more than the bound allows."""
    older = "choose an older snapshot"
    manifest = snapshot.manifest
    if bound.lsn < manifest.lsn:
        raise SnapshotRefused(
            f"{snapshot.path} holds everything through LSN {manifest.lsn}, which is beyond {bound.lsn}; {older}"
        )
    if bound.ms < manifest.now_ms:
        raise SnapshotRefused(
            f"{snapshot.path} holds everything up to {manifest.now_ms} ms since 1970, which is after "
            f"{bound.ms}; {older}"
        )


class Plan:
    """How far a log is to be followed, found by reading it once without applying it.

    Raises as `tail.follow`, and SnapshotRefused if the log does not reach the LSN.
    """

    def __init__(
        self, disk: Disk, log: Path, manifest: Manifest, bound: Bound, progress: Progress
    ) -> None:
        self.disk, self.log, self.uuid = disk, log, manifest.uuid
        self._progress = progress
        start = manifest.start
        try:
            self._bytes = last_bytes(disk, log, self.uuid, start)
            self.tail = self._follow("reading the log", start, lambda records: None, bound)
        except DoesNotFit as error:
            raise SnapshotRefused(
                f"{error.path}: {error.reason}. Choose a newer snapshot, or name the log that goes on from "
                "this one with --aof"
            ) from error
        reached = self.tail.position.lsn
        if bound.lsn != NO_BOUND and not self.tail.bound and reached < bound.lsn:
            raise SnapshotRefused(f"the log in {log} ends with LSN {reached}, before {bound.lsn}")

    def apply(self, start: Start, apply: Callable[[list[Effect]], object]) -> Tail:
        """Follow the log again, for real."""
        return self._follow("replaying", start, apply, Bound(lsn=self.tail.position.lsn))

    def _follow(
        self,
        what: str,
        start: Start,
        apply: Callable[[list[Effect]], object],
        bound: Bound,
    ) -> Tail:
        with self._progress(what, self._bytes) as advance:
            return follow(self.disk, self.log, self.uuid, start, apply, bound, advance)


def _log_of(disk: Disk, snapshot: Path, aof: Path | None) -> Path:
    """The folder of the segments to roll forward with. Raises SnapshotRefused."""
    if aof is not None:
        disk.guard(aof)
        for folder in (aof / identity.AOF, aof):
            if disk.exists(folder):
                return folder
        raise SnapshotRefused(f"{aof}: there is no such directory")
    store = snapshot.absolute().parent.parent
    if snapshot.absolute().parent.name != SNAPSHOTS or not disk.exists(store / identity.AOF):
        raise SnapshotRefused(
            f"{snapshot} does not lie in a store, so it is not known which log goes on from it; name it with --aof"
        )
    disk.guard(store)
    return store / identity.AOF


def _over_lmdb(
    disk: Disk, snapshot: Snapshot, plan: Plan | None, progress: Progress
) -> Callable[[Path], tuple[Start, int, bool]]:
    """What `install` calls for the copy: check it, and bring it forward as planned."""

    def settle(folder: Path) -> tuple[Start, int, bool]:
        real, folder = beneath(disk, folder)
        walk_or_raise(real, folder, progress)
        opened = open_copy(real, folder, write=True)
        try:
            fault = disagreement(snapshot.manifest, opened.meta)
            if fault:
                raise SnapshotDamaged(snapshot.path, fault)
            start = opened.meta.start
            if plan is None or plan.tail.position.lsn == start.lsn:
                return start, 0, plan is not None and plan.tail.bound
            state = opened.state()
            tail = plan.apply(start, applier(state))
            fold_into(real, folder, state, opened.meta.uuid, tail.start)
            return tail.start, tail.records, plan.tail.bound
        finally:
            opened.close()

    return settle


# --- the target


def check_target(disk: Disk, target: Path) -> None:
    """Raise SnapshotRefused unless `target` is missing, empty, or holds a restore that was cut short."""
    try:
        names = disk.listdir(target)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise SnapshotRefused(f"{target} is no directory; name a missing or empty one") from None
    if identity.NAME in names:
        raise SnapshotRefused(f"{target} holds a store already; name a missing or empty directory")
    again = UNFINISHED in names
    strange = set(names) - _OURS - (set(_FOLDERS) if again else set())
    if again:
        strange -= {identity.NAME + recipe.BESIDE}
    if strange:
        raise SnapshotRefused(
            f"{target} is not empty (it holds {min(strange)}); name a missing or empty directory"
        )


def install(
    disk: Disk,
    snapshot: Snapshot,
    target: Path,
    settle: Callable[[Path], tuple[Start, int, bool]],
    created_ms: int,
    progress: Progress = silent,
) -> Restored:
    """Steps 2 to 6. `settle(folder)` is steps 3 and 4 behind the copy: it checks data.mdb in a folder, and
    brings it forward; it returns where the log goes on, the records taken and whether a bound ended it.

    Raises SnapshotDamaged, SnapshotRefused, StoreLocked, OSError, and what `settle` does.
    """
    recipe.make_directory(disk, target)
    disk.sync_directory(target.parent)
    try:
        lock = acquire(disk, target, os.getpid())
    except StoreLocked as error:
        holder = "another process" if error.pid is None else f"process {error.pid}"
        raise SnapshotRefused(f"{target} is being restored or used by {holder}") from error
    try:
        check_target(disk, target)  # again, with nobody beside us
        _mark(disk, snapshot, target)
        _sweep(disk, target)
        folder = target / CHECKPOINT
        recipe.make_directory(disk, folder)
        _copy(disk, snapshot, folder / DATA, progress)
        disk.sync_directory(target)
        start, records, bound = settle(folder)
        disk.sync_directory(folder)
        create_behind(disk, target, snapshot.manifest.uuid, start, created_ms)
        recipe.remove(disk, target / UNFINISHED)
    finally:
        lock.close()
    return Restored(target, snapshot.manifest.uuid, start.lsn, start.now, records, bound)


def _mark(disk: Disk, snapshot: Snapshot, target: Path) -> None:
    text = (
        "tidelog restore, not finished\n"
        f"from {snapshot.path}\n"
        "This directory is no store yet. Restore into it again, or remove it.\n"
    )
    recipe.publish(disk, target / UNFINISHED, text.encode("utf-8", "surrogateescape"))


def _sweep(disk: Disk, target: Path) -> None:
    """Take away what an earlier restore left below a target that says it was never finished."""
    for folder in (target / name for name in _FOLDERS):
        if disk.exists(folder):
            for name in disk.listdir(folder):
                disk.unlink(folder / name)
            disk.sync_directory(folder)


def _copy(disk: Disk, snapshot: Snapshot, target: Path, progress: Progress) -> None:
    """Copy the data, comparing what is copied with the manifest. Raises SnapshotDamaged, OSError."""
    manifest = snapshot.manifest
    source = disk.open(snapshot.path / DATA)
    try:
        beside = disk.create(target.with_name(target.name + recipe.BESIDE))
        try:
            with progress("copying", manifest.data_bytes) as advance:
                found = _copied(source, beside, advance)
            if found != (manifest.data_bytes, manifest.blake2b):
                raise SnapshotDamaged(snapshot.path / DATA, difference(manifest, *found))
            recipe.publish_open(disk, beside, target)
        finally:
            beside.close()
    finally:
        source.close()


def _copied(source: File, target: File, advance: Callable[[int], object]) -> tuple[int, str]:
    total = blake2b(digest_size=manifests.HASH_BYTES)
    offset = 0
    while piece := source.pread(PIECE_BYTES, offset):
        target.write(offset, piece)
        total.update(piece)
        offset += len(piece)
        advance(len(piece))
    return offset, total.hexdigest()


def difference(manifest: Manifest, nbytes: int, digest: str) -> str:
    """How data of this size and hash differs from what the manifest says."""
    if nbytes != manifest.data_bytes:
        return f"{nbytes} bytes, and the manifest says {manifest.data_bytes}"
    return f"its BLAKE2b is {digest[:16]}..., and the manifest says {manifest.blake2b[:16]}...: it was changed"
