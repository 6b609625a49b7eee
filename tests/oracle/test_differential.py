"""tidelog answers as redis-server 7.0 and 8.2 do: every reply, error text and view, apart from the known differences.

`differences.TABLE` has those to 7.0, `differences_8_2.TABLE` those to 8.2.

ORACLE_SEED picks the first seed, ORACLE_COMMANDS how many commands in all. A failure prints the seed and the
shortest sequence found that still fails.
"""

from __future__ import annotations

import os
import random
import traceback

import pytest
from tests.oracle.bench import START_MS, words
from tests.oracle.conftest import Oracle
from tests.oracle.driver import Disagreement, Pair
from tests.oracle.export import assert_export_agrees, assert_replay_agrees
from tests.oracle.grammar import Grammar, Grammar82, Turn
from tests.oracle.shrink import script, shortest
from tests.rounds import rest_slow

FIRST_SEED = int(os.environ.get("ORACLE_SEED", "1"))
COMMANDS = int(os.environ.get("ORACLE_COMMANDS", "24000"))
BATCHES = 9  # tests to spread the sequences over; all but the first are slow
SEQUENCE = 120  # commands


def problem(oracle: Oracle, turns: list[Turn]) -> Exception | None:
    """The fault of tidelog in these turns: a disagreement, or an error."""
    pair = Pair(oracle)
    try:
        pair.play(turns)
        assert_replay_agrees(pair.tidelog)
        assert_export_agrees(pair, oracle)
    except Exception as found:
        return found
    finally:
        pair.close()
    return None


def kind(found: Exception) -> object:
    """Two failures of one kind are taken for the same bug while a sequence is made shorter."""
    if isinstance(found, Disagreement):
        return found.args_sent[0].upper(), type(found.ours), type(found.got)
    return type(found)


@pytest.mark.parametrize("batch", rest_slow(range(BATCHES), 1))
def test_every_reply_and_view_is_as_7_0_owes(oracle: Oracle, batch: int) -> None:
    compare_replies(oracle, Grammar, batch)


@pytest.mark.parametrize("batch", rest_slow(range(BATCHES), 1))
def test_every_reply_and_view_is_as_8_2_owes(oracle_8_2: Oracle, batch: int) -> None:
    """XDELEX, XACKDEL and the policies of trims come often."""
    compare_replies(oracle_8_2, Grammar82, batch)


def compare_replies(oracle: Oracle, grammar: type[Grammar], batch: int) -> None:
    sent = 0
    seed = FIRST_SEED + batch * 1_000_000
    while sent < COMMANDS // BATCHES:
        turns = grammar(random.Random(seed)).sequence(SEQUENCE)
        found = problem(oracle, turns)
        if found is not None:
            report(oracle, seed, turns, found)
        sent += sum(len(turn.commands) for turn in turns)
        seed += 1


def report(oracle: Oracle, seed: int, turns: list[Turn], found: Exception) -> None:
    same = kind(found)

    def fails(candidate: list[Turn]) -> bool:
        other = problem(oracle, candidate)
        return other is not None and kind(other) == same

    short = shortest(turns, fails)
    last = problem(oracle, short) or found
    trace = "" if isinstance(last, AssertionError) else "".join(traceback.format_exception(last))
    pytest.fail(f"seed {seed}\n{script(short)}\n{last}\n{trace}", pytrace=False)


# Sequences that once parted the two, and what they taught.
FOUND = [
    # MSETNX looks at no key beyond the first that exists, so an expired one there still counts in DBSIZE.
    "SET y 0 PX 5\nSET t 1\n@+100\nMSETNX t 1 y m\nDBSIZE",
    # TIME is no option of SET and GETEX.
    "SET x v TIME\nSET x v\nGETEX x TIME\nGETEX x PX 5 TIME\nSET x v PX 5 time",
    # XREAD meets an expired key beyond a `+`.
    "SET x 1 PX 5\n@+100\nXREAD STREAMS s x + 0\nDBSIZE",
    # A trim that empties a node entry by entry, which still has a deleted slot.
    "CONFIG SET stream-node-max-entries 3\nXADD t 4-1 f v\nXADD t 5-0 f v\nXADD t 12-0 f v\nXDEL t 12-0\n"
    "XADD t MINID = 11-1 23-2 f v\nXADD t 24 f v\nXADD t 25 f v\nXTRIM t MAXLEN ~ 1",
    # The same key twice in one read, with counters that are reckoned.
    "XGROUP CREATE s g 0 MKSTREAM\nXADD s 2-1 f v\nXADD s 11-0 f v\nXADD s 12-0 f v\nXADD s 14-0 f v\n"
    "XREADGROUP GROUP g a COUNT 1 STREAMS s >\nXTRIM s MAXLEN 2\nXREADGROUP GROUP g c COUNT 1 STREAMS s s > >",
    # The last sealed node has room again when the node after it is gone.
    "CONFIG SET stream-node-max-entries 2\nXADD s 1-0 f v\nXADD s 2-0 f v\nXADD s 3-0 f v\nXDEL s 3-0\n"
    "CONFIG SET stream-node-max-entries 4\nXADD s 4-0 f v\nXADD s 5-0 f v\nXADD s 6-0 f v",
]


@pytest.mark.parametrize("text", FOUND)
def test_found_once_and_mended(oracle: Oracle, text: str) -> None:
    agree(oracle, text)


# The same with 8.2.
FOUND_8_2 = [
    # A trim with ACKED removes an entry of a third node, behind two that a group still needs: as a command it must
    # reach that node.
    "CONFIG SET stream-node-max-entries 2\nXGROUP CREATE t g 0 MKSTREAM\nXADD t 3-0 f v\nXADD t 5-0 f v\n"
    "XADD t 7-0 f v\nXADD t 8-0 f v\nXREADGROUP GROUP g alice STREAMS t >\nXADD t 9-0 f v\nXGROUP SETID t g $\n"
    "XADD t MINID 10-2 ACKED 10-0 f v",
    # An unknown type is no error of SCAN; the number behind COUNT is.
    "SET x v\nSCAN 0 TYPE nonsense\nSCAN 0 TYPE 1000 COUNT stream",
    # The last line of HELP.
    "OBJECT HELP\nXINFO HELP\nXGROUP HELP",
]


@pytest.mark.parametrize("text", FOUND_8_2)
def test_found_with_8_2_and_mended(oracle_8_2: Oracle, text: str) -> None:
    agree(oracle_8_2, text)


def agree(oracle: Oracle, text: str) -> None:
    now = START_MS
    turns: list[Turn] = []
    for line in text.split("\n"):
        if line.startswith("@+"):
            now += int(line[2:])
        else:
            turns.append(Turn(now, [words(line)]))
    found = problem(oracle, turns)
    assert found is None, found
