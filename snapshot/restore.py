"""Restore: make a store from a snapshot in a directory of its own. The caller may roll it forward through a log.

    1. Refuse everything that can be refused before the target is touched: a damaged manifest, a target that is not
       empty, a log that does not continue the snapshot or does not reach the bound.
    2. Take LOCK and publish RESTORING in the target. From now on, opening the directory raises an error that says so.
    3. Copy data.mdb to checkpoint/, compare its BLAKE2b, and let a child process walk it.
    4. Apply the records behind the snapshot to the copy and fold them into it.
    5. Create aof/ with a first segment at P+1 that has no frame, DURABLE, and last STORE: from here on it is a store.
    6. Remove RESTORING.

If a restore is cut short before the end of step 5, the directory holds RESTORING and no STORE: it cannot be opened, and
restoring into it again starts over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
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
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.effect import Effect
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotRefused
from tidelog.snapshot.folding import fold_into
from tidelog.snapshot.manifest import Manifest, disagreement
from tidelog.snapshot.place import LocalPlace, Place
from tidelog.snapshot.portable import (
    PIECE_BYTES,
    Progress,
    beneath,
    silent,
    walk_or_raise,
)
from tidelog.snapshot.rows.opened import open_copy
from tidelog.snapshot.sealed import read_manifest
from tidelog.snapshot.tail import NO_BOUND, Bound, Tail, follow, last_bytes

UNFINISHED: Final = identity.RESTORING

_OURS: Final = frozenset((UNFINISHED, UNFINISHED + recipe.BESIDE, LOCK)) | identity.ABOUT
_FOLDERS: Final = (CHECKPOINT, identity.AOF)


class Source(NamedTuple):
    """The snapshot that is restored."""

    place: Place
    manifest: Manifest


class Restored(NamedTuple):
    """The store that a restore made.

    path        its directory
    uuid        of the store, the same as the snapshot's
    lsn         its last LSN
    now_ms      time of its newest unit, unix ms
    records     number of records taken from the log behind the snapshot
    bound       the log continues behind `lsn`, and the bound left the rest out
    """

    path: Path
    uuid: bytes
    lsn: int
    now_ms: int
    records: int
    bound: bool


def restore(
    disk: Disk,
    snapshot: Path | Place,
    target: Path,
    *,
    aof: Path | None = None,
    until_lsn: int | None = None,
    until_ms: int | None = None,
    created_ms: int | None = None,
    progress: Progress = silent,
) -> Restored:
    """Make a store with the contents of the snapshot in `target`, a missing or empty directory.

    snapshot    its directory, or its place, which may be a URL; the caller closes a place

    aof         the log to roll forward with: its folder, or its store. If there is only a bound, the log of the store
                that contains the snapshot
    until_lsn   roll forward to the last unit that ends at or before this LSN
    until_ms    roll forward to the last unit that was written at or before this time, unix ms
    created_ms  unix ms; default the wall clock

    With `aof` and no bound, roll forward to the end of that log. Raises SnapshotRefused, NotASnapshot, SnapshotDamaged,
    NewerSnapshot; Damage of the log; OSError.
    """
    with ExitStack() as held:
        if isinstance(snapshot, Path):
            snapshot = held.enter_context(closing(LocalPlace(disk, snapshot)))
        found = Source(snapshot, read_manifest(snapshot))
        disk.guard(target)
        check_target(disk, target)
        held.enter_context(snapshot.hold())
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


def check_bound(snapshot: Source, bound: Bound) -> None:
    """Raise SnapshotRefused if the snapshot already goes beyond the bound."""
    older = "choose an older snapshot"
    manifest = snapshot.manifest
    if bound.lsn < manifest.lsn:
        raise SnapshotRefused(
            f"{snapshot.place.name} holds everything through LSN {manifest.lsn}, which is beyond LSN {bound.lsn}; "
            f"{older}"
        )
    if bound.ms < manifest.now_ms:
        raise SnapshotRefused(
            f"{snapshot.place.name} holds everything up to the Unix time {manifest.now_ms / 1000:.3f}, which is after "
            f"{bound.ms / 1000:.3f}; {older}"
        )


class Plan:
    """How far to follow a log. The constructor reads the log once without applying it.

    Raises what `tail.follow` raises, and SnapshotRefused if the log does not continue the snapshot or does not reach
    the LSN.
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
                f"{error.path}: {error.reason}. Choose a newer snapshot, or use --aof to name a log that continues "
                "this snapshot"
            ) from error
        reached = self.tail.position.lsn
        if bound.lsn != NO_BOUND and not self.tail.bound and reached < bound.lsn:
            raise SnapshotRefused(
                f"the log in {log} ends with LSN {reached}, before LSN {bound.lsn}; choose an LSN up to {reached}"
            )

    def apply(self, start: Start, apply: Callable[[list[Effect]], object]) -> Tail:
        """Follow the log again as far as planned, and apply its records."""
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


def _log_of(disk: Disk, place: Place, aof: Path | None) -> Path:
    """Find the folder of the segments to roll forward with. Raises SnapshotRefused."""
    if aof is not None:
        disk.guard(aof)
        for folder in (aof / identity.AOF, aof):
            if disk.exists(folder):
                return folder
        raise SnapshotRefused(f"{aof}: the directory does not exist")
    if isinstance(place, LocalPlace):
        path = place.path.absolute()
        store = path.parent.parent
        if path.parent.name == SNAPSHOTS and disk.exists(store / identity.AOF):
            disk.guard(store)
            return store / identity.AOF
    raise SnapshotRefused(
        f"{place.name} is not inside a store, so the log that continues it is unknown; name the log with --aof"
    )


def _over_lmdb(
    disk: Disk, snapshot: Source, plan: Plan | None, progress: Progress
) -> Callable[[Path], tuple[Start, int, bool]]:
    """The `settle` argument of `install` for a snapshot: it checks the copy and rolls it forward as planned."""

    def settle(folder: Path) -> tuple[Start, int, bool]:
        real, folder = beneath(disk, folder)
        walk_or_raise(real, folder, progress)
        opened = open_copy(real, folder, write=True)
        try:
            fault = disagreement(snapshot.manifest, opened.meta)
            if fault:
                raise SnapshotDamaged(snapshot.place.name, fault)
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
    """Raise SnapshotRefused unless `target` is missing, empty, or contains a restore that was cut short."""
    try:
        names = disk.listdir(target)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise SnapshotRefused(
            f"{target} is not a directory; name a new or empty directory"
        ) from None
    if identity.NAME in names:
        raise SnapshotRefused(f"{target} contains a store already; name a new or empty directory")
    again = UNFINISHED in names
    strange = set(names) - _OURS - (set(_FOLDERS) if again else set())
    if again:
        strange -= {identity.NAME + recipe.BESIDE}
    if strange:
        raise SnapshotRefused(
            f"{target} is not empty (it contains {min(strange)}); name a new or empty directory"
        )


def install(
    disk: Disk,
    snapshot: Source,
    target: Path,
    settle: Callable[[Path], tuple[Start, int, bool]],
    created_ms: int,
    progress: Progress = silent,
) -> Restored:
    """Run steps 2 to 6.

    `settle(folder)` does what steps 3 and 4 do after the copy: it checks data.mdb in the folder and rolls it forward.
    It returns where the log continues, the number of records taken, and whether a bound ended it.

    Raises SnapshotDamaged, SnapshotRefused, OSError, and whatever `settle` raises.
    """

    def fill(folder: Path) -> tuple[Start, int, bool]:
        _copy(disk, snapshot, folder / DATA, progress)
        return settle(folder)

    maker = Maker("restore", "Restore into it again", snapshot.place.name, tidy=False)
    return make(disk, maker, snapshot.manifest.uuid, target, fill, created_ms)


class Maker(NamedTuple):
    """The command that makes a store.

    name, again, source   for the file RESTORING: its name, the advice after a cut, and where the data comes from
    tidy                  whether to remove what was made if it fails; otherwise it stays until the next attempt
    """

    name: str
    again: str
    source: str
    tidy: bool


def make(
    disk: Disk,
    maker: Maker,
    uuid: bytes,
    target: Path,
    fill: Callable[[Path], tuple[Start, int, bool]],
    created_ms: int,
) -> Restored:
    """Make a store in `target` around a checkpoint that `fill(folder)` puts into its folder: steps 2, 5 and 6.

    `fill` returns where the log continues, the number of records taken, and whether a bound ended it. Raises
    SnapshotRefused, OSError, and whatever `fill` raises; then the directory is not a store, and the same call starts
    over.
    """
    recipe.make_directory(disk, target)
    disk.sync_directory(target.parent)
    try:
        lock = acquire(disk, target, os.getpid())
    except StoreLocked as error:
        holder = "another process" if error.pid is None else f"process {error.pid}"
        raise SnapshotRefused(
            f"{target} is being restored or used by {holder}; name another directory"
        ) from error
    try:
        check_target(disk, target)  # again, now under the lock
        _mark(disk, maker, target)
        _sweep(disk, target)
        folder = target / CHECKPOINT
        recipe.make_directory(disk, folder)
        disk.sync_directory(target)
        try:
            start, records, bound = fill(folder)
        except Exception:
            if maker.tidy:
                _undo(disk, target)
            raise
        disk.sync_directory(folder)
        create_behind(disk, target, uuid, start, created_ms)
        recipe.remove(disk, target / UNFINISHED)
    finally:
        lock.close()
    return Restored(target, uuid, start.lsn, start.now, records, bound)


def _mark(disk: Disk, maker: Maker, target: Path) -> None:
    text = (
        f"tidelog {maker.name}, not finished\nfrom {maker.source}\n"
        f"This directory is not a store yet. {maker.again}, or delete it.\n"
    )
    recipe.publish(disk, target / UNFINISHED, text.encode("utf-8", "surrogateescape"))


def _sweep(disk: Disk, target: Path) -> None:
    """Remove the files of an earlier restore that was cut short."""
    for folder in (target / name for name in _FOLDERS):
        if disk.exists(folder):
            for name in disk.listdir(folder):
                disk.unlink(folder / name)
            disk.sync_directory(folder)


def _undo(disk: Disk, target: Path) -> None:
    """Leave nothing but LOCK, as in a directory that somebody was about to make a store."""
    _sweep(disk, target)
    for folder in (target / name for name in _FOLDERS):
        if disk.exists(folder):
            disk.rmdir(folder)
    recipe.remove(disk, target / UNFINISHED)


def _copy(disk: Disk, snapshot: Source, target: Path, progress: Progress) -> None:
    """Copy the data and compare the copied bytes with the manifest. Raises SnapshotError, OSError."""
    manifest = snapshot.manifest
    beside = disk.create(target.with_name(target.name + recipe.BESIDE))
    try:
        with progress("copying", manifest.data_bytes) as advance:
            found = _copied(snapshot.place, beside, advance)
        if found != (manifest.data_bytes, manifest.blake2b):
            raise SnapshotDamaged(f"{snapshot.place.name}/{DATA}", difference(manifest, *found))
        recipe.publish_open(disk, beside, target)
    finally:
        beside.close()


def _copied(source: Place, target: File, advance: Callable[[int], object]) -> tuple[int, str]:
    total = blake2b(digest_size=manifests.HASH_BYTES)
    offset = 0
    while piece := source.read_at(DATA, offset, PIECE_BYTES):
        target.write(offset, piece)
        total.update(piece)
        offset += len(piece)
        advance(len(piece))
    return offset, total.hexdigest()


def difference(manifest: Manifest, nbytes: int, digest: str) -> str:
    """Describe how the size and hash of data differ from the manifest."""
    if nbytes != manifest.data_bytes:
        return f"the data has {nbytes} bytes, but the manifest says {manifest.data_bytes}"
    return (
        f"the data has the BLAKE2b hash {digest[:16]}..., but the manifest says {manifest.blake2b[:16]}...: the "
        "data was changed"
    )
