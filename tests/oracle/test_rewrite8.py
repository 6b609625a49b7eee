"""Random histories of all commands, rewritten and fed to an empty engine: the same, but for what is told as lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.rows_in_memory import RowsInMemory
from tests.oracle.driver import VIEWED_DATABASES, shown_command
from tests.oracle.engine_side import Tidelog
from tests.oracle.played import played
from tests.oracle.rewritten import assert_told, facts, owed, rewritten, timeless
from tests.oracle.wire import is_error
from tests.rounds import more

from tidelog.engine.commands.rewrite import Kind, Lost, Target, commands_about
from tidelog.engine.keys.freeze import freeze, load_state
from tidelog.engine.streams.stream import Stream


def imported(source: Tidelog, now: int, target: Target) -> tuple[Tidelog, Lost]:
    commands, lost = rewritten(source.state, target)
    tidelog = Tidelog(compared=False)
    for args in commands:
        answer = tidelog.run(now, args).form
        assert not is_error(answer), f"{shown_command(args)}: {answer}"
    return tidelog, lost


@pytest.mark.parametrize("target", Target)
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), commands=st.integers(1, 120))
def test_the_same_state_but_for_what_is_told(target: Target, seed: int, commands: int) -> None:
    source, now = played(random.Random(seed), commands)
    copy, lost = imported(source, now, target)
    got = timeless(facts(copy.state, now), now)
    owing = owed(source.state, now, target, got)
    assert got == owing.facts
    assert_told(lost, owing)
    for database in copy.state.databases:
        for value in database.keys.values():
            if isinstance(value, Stream):
                value.check()
                for group in value.groups.values():
                    group.pending.check()
    if target is Target.REDIS_8_8:
        compare_views(source, copy, now + 1, lost)


test_more_the_same_state_but_for_what_is_told = more(test_the_same_state_but_for_what_is_told, 150)


def compare_views(source: Tidelog, copy: Tidelog, now: int, lost: Lost) -> None:
    """XINFO STREAM FULL, XPENDING and XRANGE of every stream that loses nothing but times and node bounds."""
    blurred = {(db, key) for kind, db, key in lost.counts if kind in REAL_LOSSES}
    for db in VIEWED_DATABASES:
        for key in source.look(now, db, [b"KEYS", b"*"]).form:
            shown = source.look(now, db, [b"TYPE", key]).form
            assert shown == copy.look(now, db, [b"TYPE", key]).form
            if shown != ("+", b"stream") or (db, key) in blurred:
                continue
            views = [[b"XRANGE", key, b"-", b"+"], [b"XINFO", b"GROUPS", key]]
            info = [b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]
            ours, theirs = (without_times(each.look(now, db, info).form) for each in (source, copy))
            assert ours == theirs
            for group in ours[b"groups"]:
                views.append([b"XPENDING", key, group[b"name"]])
                views.append([b"XPENDING", key, group[b"name"], b"-", b"+", b"1000"])
            for args in views:
                assert source.look(now, db, args).form == copy.look(now, db, args).form, args


REAL_LOSSES = set(Kind) - {Kind.SEEN_TIME, Kind.ACTIVE_TIME, Kind.NODES}


def without_times(info: list[Any]) -> dict[bytes, Any]:
    """XINFO STREAM FULL without what an import sets itself."""
    found = dict(zip(info[::2], info[1::2], strict=True))
    for name in (b"radix-tree-keys", b"radix-tree-nodes"):
        del found[name]
    groups = [dict(zip(group[::2], group[1::2], strict=True)) for group in found[b"groups"]]
    for group in groups:
        consumers = [dict(zip(each[::2], each[1::2], strict=True)) for each in group[b"consumers"]]
        for consumer in consumers:
            del consumer[b"seen-time"], consumer[b"active-time"]
        group[b"consumers"] = consumers
    found[b"groups"] = groups
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), commands=st.integers(1, 120))
def test_over_a_checkpoint_the_same_and_nothing_stays_in_memory(seed: int, commands: int) -> None:
    source, now = played(random.Random(seed), commands)
    wanted, wanted_lost = rewritten(source.state, Target.REDIS_8_8)
    rows = RowsInMemory()
    frozen = freeze(source.state)
    while frozen.take_some(10):
        pass
    rows.write(frozen.rows(rows))
    cold = load_state(rows, source.state.tables_meta())
    about = commands_about(cold)
    got, lost = rewritten(cold, Target.REDIS_8_8)
    assert got == wanted
    assert lost.counts == wanted_lost.counts
    assert about == commands_about(source.state)
    assert not any(map(dict.__len__, [database.keys for database in cold.databases]))
