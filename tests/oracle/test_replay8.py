"""Random sequences of every command, those of 8.x too: the log replays to the same state, and views agree.

There is no server to compare with here; what is checked is what holds whatever the answers are.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from tests.oracle.bench import pairs, plain
from tests.oracle.driver import VIEWED_DATABASES, shown_command
from tests.oracle.engine_side import Tidelog, digest_of, replayed
from tests.oracle.grammar import Grammar8, Turn
from tests.oracle.shrink import script, shortest
from tests.rounds import rest_slow

FIRST_SEED = int(os.environ.get("ORACLE_SEED", "1"))
SEQUENCES = 20  # of each batch
COMMANDS = 150  # of each sequence


def problem(turns: list[Turn]) -> Exception | None:
    tidelog = Tidelog(compared=False)
    try:
        for turn in turns:
            for args in turn.commands:
                try:
                    tidelog.run(turn.now, args)
                except Exception as found:
                    found.add_note(shown_command(args))
                    raise
            for db in VIEWED_DATABASES:
                check_database(tidelog, turn.now, db)
        assert digest_of(replayed(tidelog.history)) == digest_of(tidelog.state), "replay differs"
    except Exception as found:
        return found
    return None


def check_database(tidelog: Tidelog, now: int, db: int) -> None:
    def ask(*args: bytes) -> Any:
        return plain(tidelog.look(now, db, list(args)).form)

    for key in tidelog.look(now, db, [b"KEYS", b"*"]).form:
        if ask(b"TYPE", key) != "stream":
            continue
        info = pairs(ask(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"))
        entries = ask(b"XRANGE", key, b"-", b"+")
        assert info["entries"] == entries
        assert info["length"] == ask(b"XLEN", key) == len(entries)
        assert entries[::-1] == ask(b"XREVRANGE", key, b"+", b"-")
        assert info["recorded-first-entry-id"] == (entries[0][0] if entries else "0-0")
        for group in map(pairs, info["groups"]):
            consumers = [pairs(each) for each in group["consumers"]]
            owned = sum(each["pel-count"] for each in consumers)
            assert group["pel-count"] == len(group["pending"]) == owned + group["nacked-count"]
            by_owner = [
                [*row[:1], *row[2:]]
                for each in consumers
                for row in group["pending"]
                if row[1] == each["name"]
            ]
            nacked = [row for row in group["pending"] if row[2] == 0 and row[1] == ""]
            assert len(nacked) >= group["nacked-count"]
            mine = [row for each in consumers for row in each["pending"]]
            assert [row for row in by_owner if row in mine] == mine or group["nacked-count"]


def test_8_seed_is_reproducible() -> None:
    first, again = (Grammar8(random.Random(7)).sequence(50) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("batch", rest_slow(range(12), 1))
def test_every_command_replays(batch: int) -> None:
    for seed in range(FIRST_SEED + batch * 1_000_000, FIRST_SEED + batch * 1_000_000 + SEQUENCES):
        turns = Grammar8(random.Random(seed)).sequence(COMMANDS)
        found = problem(turns)
        if found is not None:
            kind = type(found)
            short = shortest(turns, lambda candidate: type(problem(candidate)) is kind)
            last = problem(short) or found
            pytest.fail(f"seed {seed}\n{script(short)}\n{last!r} {getattr(last, '__notes__', '')}")
