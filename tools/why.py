"""`tidelog why`: the life of one entry, from the log: added, delivered, claimed, acknowledged, trimmed, deleted.

The log is replayed in memory from the oldest base that it continues, since a trim does not name what it removes: only
a state knows. For a job of a queue the records of the queue's helper streams are told in the queue's own words. Each
ID of a delayed or a dead job leads to its whole life; the later ones are only known when the replay comes to them, so
for these the replay begins once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import starmap
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from tidelog.aof.errors import Damage, NewerRecord
from tidelog.aof.reading.reader import FrameTuple, Replay, Scan
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.as_commands import commands
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.ids import MAX, parse, parse_or_none
from tidelog.engine.keys.state import State
from tidelog.engine.streams import reading
from tidelog.engine.streams.stream import Stream
from tidelog.jobs.rows import fields_of
from tidelog.tools import console, exits, names
from tidelog.tools.bases import Base, bases, state_of
from tidelog.tools.failed import Failed
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.life import BeganAs, Event, Life, Watch
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import first_lsn
from tidelog.tools.named import Names, witnessed
from tidelog.tools.text import command_line, place_text, time_text

VERSION: Final = 1
UNIT_SHOWN: Final = 5  # commands of a unit
COMMAND_CHARS: Final = 160
NEAREST: Final = 3


class Unknown(Failed):
    """Nothing knows the ID."""

    exit_code = exits.NOT_A_STORE


class Unit(NamedTuple):
    """The unit of an event: its LSNs and its commands."""

    first: int
    last: int
    commands: list[str]


class Found(NamedTuple):
    """The lives of the entry in the streams that were at the key, and where the replay began.

    units     of the events, by LSN
    damage    the error that ended the replay: the events are those before it
    nearest   IDs of the key's stream that are near, if there is no life
    """

    base: Base
    lives: list[Life]
    notes: list[Event]
    units: dict[int, Unit]
    nearest: list[bytes]
    damage: Exception | None = None


@tool_command(
    "tidelog why orders-data orders 1700000000001-0",
    "tidelog why orders-data mails 1700003664000-0 --json | jq -r .text",
)
@click.argument("path", type=STORE_PATH)
@click.argument("key", shell_complete=names.queues)
@click.argument("entry_id", metavar="ID")
@json_option("Print one JSON object per line and event.")
def command(path: Path, key: str, entry_id: str, as_json: bool) -> None:
    try:
        wanted = parse(entry_id.encode(errors="surrogateescape"))
    except CommandError:
        raise click.BadParameter(
            f"{entry_id!r} is no ID; give 1700000000001-0", param_hint="ID"
        ) from None
    name = key.encode("utf-8", "surrogateescape")
    files = LogFiles(path, snapshots=True)
    found = story(files, name, wanted)
    if not found.lives:
        raise found.damage or Unknown(refusal(key, entry_id, found))
    for number, (life, events) in enumerate(in_order(found)):
        before: int | None = None
        shown: Unit | None = None
        if len(found.lives) > 1 and not as_json:
            click.echo(
                f"in the stream that was at {' and '.join(starmap(place_text, dict.fromkeys(life.places)))}:"
            )
        for event in events:
            unit = found.units.get(event.lsn)
            passed = None if before is None else event.now - before
            before = event.now
            if as_json:
                console.json_object(as_object(event, unit, passed, number))
            else:
                click.echo(as_text(event, unit, passed, again=unit == shown), nl=False)
                shown = unit
    if found.damage is not None:
        raise found.damage


def in_order(found: Found) -> Iterator[tuple[Life, list[Event]]]:
    """The lives, each with its events by LSN. Notes of other sources stand in the first one."""
    for number, life in enumerate(found.lives):
        notes = [] if number else found.notes
        yield life, sorted([*life.story(), *notes], key=lambda event: event.lsn)


def story(files: LogFiles, key: bytes, wanted: int, *, quiet: bool = False) -> Found:
    """Replay the log up to its end, or to damage, and watch the entry, with a progress bar unless `quiet`.

    For the ID that a delayed job got when it was due, or a job when it died, the replay begins again when it comes to
    that moment: what happened to the job before concerns another ID, which no replay can know earlier.

    Raises Unknown without a base; Damage and CorruptBlock if nothing can be replayed; OSError.
    """
    tried: set[int] = set()
    while True:
        tried.add(wanted)
        try:
            with files.still():
                return _story(files, key, wanted, quiet)
        except BeganAs as began:
            if began.first in tried:  # a stranger wrote what looks like a dead job
                raise Unknown(f"the dead jobs of {key!r} name each other") from None
            wanted = began.first


def _story(files: LogFiles, key: bytes, wanted: int, quiet: bool) -> Found:
    first = first_lsn(files)
    found = bases(files)
    usable = [base for base in found if base.start.lsn + 1 >= first]
    if not usable:
        raise Unknown("the log begins later than any checkpoint or snapshot of the store")
    base = usable[0]
    units: dict[int, Unit] = {}
    notes = list(witnessed(files, found[: len(found) - len(usable)], key, wanted))
    with state_of(files, base) as (state, start):
        watch = Watch(state, wanted, key)
        family = {key, watch.queue.later, *watch.queue.jobs}
        if first <= start.lsn and files.snapshot is None:
            names = Names(files, key, wanted)
            notes += names.told(first, start.lsn)
            if names.id != wanted:
                watch.follow(names.id)
        if base.folder is not None:
            watch.begin(base.name, start.lsn, start.now, before=first <= start.lsn)
            if notes and not _lives_at(watch, family):
                gone = f"is not there in {base.name}: trimmed, deleted or moved before"
                notes.append(Event("gone", gone, start.lsn, start.now))
        damage: Exception | None = None
        if files.snapshot is None:
            replayed = _Replayed(watch, units)
            try:
                with console.progress("replaying", files.size(), size=True, quiet=quiet) as advance:
                    for scan in files.scans_behind(start):
                        at = scan.offset
                        replayed.run(scan)
                        advance(scan.size - at)
            except (Damage, NewerRecord, CorruptBlock) as error:
                damage = error
        lives = _lives_at(watch, {key}) or _lives_at(watch, family)
        if notes and not lives:
            lives = [Life((0, key))]
        if not lives and not notes:
            _follow_death(state, watch.queue.dead, wanted)
        near = nearest(state, key, wanted) if damage is None else []
        return Found(base, lives, [*notes, *watch.notes], units, near, damage)


def _follow_death(state: State, dead: bytes, wanted: int) -> None:
    """Raise BeganAs if a dead job has this ID."""
    for database in state.databases:
        stream = database.keys.get(dead)
        row = stream.get(wanted) if isinstance(stream, Stream) else None
        first = None if row is None else parse_or_none(fields_of(row).get(b"id", b""))
        if first is not None:
            raise BeganAs(first)


def _lives_at(watch: Watch, keys: Collection[bytes]) -> list[Life]:
    """The lives of streams that were at one of the keys."""
    return [life for life in watch.lives if any(place[1] in keys for place in life.places)]


class _Replayed:
    """Replays in batches of frames, as recovery does. A frame that may concern the entry is applied by the watcher."""

    def __init__(self, watch: Watch, units: dict[int, Unit]) -> None:
        self._watch = watch
        self._units = units
        self._apply = applier(watch.state)
        self._replay = Replay(self._take)
        # of the batch: first LSN, records, time, and whether the bytes have one of the watcher's needles
        self._frames: list[tuple[int, int, int, bool]] = []

    def run(self, scan: Scan) -> None:
        """Apply the frames of a segment."""
        self._replay.run(scan.path, self._noted(scan))

    def _noted(self, scan: Scan) -> Iterator[FrameTuple]:
        note, watch = self._frames.append, self._watch
        for fields in scan.tuples():
            body, named = fields[6], False
            for needle in watch.needles:
                if needle in body:
                    named = True
                    break
            note((fields[1], fields[2], fields[3], named))
            yield fields

    def _take(self, records: list[Effect]) -> None:
        watch = self._watch
        at = applied = taken = 0
        found_more = False
        while at < len(records):
            lsn, count, now, named = self._frames[taken]
            taken += 1
            begin, at = at, at + count
            effects = records[begin:at]
            # The later frames of this batch were not searched for the finds of the watcher.
            named = named or found_more
            if not watch.concerned(effects, named):
                continue
            if applied < begin:
                self._apply(records[applied:begin])
            seen, needles = watch.told(), watch.needles
            watch.run(effects, lsn, now, named)
            applied = at
            found_more = found_more or watch.needles is not needles
            if watch.told() != seen:
                self._units.update(_units(effects, lsn))
        self._apply(records[applied:] if applied else records)
        # A batch that cannot be decoded as a whole is taken frame by frame.
        del self._frames[:taken]


def _units(effects: list[Effect], lsn: int) -> Iterator[tuple[int, Unit]]:
    """(LSN, unit) of every record of a frame."""
    begun = lsn
    lines: list[str] = []
    for at, effect in enumerate(effects, lsn):
        made = commands(effect) if len(lines) < UNIT_SHOWN else []
        lines += [_short(command_line(line)) for line in made[: UNIT_SHOWN - len(lines)]]
        if effect[0] & END:
            unit = Unit(begun, at, lines)
            for each in range(begun, at + 1):
                yield each, unit
            begun, lines = at + 1, []


def _short(line: str) -> str:
    return line if len(line) <= COMMAND_CHARS else line[:COMMAND_CHARS] + "..."


def nearest(state: State, key: bytes, wanted: int) -> list[bytes]:
    """The IDs of the key's stream that are next to the wanted one."""
    found: list[int] = []
    for database in state.databases:
        stream = database.keys.get(key)
        if isinstance(stream, Stream):
            before = reading.between(stream, 0, wanted, NEAREST, reverse=True)
            behind = reading.between(stream, wanted, MAX, NEAREST)
            found += [*before.ids(), *behind.ids()]
    found.sort(key=lambda entry_id: abs(entry_id - wanted))
    return [b"%d-%d" % (each >> 64, each & (1 << 64) - 1) for each in sorted(found[:NEAREST])]


def refusal(key: str, entry_id: str, found: Found) -> str:
    known = (
        "the whole log" if not found.base.start.lsn else f"{found.base.name} and the log behind it"
    )
    near = b", ".join(found.nearest).decode()
    behind = f"; the nearest IDs there now: {near}" if near else ""
    return f"{known} knows no entry {entry_id} of {key!r}{behind}"


def as_object(event: Event, unit: Unit | None, passed: int | None, life: int) -> dict[str, Any]:
    return {
        "v": VERSION,
        "event": event.kind,
        "text": event.text,
        "lsn": event.lsn,
        "time_ms": event.now,
        "after_ms": passed,
        "stream": life,
        "unit": None if unit is None else {"first": unit.first, "last": unit.last},
        "commands": [] if unit is None else unit.commands,
    }


def as_text(event: Event, unit: Unit | None, passed: int | None, *, again: bool = False) -> str:
    """The line of an event; below it the commands of its unit if there are several, unless they were shown `again`."""
    since = "" if passed is None else f"+{span_text(passed)}"
    lines = [f"{event.lsn:>8}  {time_text(event.now)}  {since:>9}  {event.text}"]
    if unit is not None and unit.first != unit.last:
        lines[0] += f" (unit LSN {unit.first} to {unit.last})"
        if not again:
            lines += [f"{'':>8}    {line}" for line in unit.commands]
    return "".join(f"{line}\n" for line in lines)


def span_text(ms: int) -> str:
    """A span of time in the largest unit in which it is at least 1."""
    for size, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")):
        if ms >= size:
            return f"{ms / size:.1f}{name}"
    return f"{ms}ms"
