"""Export: the tables of a snapshot as files in a directory or at a URL.

The driver plans tasks, a runner runs them (spark/exports/run.py), and the driver seals the result. An export that was
interrupted goes on when the same command is run again. Until it is sealed, no reader takes it for an export.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple

from tidelog.snapshot.sealed import Sealed
from tidelog.spark.exports import seal
from tidelog.spark.exports.files import ENTRIES
from tidelog.spark.exports.plan import Plan
from tidelog.spark.exports.request import Request, check_base, checked, refused
from tidelog.spark.exports.run import Runner, in_processes
from tidelog.spark.exports.seal import Seal, read_export
from tidelog.spark.exports.target import CLAIM, LOCK, Target, put, target_of, telling
from tidelog.spark.exports.task import record_name, recorded
from tidelog.spark.source.batch import snapshots

PLAN: Final = "_plan.json"
# Names that only an export gives: of files whose writer was killed, and of the files of tasks.
UNPUBLISHED: Final = re.compile(r"(.*/)?\.[^/]+\.[0-9a-f]{8}\.new")
PART: Final = re.compile(r"[a-z]+/(.*/)?part-\d{5,}(-\d+)?\.[a-z]+")

Advance = Callable[[int], object]
Progress = Callable[[str, int], AbstractContextManager[Advance]]


class Exported(NamedTuple):
    """A finished export.

    Attributes:
        path: The directory or URL.
        seal: Its description.
        existed: It had been exported before; nothing was written.
        kept: Tasks of an interrupted export whose files were kept.
    """

    path: str
    seal: Seal
    existed: bool = False
    kept: int = 0


def silent(what: str, total: int) -> AbstractContextManager[Advance]:
    """A Progress that shows nothing."""
    return nullcontext(lambda done: None)


def export(
    snapshot: str,
    to: str,
    *,
    tables: Sequence[str] = (ENTRIES,),
    since: str | None = None,
    options: Mapping[str, str] = {},
    format: str = "parquet",
    partition_by: Sequence[str] = (),
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Exported:
    """Export tables of a snapshot.

    Args:
        snapshot: Path or URL of a snapshot, or of a store, whose newest snapshot is taken (option `snapshot`).
        to: A directory or URL that is empty, or has the same export unfinished.
        tables: Names of tables.
        since: An earlier export of the same store: only what was added and removed since is written.
        options: As of the batch source: `db`, `streams`, `streamsPattern`, `columns`, `fields` and so on.
        format: "parquet", "csv", "json" or "orc".
        partition_by: Any of "stream" and "date", for folders of `entries`.
        runner: Runs the tasks; by default processes of this machine.

    Raises:
        TidelogSparkError: The text says what is wrong, where, and what to do.
    """
    request = checked(snapshot, to, tables, since, options, format, partition_by)
    base = None if since is None else read_export(since)
    sparing = base is not None  # an incremental export reads the index, and the blocks that changed
    with snapshots.opened(request.snapshot, sparing=sparing) as sealed, telling(to):
        if base is not None:
            check_base(base, request, sealed)
        target = target_of(to)
        identity = request.identity(sealed, base)
        done = _existing(target, to, identity)
        if done is not None:
            target.sync()  # the process that made it may have been killed before it synced
            return Exported(target.name, done, existed=True)
        with target.locked(identity):
            done = _existing(target, to, identity)  # another process may have made it meanwhile
            if done is not None:
                return Exported(target.name, done, existed=True)
            _begin(target, identity, request, sealed)
            plan = Plan(request, identity, target, sealed, base)
            tasks, written = plan.tasks()
            kept = {task.number: recorded(target, task) for task in tasks}
            missing = [task for task in tasks if kept[task.number] is None]
            with progress("exporting", len(tasks)) as advance:
                advance(len(tasks) - len(missing))
                made = (runner or in_processes())(missing, advance) if missing else []
            kept.update(zip((task.number for task in missing), made))
            for task in tasks:
                written += kept[task.number] or []
            # At a URL, another process may have made the same export meanwhile, with the same files.
            done = _existing(target, to, identity)
            made_seal = done or plan.seal(written)
            _clean(target, made_seal)
            if done is None:
                made_seal = seal.publish(target, made_seal)
            for name in (PLAN, *(record_name(task.number) for task in tasks)):
                target.remove(name)
        return Exported(target.name, made_seal, done is not None, kept=len(tasks) - len(missing))


def _existing(target: Target, to: str, identity: str) -> Seal | None:
    """The seal if this very export exists. Raises TidelogSparkError if something else does."""
    found = target.files()
    if seal.NAME in found:
        there = read_export(to).seal
        if there.plan == identity:
            return there
        raise refused(
            f"{target.name} holds another export, of LSN {there.snapshot.position.lsn}; give another directory"
        )
    if PLAN in found:
        try:
            begun = json.loads(target.read(PLAN))
            same, what = begun["plan"] == identity, begun["what"]
        except (ValueError, KeyError, TypeError):
            same, what = False, "the file that names it is damaged"
        if not same:
            raise refused(
                f"{target.name} holds an unfinished export of other content ({what}). Repeat the command that began "
                "it, or delete the directory"
            )
        return None
    strange = sorted(
        name
        for name in found
        if name != LOCK and not UNPUBLISHED.fullmatch(name) and not CLAIM.fullmatch(name)
    )
    if strange:
        raise refused(
            f"{target.name} is not empty: it contains {strange[0]}, which is not part of an export. "
            "Give another directory"
        )
    return None


def _begin(target: Target, identity: str, request: Request, sealed: Sealed) -> None:
    what = f"LSN {sealed.manifest.lsn} of {sealed.place.name}, tables {', '.join(request.tables)}"
    put(target, PLAN, json.dumps({"plan": identity, "what": what}).encode())


def _clean(target: Target, made: Seal) -> None:
    """Remove what killed attempts left, and check what is there. Raises TidelogSparkError."""
    found = target.files()
    wanted = {file.name: file.nbytes for file in made.files}
    wrong = sorted(name for name, nbytes in wanted.items() if found.get(name) != nbytes)
    if wrong:
        raise refused(
            f"{target.name}: the file {wrong[0]} was changed or removed while the export was made. Run the same "
            "command again"
        )
    for name in found:
        left = UNPUBLISHED.fullmatch(name) or CLAIM.fullmatch(name)
        if left or (PART.fullmatch(name) and name not in wanted):
            target.remove(name)
