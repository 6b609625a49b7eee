"""`tidelog aof stats`: what the log consists of, in one pass and bounded memory.

Commands and lives are counted exactly. Keys and groups may be millions, so only the most frequent are kept; a count may
then be too high by a number that is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidelog.aof.errors import Damage, NewerRecord
from tidelog.aof.frame import HEADER_BYTES, Frame
from tidelog.aof.reading import reader
from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import is_known
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.tools import console, exits
from tidelog.tools.aof.fields import IDS_AT, entries_of
from tidelog.tools.aof.frames import frames_between, past_damage_option
from tidelog.tools.aof.records import NAMES, UNFIT, unfit
from tidelog.tools.aof.sketch import Row, Sketch
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, hold, look_at
from tidelog.tools.text import argument, json_value, place_text, size_text, time_text
from tidelog.tools.times import moment

VERSION: Final = 1
CAPACITY: Final = 20_000  # keys, and groups, that are counted
TOP: Final = 10  # rows shown
SPANS: Final = {"hour": 3_600_000, "minute": 60_000}


def _kinds(*opcodes: int) -> frozenset[int]:
    """Opcodes with END and without."""
    return frozenset(opcode | end for opcode in opcodes for end in (0, END))


_ADDS: Final = _kinds(e.XADD, e.XADD_NODE, e.XADD_IDMP)
_NO_KEY: Final = _kinds(e.EPOCH, e.SWAPDB, e.FLUSHDB, e.FLUSHALL)
# with a database and a key as the first fields
_WITH_KEY: Final = frozenset(range(1, 128)) - _ADDS - _NO_KEY - _kinds(e.DEL)
_ALONE: Final = _kinds(e.EPOCH, e.DEL, e.XADD_MANY, *range(e.XGROUP_CREATE, e.XACKDEL + 1))
_kind = itemgetter(0)
_name = itemgetter(1, 2)

COLUMNS: Final = ("RECORDS", "ENTRIES", "BYTES", "RECORDS/S")

LEAP_MS: Final = 86_400_000
STOOD_FRAMES: Final = 500

T = TypeVar("T", bound=Hashable)
Key = tuple[int, bytes]
GroupName = tuple[int, bytes, bytes]


class Clock:
    """The times of frames: a leap of the wall clock forward, and the frames for which the time then stands still.

    A store's time never goes back. So when the clock is set back after a leap, all frames until it has caught up have
    the time of the leap.

    pause   (LSN, time before it, its time) of the frame before which most time passed
    stood   (first LSN, last LSN, time) of most frames that have one time
    """

    def __init__(self) -> None:
        self.pause = self.stood = (0, 0, 0)
        self.stood_frames = 0
        self._now = self._since = self._count = 0

    def take(self, frame: Frame) -> None:
        if frame.now != self._now:
            if self._count and frame.now - self._now > self.pause[2] - self.pause[1]:
                self.pause = frame.lsn, self._now, frame.now
            self._now, self._since, self._count = frame.now, frame.lsn, 0
        self._count += 1
        if self._count > self.stood_frames:
            self.stood_frames = self._count
            self.stood = self._since, frame.lsn + frame.count - 1, frame.now

    def lines(self) -> list[str]:
        """The strange times, in words."""
        lines = []
        lsn, before, then = self.pause
        if then - before >= LEAP_MS:
            days = (then - before) / 86_400_000
            lines.append(
                f"{days:,.1f} days passed before LSN {lsn}, from {time_text(before)} to {time_text(then)}: nothing was "
                "written, or the clock leapt"
            )
        if self.stood_frames >= STOOD_FRAMES:
            first, last, at = self.stood
            lines.append(
                f"stood still at {time_text(at)} for {self.stood_frames:,} frames, LSN {first} to {last}: the clock "
                "was set back, or was ahead before"
            )
        return lines


class Stats:
    """The counts. `take` gets the frames in order.

    life_of   the incarnation that wrote a segment, 0 if unknown
    """

    def __init__(self, life_of: Callable[[Path], int], span: int | None = None) -> None:
        self.span = span
        self._life_of = life_of
        self.records = self.units = self.entries = self.frames = self.nbytes = 0
        self.first_lsn = self.last_lsn = self.since = self.until = 0
        self.commands: Counter[int] = Counter()
        self.command_bytes: Counter[int] = Counter()
        self.command_entries: Counter[int] = Counter()
        self.keys: Sketch[Key] = Sketch(CAPACITY)
        self.groups: Sketch[GroupName] = Sketch(CAPACITY)
        self.exposed_max = 0
        # incarnation -> [records, entries, bytes, first LSN, last LSN, first time, last time]
        self.lives: dict[int, list[int]] = {}
        self.begun: set[int] = set()  # the lives whose first record was counted
        # sizes of frames, and records not yet synced when a frame was written: power of two -> number of frames
        self.sizes: Counter[int] = Counter()
        self.exposed: Counter[int] = Counter()
        # (bytes, LSN, opcode) of the largest records
        self.largest: list[tuple[int, int, int]] = []
        # beginning of a span -> [records, entries, bytes]
        self.spans: dict[int, list[int]] = {}
        self.clock = Clock()
        self._path: Path | None = None  # of the last frame
        self._incarnation = 0
        self._least = 0  # bytes of the smallest of the largest records

    @property
    def seconds(self) -> float:
        """From the first frame to the last."""
        return (self.until - self.since) / 1000

    def take(self, path: Path, frame: Frame) -> None:
        """Count one frame. Raises CorruptFrame, NewerRecord."""
        effects = reader.records_of(path, frame)
        if path != self._path:
            self._path = path
            # The record that begins the life may lie before the first wanted frame, or in a released segment.
            self._incarnation = self._life_of(path) or self._incarnation
        try:
            self._take(path, frame, effects)
        except UNFIT as error:
            raise unfit(path, frame, error) from error

    def _take(self, path: Path, frame: Frame, effects: list[Effect]) -> None:
        nbytes = HEADER_BYTES + len(frame.body)
        if not self.frames:
            self.first_lsn, self.since = frame.lsn, frame.now
        self.frames += 1
        self.clock.take(frame)
        self.nbytes += nbytes
        self.records += len(effects)
        self.last_lsn, self.until = frame.lsn + frame.count - 1, frame.now
        self.sizes[nbytes.bit_length()] += 1
        exposed = frame.lsn - 1 - frame.synced
        self.exposed[exposed.bit_length() if exposed > 0 else 0] += 1
        self.exposed_max = max(self.exposed_max, exposed)
        # Commands and keys get the mean size of the frame's records: exact sizes would take a second pass.
        each = len(frame.body) // len(effects)
        before = self.entries
        kinds = Counter(map(_kind, effects))
        for kind, count in kinds.items():
            if not is_known(kind):
                at = next(at for at, effect in enumerate(effects) if effect[0] == kind)
                raise NewerRecord(path, frame.offset, frame.lsn + at, kind)
            self._records(kind, count, each)
        self._places(effects, kinds, each)
        if len(frame.body) > self._least:
            self._large(frame, effects)
        life = self.lives.get(self._incarnation)
        if life is None:
            life = self.lives[self._incarnation] = [0, 0, 0, frame.lsn, 0, frame.now, 0]
        life[0] += len(effects)
        life[1] += self.entries - before
        life[2] += nbytes
        life[4], life[6] = self.last_lsn, frame.now
        if self.span is not None:
            row = self.spans.setdefault(frame.now - frame.now % self.span, [0, 0, 0])
            row[0] += len(effects)
            row[1] += self.entries - before
            row[2] += nbytes

    def _records(self, kind: int, count: int, nbytes: int) -> None:
        """Count records of one kind: an opcode, with END or without."""
        opcode = kind & OPCODE
        if kind >= END:
            self.units += count
        self.commands[opcode] += count
        self.command_bytes[opcode] += count * nbytes
        if kind in _ADDS:
            self.entries += count
            self.command_entries[opcode] += count

    def _places(self, effects: list[Effect], kinds: Mapping[int, int], nbytes: int) -> None:
        """Count keys, groups and lives."""
        for wanted, entries in ((_ADDS, 1), (_WITH_KEY, 0)):
            if wanted.isdisjoint(kinds):
                continue
            alike = effects
            if not wanted.issuperset(kinds):
                alike = [effect for effect in effects if effect[0] in wanted]
            names = Counter(map(_name, alike))
            for db, key in names:
                _check(db, key)
            self.keys.add_all(names, nbytes, entries)
        if not _ALONE.isdisjoint(kinds):
            for effect in effects:
                if effect[0] in _ALONE:
                    self._record(effect, nbytes)

    def _record(self, effect: Effect, nbytes: int) -> None:
        """Count what kind and key do not tell: lives, the keys of DEL, entries of a batch, and the group."""
        opcode = effect[0] & OPCODE
        if opcode == e.EPOCH:
            _check(effect[1], b"")
            _check(effect[2], b"")
            self._incarnation = effect[2]
            self.begun.add(effect[2])
            return
        if opcode == e.DEL:
            for key in effect[2]:
                _check(effect[1], key)
                self.keys.add((effect[1], key), nbytes)
            return
        if opcode == e.XADD_MANY:
            entries = entries_of(effect)
            self.entries += entries
            self.command_entries[e.XADD_MANY] += entries
            self.keys.add((effect[1], effect[2]), 0, 0, entries)
            return
        at = IDS_AT.get(opcode)
        entries = 0 if at is None else idlist.count(effect[at])
        self.command_entries[opcode] += entries
        _check(effect[1], effect[3])
        self.groups.add((effect[1], effect[2], effect[3]), nbytes, 1, entries)

    def _large(self, frame: Frame, effects: list[Effect]) -> None:
        unpack = reader.unpacker()
        unpack.feed(frame.body)
        skip, tell = unpack.skip, unpack.tell
        begin = 0
        least = self._least
        for lsn, effect in enumerate(effects, frame.lsn):
            skip()
            end = tell()
            if end - begin > least:
                self.largest.append((end - begin, lsn, effect[0] & OPCODE))
            begin = end
        self.largest = nlargest(TOP, self.largest)
        if len(self.largest) == TOP:
            self._least = self.largest[-1][0]


def _check(db: Any, name: Any) -> None:
    """Raise TypeError for a database or a name of a record that cannot be shown."""
    if db.__class__ is not int or name.__class__ is not bytes:
        raise TypeError(f"{db!r} and {name!r} are no database and no name")


@tool_command(
    "tidelog aof stats orders-data",
    "tidelog aof stats orders-data --since 2h --by minute",
    "tidelog aof stats orders-data --json | jq .keys",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=STORE_PATH)
@click.option("--since", callback=moment, help="Start at this time (UTC), or at 15m ago.")
@click.option("--until", callback=moment, help="Stop after this time.")
@click.option(
    "--by", type=click.Choice(list(SPANS)), help="Count by the hour or by the minute too."
)
@json_option()
@past_damage_option
def command(
    paths: tuple[Path, ...],
    since: int | None,
    until: int | None,
    by: str | None,
    as_json: bool,
    past_damage: bool,
) -> int:
    found: list[Damage] = []
    files = look_at(paths)
    hold(files)
    stats = Stats(files.life_of, None if by is None else SPANS[by])
    for path, frame in frames_between(files, since, until, found, past_damage=past_damage):
        stats.take(path, frame)
    if as_json:
        console.json_object(as_object(stats))
    else:
        show(stats)
    return exits.DAMAGED if found else exits.OK


# --- JSON


def as_object(stats: Stats) -> dict[str, Any]:
    seconds = stats.seconds
    return {
        "v": VERSION,
        "records": stats.records,
        "units": stats.units,
        "entries": stats.entries,
        "frames": stats.frames,
        "bytes": stats.nbytes,
        "first_lsn": stats.first_lsn,
        "last_lsn": stats.last_lsn,
        "since_ms": stats.since,
        "until_ms": stats.until,
        "commands": [
            {"record": NAMES[opcode], "records": count, "entries": stats.command_entries[opcode],
             "bytes": stats.command_bytes[opcode], "records_per_s": rate(count, seconds)}
            for opcode, count in stats.commands.most_common()
        ],
        "keys": [key_object(row, seconds) for row in stats.keys.top(TOP)],
        "keys_exact": stats.keys.exact,
        "largest_keys": [key_object(row, seconds) for row in stats.keys.largest(TOP)],
        "groups": [
            {"db": row.name[0], "key": json_value(row.name[1]), "group": json_value(row.name[2])}
            | counts(row, seconds)
            for row in stats.groups.top(TOP)
        ],
        "groups_exact": stats.groups.exact,
        "lives": [
            {
                "incarnation": f"{incarnation:016x}" if incarnation else None,
                "records": records,
                "entries": entries,
                "bytes": nbytes,
                "records_per_s": rate(records, (until - since) / 1000),
                "first_lsn": first,
                "last_lsn": last,
                "since_ms": since,
                "until_ms": until,
            }
            for incarnation, (records, entries, nbytes, first, last, since, until)
            in stats.lives.items()
        ],
        "largest": [
            {"lsn": lsn, "bytes": nbytes, "record": NAMES[opcode]}
            for nbytes, lsn, opcode in stats.largest
        ],
        "frame_sizes": {str(1 << power): count for power, count in sorted(stats.sizes.items())},
        "exposed_records": {
            str(1 << power if power else 0): count for power, count in sorted(stats.exposed.items())
        },
        "exposed_max": stats.exposed_max,
        "longest_pause": {
            "lsn": stats.clock.pause[0], "from_ms": stats.clock.pause[1], "to_ms": stats.clock.pause[2],
        },
        "longest_standstill": {
            "first_lsn": stats.clock.stood[0], "last_lsn": stats.clock.stood[1], "time_ms": stats.clock.stood[2],
            "frames": stats.clock.stood_frames,
        },
        "spans": [
            {"from_ms": begin, "records": row[0], "entries": row[1], "bytes": row[2]}
            for begin, row in sorted(stats.spans.items())
        ],
    }  # fmt: skip


def key_object(row: Row[Key], seconds: float) -> dict[str, Any]:
    return {"db": row.name[0], "key": json_value(row.name[1])} | counts(row, seconds)


def counts(row: Row[Any], seconds: float) -> dict[str, Any]:
    return {
        "records": row.most,
        "error": row.error,
        "entries": row.entries,
        "bytes": row.nbytes,
        "records_per_s": rate(row.most, seconds),
    }


def rate(count: int, seconds: float) -> float | None:
    """A number each second; None if no time passed."""
    return round(count / seconds, 3) if seconds > 0 else None


# --- the form for people


def show(stats: Stats) -> None:
    seconds = stats.seconds
    per_second = f", {stats.records / seconds:,.0f} records/s" if seconds > 0 else ""
    times = f"{time_text(stats.since)} to {time_text(stats.until)}" if stats.frames else "none"
    click.echo(f"log          LSN {stats.first_lsn} to {stats.last_lsn}, {times}{per_second}")
    click.echo(
        f"records      {stats.records:,} in {stats.units:,} units and {stats.frames:,} frames, "
        f"{size_text(stats.nbytes)}"
    )
    click.echo(f"entries      {stats.entries:,} added")
    if not stats.frames:
        return
    click.echo(
        f"per frame    {stats.records / stats.frames:.1f} records, {stats.units / stats.frames:.1f} units"
    )
    click.echo(f"not synced   at most {stats.exposed_max:,} records when a frame was written")
    for line in stats.clock.lines():
        click.echo(f"clock        {line}")
    section("COMMAND", seconds, [
        (NAMES[opcode], count, stats.command_entries[opcode], stats.command_bytes[opcode])
        for opcode, count in stats.commands.most_common()
    ])  # fmt: skip
    sketch("KEY", seconds, stats.keys, lambda name: place_text(*name))
    sketch(
        "GROUP", seconds, stats.groups, lambda name: f"{place_text(*name[:2])} {argument(name[2])}"
    )
    click.echo()
    lives = [
        (
            f"{incarnation:016x}" if incarnation else "unknown",
            *cells(records, entries, nbytes, (until - since) / 1000),
        )
        for incarnation, (records, entries, nbytes, _, _, since, until) in stats.lives.items()
    ]
    console.table(("LIFE", *COLUMNS), lives, right=" ".join(COLUMNS))
    click.echo("\nlargest records")
    for nbytes, lsn, opcode in stats.largest:
        click.echo(f"  LSN {lsn} {NAMES[opcode]}, {size_text(nbytes)}")
    click.echo("\nlargest keys")
    for row in stats.keys.largest(TOP):
        click.echo(f"  {place_text(*row.name)}, {size_text(row.nbytes)}")
    click.echo()
    console.table(
        ("FRAMES UP TO", "FRAMES"),
        [(size_text(1 << power), f"{count:,}") for power, count in sorted(stats.sizes.items())],
        right="FRAMES",
    )
    if stats.spans:
        click.echo()
        console.table(
            ("FROM", "RECORDS", "ENTRIES", "BYTES"),
            [
                (time_text(begin), f"{row[0]:,}", f"{row[1]:,}", size_text(row[2]))
                for begin, row in sorted(stats.spans.items())
            ],
            right="RECORDS ENTRIES BYTES",
        )


def cells(records: int, entries: int, nbytes: int, seconds: float) -> tuple[str, str, str, str]:
    per_second = f"{records / seconds:,.1f}" if seconds > 0 else "-"
    return f"{records:,}", f"{entries:,}", size_text(nbytes), per_second


def section(name: str, seconds: float, rows: list[tuple[str, int, int, int]]) -> None:
    click.echo()
    shown = [
        (text, *cells(count, entries, nbytes, seconds)) for text, count, entries, nbytes in rows
    ]
    console.table((name, *COLUMNS), shown, right=" ".join(COLUMNS))


def sketch(name: str, seconds: float, found: Sketch[T], text: Callable[[T], str]) -> None:
    """A table of the most frequent names, the others as one row."""
    top = found.top(TOP)
    if not top:
        return
    rows = [(text(row.name), row.most, row.entries, row.nbytes) for row in top]
    others = found.total - sum(row.most - row.error for row in top)
    if others > 0:
        nbytes = found.nbytes - sum(row.nbytes for row in top)
        rows.append(("others", others, found.entries - sum(row.entries for row in top), nbytes))
    section(name, seconds, rows)
    if not found.exact:
        error = max(row.error for row in top)
        click.echo(f"each count may be too high by up to {error:,}")
