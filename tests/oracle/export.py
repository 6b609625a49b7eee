"""After a run: the log replayed gives the same state, and printed as Redis commands it builds the same in Redis."""

from __future__ import annotations

from tests.oracle.conftest import Oracle
from tests.oracle.differences import Anything, Between
from tests.oracle.driver import VIEWED_DATABASES, Disagreement, Pair, reset
from tests.oracle.engine_side import Tidelog, Unit, digest_of, replayed, unpacked
from tests.oracle.grammar import Command
from tests.oracle.wire import Connection, Form

from tidelog.engine.effects import as_commands

TIMES = (b"seen-time", b"active-time")


class ReplayDiffers(AssertionError):
    """The state built from the log is not the live one."""


class ExportDiffers(AssertionError):
    """A redis-server fed with the exported log does not show what tidelog shows."""


def assert_replay_agrees(tidelog: Tidelog) -> None:
    if digest_of(replayed(tidelog.history)) != digest_of(tidelog.state):
        raise ReplayDiffers("the replayed state has another digest")


def assert_export_agrees(pair: Pair, oracle: Oracle) -> None:
    """Feeds `oracle.second` the log as commands, each unit at its own time, and compares the XINFO views.

    Of the counters only what the commands carry is there afterwards: seen-time and active-time are those of the replay.
    """
    link = oracle.second.connect()
    try:
        reset(link)
        feed(pair, oracle, link)
        oracle.clock.set(pair.now)
        compare(pair, link, pair.tidelog.ahead and oracle.owes.CAPS_ENTRIES_READ)
    finally:
        link.close()


def feed(pair: Pair, oracle: Oracle, link: Connection) -> None:
    batch: list[Command] = []
    db = 0
    now = 0

    def flush() -> None:
        oracle.clock.set(now)
        for args, reply in zip(batch, link.pipeline(batch), strict=True):
            if not Anything() == reply:
                raise ExportDiffers(f"exported {args} is refused: {reply}")
        batch.clear()

    for unit in pair.tidelog.history:
        if not isinstance(unit, Unit):
            batch.append(unit)
            continue
        if unit.now != now:
            flush()
            now = unit.now
        for record in unit.records:
            effect = unpacked(record)
            wanted = as_commands.database(effect)
            if wanted is not None and wanted != db:
                batch.append([b"SELECT", b"%d" % wanted])
                db = wanted
            batch += as_commands.commands(effect)
    flush()


def compare(pair: Pair, link: Connection, capped: bool = False) -> None:
    """`capped` leaves entries-read and lag open: commands could not carry them."""
    left_open = (*TIMES, b"entries-read", b"lag") if capped else TIMES
    for db in VIEWED_DATABASES:
        link.call(b"SELECT", b"%d" % db)
        look = pair.tidelog.look
        keys = look(pair.now, db, [b"KEYS", b"*"]).form
        wanted: list[Command] = [[b"KEYS", b"*"]]
        for key in sorted(keys):
            wanted.append([b"PEXPIRETIME", key])
            if look(pair.now, db, [b"TYPE", key]).form == ("+", b"stream"):
                wanted.append([b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])
            else:
                wanted.append([b"GET", key])
        for args, got in zip(wanted, link.pipeline(wanted), strict=True):
            outcome = look(pair.now, db, args)
            owed = opened(outcome.expect, left_open)
            if not owed == got:
                raise ExportDiffers(str(Disagreement(args, outcome.form, owed, got, -1)))


def any_times(form: Form) -> Form:
    """The form with every seen-time and active-time left open: a replay sets them to the time of the replay."""
    return opened(form, TIMES)


def opened(form: Form, names: tuple[bytes, ...]) -> Form:
    """The form with the values behind these names left open."""
    if not isinstance(form, list):
        return form
    out = [opened(item, names) for item in form]
    for at, item in enumerate(form[:-1]):
        if isinstance(item, bytes) and item in names:
            out[at + 1] = Between(-1, 1 << 62) if item in TIMES else Anything()
    return out
