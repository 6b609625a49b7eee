"""Writing: the repaired copy, in a new directory. Nothing in the damaged store is changed.

1. Copy the data of the base into checkpoint/ of the copy, apply the records up to the planned end to it, and fold
   them in. So the copy opens without a replay. A store without a checkpoint, whose log begins with LSN 1, gets none.
2. Write aof/: the undamaged segments that lead to the end, cut there, so that the copy still tells its history;
   without any, a first segment behind the end that has no frame.
3. Write STORE. Until then, the target is not a store.
4. Open the copy and compare its digest with the one that was promised. If it differs, remove STORE.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import click

from tidelog.aof import identity, segment
from tidelog.aof.errors import AofError
from tidelog.aof.reading.window import Windows
from tidelog.aof.start import create_behind
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.plain import Kind
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import State
from tidelog.snapshot.folding import fold_into
from tidelog.snapshot.portable import copy_of
from tidelog.snapshot.rows.environment import open_environment
from tidelog.snapshot.rows.opened import open_copy
from tidelog.tools import exits
from tidelog.tools.failed import Failed
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.repair.look import Part
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.plan import Plan
from tidelog.tools.repair.reach import follow
from tidelog.tools.repair.salvage import salvage
from tidelog.tools.replay import contents
from tidelog.tools.snapshot.facts import progress


class RepairFailed(Failed):
    """The result is not what was promised."""

    exit_code = exits.DAMAGED


def write(files: MendedFiles, found: Plan, target: Path, *, uuid: bytes | None = None) -> None:
    """Make the copy in `target`, a missing or empty directory. `uuid`: of the copy, by default that of the store.

    Raises click.UsageError, RepairFailed, OSError; then the directory is missing or empty again, unless the disk does
    not let us.
    """
    disk = files.disk
    was_there = disk.exists(target)
    if was_there and not identity.ABOUT.issuperset(disk.listdir(target)):
        raise click.UsageError(f"{target} is not empty; name a new directory")
    recipe.make_directory(disk, target)
    try:
        _write(files, found, target, files.uuid if uuid is None else uuid)
    except (OSError, RepairFailed):
        with suppress(OSError):
            for name in set(disk.listdir(target)) - identity.ABOUT:
                _remove(disk, target / name)
            if not was_there:
                disk.rmdir(target)
        raise
    check(disk, target, found)


def _remove(disk: Disk, path: Path) -> None:
    if disk.kind(path) is Kind.DIRECTORY:
        recipe.remove_tree(disk, path)
    else:
        disk.unlink(path)


def _write(files: MendedFiles, found: Plan, target: Path, uuid: bytes) -> None:
    disk = files.disk
    if found.base.folder is not None or files.has_checkpoint or not found.run:
        folder = target / identity.CHECKPOINT
        recipe.make_directory(disk, folder)
        _copy_base(disk, found, folder)
        bring_forward(files, found, folder, uuid)
    if not found.run:
        now = time.time_ns() // 1_000_000
        create_behind(disk, target, uuid, found.end, now)
        return
    recipe.make_directory(disk, target / identity.AOF)
    for part in found.run:
        _copy_segment(disk, part, found, target / identity.AOF)
    identity.create(disk, target, uuid)


def _copy_base(disk: Disk, found: Plan, folder: Path) -> None:
    if found.base.folder is None:
        return
    with closing(open_environment(disk, found.base.folder, read_only=True)) as environment:
        copy_of(disk, environment, folder, progress)


def bring_forward(files: MendedFiles, found: Plan, folder: Path, uuid: bytes) -> None:
    """Fold the log up to the end of the plan into the checkpoint in `folder`, which holds the base of the plan."""
    with ExitStack() as held:
        if found.base.folder is None:
            state, start = State(), found.base.start
        else:
            opened = open_copy(files.disk, folder, write=True)
            held.callback(opened.close)
            state, start = opened.state(), opened.meta.start
        reach = follow(files, start, state, found.lsn)
        if reach.start.lsn != found.lsn:
            raise RepairFailed(
                f"the store changed while it was repaired: it ends with LSN {reach.start.lsn}, not {found.lsn}. "
                "Close the store and repeat the command"
            )
        behind = found.end
        if found.salvaged is not None:
            now = salvage(files, state, found.lsn).now
            behind = behind._replace(now=max(now, behind.now))
        fold_into(files.disk, folder, state, uuid, behind)


def _copy_segment(disk: Disk, part: Part, found: Plan, directory: Path) -> None:
    is_last = part is found.run[-1]
    size = found.end.offset if is_last else part.end.offset
    path = directory / segment.file_name(part.header.first_lsn)
    with closing(Windows(disk, part.info.path)) as windows:
        recipe.publish_pieces(disk, path, size, _pieces(part, windows))


def _pieces(part: Part, windows: Windows) -> Iterator[tuple[int, bytes]]:
    yield 0, part.header.pack()
    yield from windows.pieces(segment.HEADER_BYTES)


def check(disk: Disk, target: Path, found: Plan) -> None:
    """Open the copy and compare its digest. Raises RepairFailed, and takes its STORE away, if it differs."""
    if not is_as_promised(disk, target, found):
        recipe.remove(disk, target / identity.NAME)
        raise RepairFailed(
            f"{target} does not hold what was promised, so its file STORE was removed. Keep both directories and "
            "report this"
        )


def is_as_promised(disk: Disk, root: Path, found: Plan) -> bool:
    """Whether the store in `root` opens with the digest and the last LSN of the plan."""
    try:
        with contents(LogFiles(root, disk=disk)) as held:
            return (digest(held.state), held.last_lsn) == (found.digest, found.lsn)
    except (AofError, CorruptBlock):
        return False
