"""Random states, written as RDB and read back, are the same states."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.engine.driver import Engine
from tests.engine.rdb.loaded import check, in_pieces, read, written
from tests.oracle.played import played
from tests.oracle.rewritten import facts

from tidelog.engine.commands.rewrite import Kind
from tidelog.engine.effects.digest import digest
from tidelog.engine.keys.state import State
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.write import RdbTarget
from tidelog.engine.streams.stream import Stream

PIECES = (1, 7, 33, 64, 1000)


def seen_times(state: State) -> list[int]:
    """Of every consumer: the digest leaves them out."""
    return [
        consumer.seen_time
        for database in state.databases
        for _, value in sorted(database.keys.items())
        if isinstance(value, Stream)
        for _, group in sorted(value.groups.items())
        for consumer in group.listed()
    ]


def round_trip(seed: int, lost_kinds: Counter[Kind]) -> None:
    source, _ = played(random.Random(seed), 60)
    state = source.state
    data, lost = written(state, RdbTarget.REDIS_8_8)
    back = read(in_pieces(data, PIECES[seed % len(PIECES)]))
    check(back)
    lost_kinds.update(kind for kind, _, _ in lost.counts)
    assert set(lost_kinds) <= {Kind.ENTRIES_READ, Kind.DEDUP_TIMES}, seed
    assert seen_times(back) == seen_times(state), seed
    if not lost:
        assert digest(back) == digest(state), seed
    assert written(back, RdbTarget.REDIS_8_8)[0] == data, seed
    for target in RdbTarget:
        lowered, lost = written(state, target)
        if not lost:
            assert digest(read(Source.of(lowered))) == digest(state), (seed, target)


def test_states() -> None:
    kinds: Counter[Kind] = Counter()
    for seed in range(25):
        round_trip(seed, kinds)
    assert kinds, "a state in which something is lost"


@pytest.mark.slow
def test_many_states() -> None:
    kinds: Counter[Kind] = Counter()
    for seed in range(1000, 1500):
        round_trip(seed, kinds)


# fmt: off
@pytest.mark.parametrize(("target", "losses"), [
    (RdbTarget.REDIS_7_0, {Kind.NACKED, Kind.DEDUP, Kind.DEDUP_COUNTERS, Kind.ACTIVE_TIME}),
    (RdbTarget.REDIS_7_2, {Kind.NACKED, Kind.DEDUP, Kind.DEDUP_COUNTERS}),
    (RdbTarget.REDIS_8_6, {Kind.NACKED, Kind.ENTRIES_READ}),
    (RdbTarget.REDIS_8_8, {Kind.ENTRIES_READ}),
])
# fmt: on
def test_older_versions_lose_what_is_told_and_nothing_else(
    target: RdbTarget, losses: set[Kind]
) -> None:
    told: set[Kind] = set()
    for seed in range(12):
        source, now = played(random.Random(seed), 60)
        data, lost = written(source.state, target)
        back = read(Source.of(data))
        check(back)
        told |= {kind for kind, _, _ in lost.counts}
        by_key = {(db, key) for _, db, key in lost.counts}
        before, after = facts(source.state, now), facts(back, now)
        assert before.keys() == after.keys()
        for at, shown in before.items():
            if at not in by_key:
                assert after[at] == shown, (seed, at)
            elif isinstance(shown[1], dict):
                for part in ("counters", "entries", "nodes"):
                    assert after[at][1][part] == shown[1][part], (seed, at)
    assert told == losses


def test_an_iid_ahead_of_the_clock_loses_its_own_time() -> None:
    """A file has the ID of its entry alone. With the second journey nothing more is lost."""
    engine = Engine()
    engine("XADD s 9000000000000-0 f v")
    for iid in "ij":
        engine(f"XADD s IDMP p {iid} * f v")
    data, lost = written(engine.state, RdbTarget.REDIS_8_8)
    assert lost.counts == {(Kind.DEDUP_TIMES, 0, b"s"): 2}
    back = read(Source.of(data))
    again, lost = written(back, RdbTarget.REDIS_8_8)
    assert again == data and not lost
    assert digest(read(Source.of(again))) == digest(back)
