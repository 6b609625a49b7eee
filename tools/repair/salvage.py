"""Salvage: what can still be applied from behind a gap in the log.

Apply trusts its effects, and an effect behind a gap may build on records that are missing. So nothing is applied as it
stands. Each record goes through the front door instead: its commands are decided against the state as it is, and decide
may refuse them. A trim names no entries; it is applied only if the stream has as many entries as the trim found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.aof.errors import Damage, NewerFormat
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.as_commands import commands, database
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.streams.stream import Stream
from tidelog.tools.aof import record_check
from tidelog.tools.aof.records import Record, records_of
from tidelog.tools.logfiles import LogFiles

_NO_DATA = frozenset((e.EPOCH, e.XREOPEN, e.IDMP_DUPLICATE))


class Refused(NamedTuple):
    """A record that was not applied."""

    lsn: int
    record: str
    key: bytes
    reason: str


class Salvaged(NamedTuple):
    """The fate of the records behind the gap. `now`: time of the newest one, unix ms."""

    applied: int
    refused: list[Refused]
    now: int


def records_behind(files: LogFiles, lsn: int) -> Iterator[Record]:
    """The intact records behind an LSN, through all damage. Frames that do not decode are passed over."""
    last = lsn
    for path, item in files.frames_past_damage():
        if isinstance(item, Damage) or item.lsn <= last:
            continue
        try:
            found = list(records_of(path, item))
        except (Damage, NewerFormat):
            continue
        last = item.lsn + item.count - 1
        yield from found


def salvage(files: LogFiles, state: State, lsn: int) -> Salvaged:
    """Apply what can be applied of the records behind `lsn` to the state. Raises OSError."""
    context = Context(state, Settings())
    context.may_block = False
    applied = now = 0
    refused: list[Refused] = []
    for record in records_behind(files, lsn):
        now = max(now, record.now)
        context.now = record.now
        reason = _reason(context, record.effect)
        if reason:
            key = record.effect[2] if len(record.effect) > 2 else b""
            shown = key if isinstance(key, bytes) else b""
            refused.append(Refused(record.lsn, record.name, shown, reason))
        else:
            applied += 1
    return Salvaged(applied, refused, now)


def _reason(context: Context, effect: Effect) -> str:
    """Apply one record; the reason if it is refused."""
    opcode = effect[0] & OPCODE
    if opcode in _NO_DATA:
        return ""
    fault = record_check.fault(effect)
    if fault:
        return fault
    if opcode == e.XTRIM:
        fault = _trim_fault(context.state, effect)
        if fault:
            return fault
    context.db = database(effect) or 0
    changed = False
    try:
        for command in commands(effect):
            decide(context, list(command))
            for made in context.effects:
                APPLY[made[0]](context.state, made)
            changed = changed or bool(context.effects)
            context.effects.clear()
    except (CommandError, CorruptBlock) as error:
        context.effects.clear()
        return str(error)
    return "" if changed else "it changes nothing here: what it is about is missing"


def _trim_fault(state: State, effect: Effect) -> str:
    _, db, key, length, removed, _, _, slots, ids = effect
    stream = state.databases[db].keys.get(key)
    if not isinstance(stream, Stream):
        return "the stream is missing"
    if slots or ids or stream.length != length + removed:
        return (
            f"its extent is not certain: it found {length + removed} entries and left {length}, and the stream has "
            f"{stream.length} here"
        )
    return ""
