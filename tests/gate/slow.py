"""The slow tests of one run: as many as fit in its seconds, by the committed table of durations.

All slow tests together take longer than `.ci/run` may. A run takes those of the rooms that the last day's commits
changed, then those whose turn it is: each of both kinds lies on a ring, on which every turn takes the next stretch. The
few in ALWAYS run every time.

    turn 7                  turn 8                  turn 9
    |-----------------------|-----------------------|-----------------------|
    [a   ][b      ][c    ][d        ][e  ][f   ][g         ][h     ][i  ]
    a, b, c, d              e, f, g                 h, i

A test belongs to the turn in which it begins on the ring. So what one turn leaves out comes with a later one, and each
has its turn. A test that the table does not know always runs. Tests lie on the ring in the order of a checksum, so that
each turn has some of every room. Those of tests/spark have a ring of their own: most run in one process, one after the
other, which may not take longer than the others together.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from tests.turns import git, this_turn

TABLE: Final = Path(__file__).with_name("durations.json")
# The part of a run's seconds that tests of changed rooms may take while others wait for their turn.
CHANGED_PART: Final = 0.6
# The part of a run's seconds that the tests of Spark may take: one of three processes has nearly all of them.
SPARK: Final = "tests/spark/"
SPARK_PART: Final = 0.3
# Tests that run in every turn: what they compare with is of today, and a turn later nobody knows what changed it.
ALWAYS: Final = {"tests/guard/test_guard.py::test_it_is_as_it_was"}
# Folders of tests that try other rooms than the one of their name.
TRIED: Final = {
    "crash": {"crash", "aof", "snapshot", "store", "disk"},
    "formats": {"aof", "snapshot", "store"},
    "fuzz": {"aof", "snapshot", "tools"},
    "guard": {"aof", "engine", "snapshot", "store", "jobs", "api"},
    "mutants": {"crash"},
    "oracle": {"engine", "server"},
}


class Choice(NamedTuple):
    """The names of tests that run, and those that wait for their turn."""

    taken: frozenset[str]
    left: frozenset[str]

    def runs(self, nodeid: str) -> bool:
        """Whether a case of a test runs: also if the table does not know it."""
        return name_of(nodeid, self.left) not in self.left


def load() -> dict[str, float]:
    """Seconds of each slow test: all cases of `file::function` together, or each case if they are long."""
    table: dict[str, float] = json.loads(TABLE.read_text())
    return table


def choose(
    durations: Mapping[str, float], changed: Iterable[str], turn: int, seconds: float
) -> Choice:
    """Choose what runs in a turn, at most about `seconds` of one process."""
    rooms = set(changed)
    always = {name: took for name, took in durations.items() if name in ALWAYS}
    seconds -= sum(always.values())
    durations = {name: took for name, took in durations.items() if name not in always}
    spark = {name: took for name, took in durations.items() if name.startswith(SPARK)}
    rest = {name: took for name, took in durations.items() if name not in spark}
    for_spark = min(seconds * SPARK_PART, sum(spark.values()))
    taken = {*_some(spark, rooms, turn, for_spark), *_some(rest, rooms, turn, seconds - for_spark)}
    return Choice(frozenset({*taken, *always}), frozenset(durations.keys() - taken))


def _some(durations: Mapping[str, float], rooms: set[str], turn: int, seconds: float) -> set[str]:
    """Those of the changed rooms, and others whose turn it is."""
    first = {name: took for name, took in durations.items() if rooms_of(name) & rooms}
    others = {name: took for name, took in durations.items() if name not in first}
    for_others = max(seconds * (1 - CHANGED_PART), seconds - sum(first.values()))
    for_others = min(for_others, sum(others.values()))
    return {*stretch(others, turn, for_others), *stretch(first, turn, seconds - for_others)}


def stretch(durations: Mapping[str, float], turn: int, seconds: float) -> list[str]:
    """The tests that begin in the stretch of this turn on a ring of all."""
    around = sum(durations.values())
    start, begins, found = (turn * seconds) % around if around else 0.0, 0.0, []
    for name, took in sorted(durations.items(), key=lambda item: (crc32(item[0].encode()), item)):
        if (begins - start) % around < seconds:
            found.append(name)
        begins += took
    return found


def name_of(nodeid: str, known: Container[str]) -> str:
    """The name in the table of a case of a test: long ones have cases of their own there."""
    return nodeid if nodeid in known else nodeid.partition("[")[0]


def told(choice: Choice) -> list[str]:
    """Lines that say what was left out."""
    left = Counter(name.partition("::")[0] for name in choice.left)
    lines = [f"{len(choice.taken)} slow tests have their turn; {len(choice.left)} have it later:"]
    return lines + [f"  {file} ({count})" for file, count in sorted(left.items())]


def rooms_of(name: str) -> set[str]:
    """The rooms that a test tries, by the folder of its file."""
    folder = Path(name.partition("::")[0]).parts[1]
    return {folder, *TRIED.get(folder, ())}


def changed_rooms() -> set[str]:
    """The rooms that the commits of the last day before the one that is checked out changed, tests included.

    Of a shallow clone, those of the commits that it has.
    """
    listed = git("log", "-1", "--format=%ct")
    if not listed:
        return set()
    since = int(listed) - 86_400
    names = git("log", f"--since={since}", "--format=", "--name-only").splitlines()
    parts = [Path(name).parts for name in names if name]
    return {found[1] if found[0] == "tests" and len(found) > 2 else found[0] for found in parts}


def of_this_turn(seconds: float) -> Choice:
    """The choice for the commit that is checked out."""
    return choose(load(), changed_rooms(), this_turn(), seconds)
