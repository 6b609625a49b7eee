"""Wanted: which records of the log a command shows. Filters work on effects, before anything is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
import msgpack

from tidelog.aof.errors import NewerRecord
from tidelog.aof.frame import Frame
from tidelog.aof.reading import reader
from tidelog.engine import idlist
from tidelog.engine.effects.apply import is_known
from tidelog.engine.effects.as_commands import commands, keys
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.errors import CommandError
from tidelog.engine.glob import matcher
from tidelog.engine.ids import parse_end, parse_start
from tidelog.tools.aof.fields import consumer_of, group_of, names_id
from tidelog.tools.aof.records import UNFIT, Record, records_of, unfit

Match = Callable[[bytes], object]
F = TypeVar("F", bound=Callable[..., Any])


class Wanted(NamedTuple):
    """The records to show. LSNs, times (unix ms) and IDs include both ends; None or no names means all.

    whole_units   show every record of a unit that has a wanted one
    needles       a wanted record has one of these bytes; none: any bytes
    """

    key: Match | None = None
    names: tuple[tuple[bytes, ...], ...] = ()
    lsn_min: int = 0
    lsn_max: float = math.inf
    time_min: int = 0
    time_max: float = math.inf
    group: Match | None = None
    consumer: Match | None = None
    ids: tuple[int, int] | None = None
    whole_units: bool = False
    needles: tuple[bytes, ...] = ()

    def skips(self, frame: Frame) -> bool:
        """Whether a frame surely has no wanted record. Does not decode it."""
        too_early = frame.lsn + frame.count <= self.lsn_min or frame.now < self.time_min
        if too_early or self.ended(frame):
            return True
        return bool(self.needles) and not any(needle in frame.body for needle in self.needles)

    def ended(self, frame: Frame) -> bool:
        """Whether this frame and all later ones surely have no wanted record."""
        return frame.lsn > self.lsn_max or frame.now > self.time_max

    def begun(self, frame: Frame) -> bool:
        """Whether this frame and all earlier ones surely have no wanted record."""
        return frame.lsn + frame.count <= self.lsn_min or frame.now < self.time_min

    def records(self, path: Path, frame: Frame) -> Iterator[Record]:
        """The wanted records of a frame. Raises CorruptFrame, NewerRecord."""
        if not self._selects:
            for record in records_of(path, frame):
                if self.lsn_min <= record.lsn <= self.lsn_max:
                    yield record
            return
        effects = reader.records_of(path, frame)
        try:
            hits = self._hits(path, frame, effects)
        except UNFIT as error:
            raise unfit(path, frame, error) from error
        if hits:
            for record in records_of(path, frame):
                if record.lsn in hits:
                    yield record

    @property
    def _selects(self) -> bool:
        return bool(self.key or self.names or self.group or self.consumer or self.ids)

    def _hits(self, path: Path, frame: Frame, effects: list[Effect]) -> set[int]:
        """The LSNs of the wanted records."""
        hits: set[int] = set()
        begun = frame.lsn  # of the unit
        hit = False
        for lsn, effect in enumerate(effects, frame.lsn):
            if not is_known(effect[0]):
                raise NewerRecord(path, frame.offset, lsn, effect[0])
            if self.lsn_min <= lsn <= self.lsn_max and self.has(effect):
                hits.add(lsn)
                hit = True
            if effect[0] & END:
                if hit and self.whole_units:
                    hits.update(range(begun, lsn + 1))
                begun, hit = lsn + 1, False
        return hits

    def has(self, effect: Effect) -> bool:
        """Whether an effect passes the filters."""
        if self.ids is not None and not names_id(effect, *self.ids):
            return False
        if self.key is not None and not any(map(self.key, keys(effect))):
            return False
        if self.group is not None:
            group = group_of(effect)
            if group is None or not self.group(group):
                return False
        if self.consumer is not None:
            consumer = consumer_of(effect)
            if consumer is None or not self.consumer(consumer):
                return False
        return not self.names or is_one_of(effect, self.names)


def needles_of(ids: tuple[int, int] | None) -> tuple[bytes, ...]:
    """The bytes of which a record has one if it is about the one ID; none for a range or no IDs.

    A record has the milliseconds of an ID as an integer, or the ID in a narrow list.
    """
    if ids is None or ids[0] != ids[1]:
        return ()
    narrow = idlist.pack([ids[0]])
    ms: bytes = msgpack.packb(ids[0] >> 64)
    return (ms, narrow) if isinstance(narrow, bytes) else (ms,)


def names_option(name: str, complete: Callable[..., Any], help: str) -> Callable[[F], F]:
    """An option that takes a name or a glob, and may be repeated; the function gets its `name_filter`."""
    return click.option(
        *(f"--{name}", f"wanted_{name}"),
        multiple=True,
        shell_complete=complete,
        callback=lambda ctx, param, patterns: name_filter(patterns),
        help=help,
    )


def name_filter(patterns: tuple[str, ...]) -> Match | None:
    """A function that is true for names that are one of the patterns or match one as in KEYS; None without any."""
    if not patterns:
        return None
    given = [pattern.encode("utf-8", "surrogateescape") for pattern in patterns]
    names = frozenset(given)
    match = [matcher(pattern) for pattern in given]
    return lambda name: name in names or any(matches(name) for matches in match)


def is_one_of(effect: Effect, names: tuple[tuple[bytes, ...], ...]) -> bool:
    """Whether one of the effect's commands begins with one of the names."""
    return any(
        tuple(word.upper() for word in command[: len(name)]) == name
        for command in commands(effect)
        for name in names
    )


# The records that the log has -> the commands that are logged so; and each of these -> its records.
_LOGGED: Final = {
    "XCLAIM, XGROUP SETID and XGROUP CREATECONSUMER": "XREADGROUP",
    "XCLAIM and XACK": "XAUTOCLAIM",
    "XACK and XDEL": "XACKDEL",
    "XDEL": "XDELEX",
    "SET": "SETEX PSETEX SETNX GETSET MSET MSETNX INCR INCRBY DECR DECRBY",
    "DEL": "GETDEL UNLINK",
    "PEXPIREAT and PERSIST": "GETEX",
    "PEXPIREAT, or DEL": "EXPIRE PEXPIRE EXPIREAT",
    "RENAME": "RENAMENX",
}
LOGGED_AS: Final = {
    command.encode(): records for records, logged in _LOGGED.items() for command in logged.split()
}


def logged_as(names: tuple[tuple[bytes, ...], ...]) -> list[str]:
    """For each name that no record has: the records that the log has instead, in words."""
    return [
        f"{b' '.join(name).decode(errors='backslashreplace')} is logged as its effects: {LOGGED_AS[name[0]]}. "
        "Give these to --command"
        for name in names
        if name[0] in LOGGED_AS
    ]


def id_range(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """The value of --id: ID or FROM..TO, whose ends may be incomplete, as in XRANGE."""
    if value is None:
        return None
    first, dots, last = value.partition("..")
    try:
        if not dots:
            return parse_start(first.encode()), parse_end(first.encode())
        return parse_start((first or "-").encode()), parse_end((last or "+").encode())
    except (CommandError, ValueError):
        hint = f"{value!r} is no ID; give 1700000000000-0, 1700000000000, or FROM..TO"
        raise click.BadParameter(hint) from None
