"""`tidelog aof repair`: show what can be kept of a damaged log, and write a repaired copy.

The damaged store itself is never changed. The copy keeps everything before the first damage, a prefix of whole units.
If the log begins at LSN 1 the copy is that part of the log, else the checkpoint or a snapshot with the log behind it.
Readable records after the damage are listed, because only a person may decide to lose them. A torn tail is not damage:
the next open removes it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import click

from tidelog.aof import durable, identity, layout, segment
from tidelog.aof.errors import AofError, Damage, DamagedFile, MissingSegment, NewerFormat
from tidelog.aof.reading import recovery
from tidelog.aof.reading.reader import Scan, Segment, belongs_elsewhere, read_header, segment_paths
from tidelog.aof.reading.window import Windows
from tidelog.disk import recipe
from tidelog.engine.effects.as_commands import keys
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.walk import walk
from tidelog.store.errors import TidelogError
from tidelog.tools import console, exits
from tidelog.tools.aof.records import records_of
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.repair import cut
from tidelog.tools.replay import contents
from tidelog.tools.snapshot.facts import progress
from tidelog.tools.text import argument, examples, time_text

KEYS_SHOWN: Final = 20


class Kept(NamedTuple):
    """The part of one segment that goes into the copy: its bytes up to the offset."""

    path: Path
    offset: int


class Plan(NamedTuple):
    """The part of the log that can be kept, and the damage after it (None: there is none)."""

    kept: list[Kept]
    last_lsn: int
    now: int
    damage: Damage | None


def open_files(root: Path) -> tuple[LogFiles, DamagedFile | None]:
    """The log, and the damage of its STORE file if only that file prevents the store from opening.

    The uuid is also in every segment. If no segment can be read, raises what LogFiles raises.
    """
    try:
        return LogFiles(root), None
    except DamagedFile as error:
        files = LogFiles(root, uuid=b"")
        for path in segment_paths(files.disk, files.directory):
            try:
                return LogFiles(root, uuid=read_header(files.disk, path).uuid), error
            except DamagedFile:
                continue
        raise


def plan(files: LogFiles) -> Plan:
    """Read the log up to the first damage."""
    promises = durable.read(files.disk, files.directory, files.uuid)
    try:
        found, damage = headers(files, segment_paths(files.disk, files.directory))
    except MissingSegment as error:
        return Plan([], 0, 0, error)
    kept: list[Kept] = []
    last_lsn = now = 0
    scan: Scan | None = None
    for info in found:
        scan = Scan(files.disk, info, promises, live=True)
        for frame in scan.frames():
            try:
                list(records_of(info.path, frame))
            except Damage as error:
                return Plan([*kept, Kept(info.path, frame.offset)], frame.lsn - 1, now, error)
            now = frame.now
        kept.append(Kept(info.path, scan.offset))
        last_lsn = scan.lsn - 1
        corrupt = scan.error()
        if corrupt is not None:
            return Plan(kept, last_lsn, now, corrupt)
    if damage is None:
        try:
            recovery.check_emptied(files.disk, files.directory, found)
            recovery.check_lives(files.directory, promises, found, scan)
        except MissingSegment as error:
            damage = error
    return Plan(kept, last_lsn, now, damage)


def headers(files: LogFiles, paths: list[Path]) -> tuple[list[Segment], Damage | None]:
    """The segments before the first one with a wrong header, and the damage of that one."""
    found: list[Segment] = []
    for path in paths:
        try:
            header = read_header(files.disk, path)
        except DamagedFile as error:
            return found, error
        first = segment.first_lsn_of(path.name)
        if header.uuid != files.uuid:
            return found, DamagedFile(path, 16, belongs_elsewhere(header))
        if header.first_lsn != first:
            return found, DamagedFile(
                path,
                40,
                f"the header says that the segment begins with LSN {header.first_lsn}, but the file name says {first}",
            )
        if not found and first != 1 and not files.has_checkpoint:
            reason = "the segments before this one are missing"
            return found, MissingSegment(path, 1, header.first_lsn, reason)
        if found:
            found[-1] = found[-1]._replace(end=header.before)
        found.append(Segment(path, header, None))
    return found, None


@click.command(
    help="Show what can be kept of a damaged log; write a repaired copy.",
    epilog=examples(
        "tidelog aof repair orders-data",
        "tidelog aof repair orders-data --to orders-repaired",
    ),
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    help="Write the repaired copy to this new directory.",
)
def command(path: Path, target: Path | None) -> int:
    files, broken_store = open_files(path)
    layout.check(files.disk, files.root)
    found = plan(files)
    broken_checkpoint = checkpoint_fault(files)
    if broken_store is None and found.damage is None and broken_checkpoint is None:
        click.echo(f"{files.root} is not damaged; there is nothing to repair")
        return exits.OK
    for damage in filter(None, (broken_store, found.damage)):
        click.echo(f"damage: {damage.path}, byte {damage.offset}: {damage.reason}")
    if broken_checkpoint is not None:
        click.echo(f"damage: {broken_checkpoint}")
        click.echo("The checkpoint is not part of the repaired copy.")
    elif files.has_checkpoint:
        whole = opens_through(files)
        if whole is not None:
            click.echo(
                f"The checkpoint contains the damaged records, so the store opens with everything through LSN {whole}."
            )
            click.echo("Nothing was written. To get a complete copy without the damage:")
            click.echo(f"  tidelog snapshot create {files.root}")
            click.echo("  tidelog snapshot restore SNAPSHOT NEW-DIRECTORY")
            return exits.DAMAGED
        click.echo(
            "The checkpoint is not part of the repaired copy, although it may contain more records."
        )
    first = int(found.kept[0].path.stem) if found.kept else 1
    if first > 1 or found.last_lsn < first:
        return repair_over_a_base(files, found, target)
    kept = f"LSN {first} to {found.last_lsn}, up to {time_text(found.now)}."
    click.echo(f"Can be kept: {kept}")
    show_lost(files, found)
    if target is None:
        click.echo(
            "Nothing was written. To write a repaired copy, repeat the command with --to NEW-DIRECTORY"
        )
        return exits.DAMAGED
    write_copy(files, found, target)
    click.echo(f"Wrote the repaired copy to {target}; {files.root} was not changed.")
    return exits.OK


def checkpoint_fault(files: LogFiles) -> str | None:
    """The first finding in the checkpoint; None if it is sound, or if there is none."""
    if not files.has_checkpoint:
        return None
    try:
        finding = next(iter(walk(files.disk, files.checkpoint.parent, progress)), None)
    except FileNotFoundError:
        return None  # nothing was committed to it yet
    return None if finding is None else finding.text


def repair_over_a_base(files: LogFiles, found: Plan, target: Path | None) -> int:
    """Repair a log that does not begin at LSN 1: over the checkpoint, or a snapshot."""
    over = cut.plan(files)
    if over is None or not over.lsn:
        click.echo("Nothing before the damage can be kept.")
        return exits.DAMAGED
    now = time_text(over.reach.start.now)
    click.echo(f"Can be kept: LSN 1 to {over.lsn}, up to {now}, over {over.base.name}.")
    show_lost(files, found._replace(last_lsn=over.lsn))
    if target is None:
        click.echo(
            "Nothing was written. To write a repaired copy, repeat the command with --to NEW-DIRECTORY"
        )
        return exits.DAMAGED
    cut.write(files, over, target)
    click.echo(f"Wrote the repaired copy to {target}; {files.root} was not changed.")
    return exits.OK


def opens_through(files: LogFiles) -> int | None:
    """The last LSN of the store if it opens despite the damage in its log; else None. Its checkpoint is sound."""
    try:
        with contents(files) as held:
            return held.last_lsn
    except (AofError, TidelogError, CorruptBlock):
        return None


def show_lost(files: LogFiles, found: Plan) -> None:
    """Print the records after the damage that can still be read."""
    count = 0
    by_key: Counter[bytes] = Counter()
    try:
        for path, item in files.frames_past_damage():
            if isinstance(item, Damage) or item.lsn <= found.last_lsn:
                continue
            try:
                for record in records_of(path, item):
                    count += 1
                    by_key.update(keys(record.effect))
            except (Damage, NewerFormat):
                continue  # the frame is intact, but a record in it is damaged or of an unknown kind
    except Damage as error:
        click.echo(
            f"The records after the damage cannot be listed: {error.path}, byte {error.offset}: {error.reason}"
        )
        return
    if not count:
        click.echo("No record after the damage can be read.")
        return
    click.echo(f"Left out: {count:,} intact records after the damage. To see them:")
    click.echo(f"  tidelog aof dump {files.root} --past-damage --from-lsn {found.last_lsn + 1}")
    rows = [(argument(key), f"{n:,}") for key, n in by_key.most_common(KEYS_SHOWN)]
    console.table(("KEY", "RECORDS"), rows, right="RECORDS")


def write_copy(files: LogFiles, found: Plan, target: Path) -> None:
    """Create a store in `target` with the part that is kept. Its file STORE is written last: without it, the directory
    is not a store.

    It has no DURABLE, because it does not keep the promises of the damaged store.
    """
    if files.disk.exists(target) and files.disk.listdir(target):
        raise click.UsageError(f"{target} is not empty; name a new directory")
    recipe.make_directory(files.disk, target)
    recipe.make_directory(files.disk, target / identity.AOF)
    for path, offset in found.kept:
        windows = Windows(files.disk, path)
        try:
            pieces = windows.pieces(0)
            recipe.publish_pieces(files.disk, target / identity.AOF / path.name, offset, pieces)
        finally:
            windows.close()
    recipe.publish(files.disk, target / identity.NAME, identity.render(files.uuid))
