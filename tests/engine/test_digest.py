"""The digest: equal for equal states, different for every difference a caller can see."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.keys.state import Settings, State

NOW = 1_700_000_000_000
START = """
SET string value
SET timed value PXAT 1700000005000
XADD s 1-1 f v
XADD s 2-1 f v
XADD s 3-1 f v
XADD s 4-1 f v
XGROUP CREATE s g 0
XGROUP CREATECONSUMER s g alice
XCLAIM s g alice 0 1-1 2-1 FORCE JUSTID
XADD other 1-1 f v
"""


def state_after(*scripts: str) -> State:
    ctx = Context(State(), Settings())
    ctx.now = NOW
    for line in "\n".join(scripts).split("\n"):
        if line:
            run(ctx, line.encode().split())
    return ctx.state


def run(ctx: Context, args: Sequence[bytes]) -> None:
    ctx.effects = []
    decide(ctx, list(args))
    for effect in ctx.effects:
        apply(ctx.state, effect)


def test_the_same_state_by_another_way() -> None:
    detour = """
SET gone 1
XADD t 0-1 a b
XGROUP CREATE t g 0
DEL gone t
SET string other
SET string value
XGROUP CREATECONSUMER s g bob
XGROUP DELCONSUMER s g bob
SWAPDB 0 5
SWAPDB 5 0
RENAME s x
COPY x s
DEL x
"""
    assert digest(state_after(START, detour)) == digest(state_after(START))


@pytest.mark.parametrize(
    "change",
    [
        "SET string Value",
        "APPEND string x",
        "SET new value",
        "PERSIST timed",
        "PEXPIREAT timed 1700000005001",
        "RENAME string strinG",
        "MOVE string 1",
        "SWAPDB 0 1",
        "XADD s 5-1 f v",
        "XADD s 5-1 f w",
        "XDEL s 3-1",
        "XTRIM s MAXLEN 3",
        "XSETID s 5-1",
        "XSETID s 4-1 ENTRIESADDED 9 MAXDELETEDID 0-0",
        "XSETID s 4-1 ENTRIESADDED 4 MAXDELETEDID 0-1",
        "XCFGSET s IDMP-DURATION 7",
        "XIDMPRECORD s p i 4-1",
        "XGROUP CREATE s h 0",
        "XGROUP CREATE other g 0",
        "XGROUP SETID s g 1-1",
        "XGROUP SETID s g 0 ENTRIESREAD 0",
        "XGROUP CREATECONSUMER s g bob",
        "XACK s g 1-1",
        "XCLAIM s g bob 0 1-1 JUSTID",
        "XCLAIM s g alice 0 1-1 JUSTID TIME 1699999999999",
        "XCLAIM s g alice 0 1-1 JUSTID RETRYCOUNT 7",
        "XNACK s g FAIL IDS 1 1-1",
        "XGROUP DESTROY s g",
    ],
)
def test_every_difference_shows(change: str) -> None:
    assert digest(state_after(START, change)) != digest(state_after(START)), change


def test_the_order_of_the_nack_zone_shows() -> None:
    one = state_after(START, "XNACK s g FAIL IDS 1 1-1\nXNACK s g FAIL IDS 1 2-1")
    other = state_after(START, "XNACK s g FAIL IDS 1 2-1\nXNACK s g FAIL IDS 1 1-1")
    assert digest(one) != digest(other)


def test_how_the_nack_zone_was_filled_before_does_not_show() -> None:
    detour = "XNACK s g FAIL IDS 1 2-1\nXCLAIM s g alice 0 2-1 JUSTID\nXNACK s g FAIL IDS 1 2-1\n"
    plain = "XNACK s g FAIL IDS 1 2-1"
    assert digest(state_after(START, detour)) == digest(state_after(START, plain))


def test_two_keys_are_not_one_long_one() -> None:
    assert digest(state_after("SET a b", "SET c d")) != digest(state_after("SET a bcd"))
