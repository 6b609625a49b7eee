"""A redis-server 7.0 takes the rewrite for 7.0 and then shows what tidelog shows that took the same.

That tidelog itself has the state then, but for what is told as lost, is tested in test_rewrite8.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.oracle.bench import START_MS
from tests.oracle.conftest import Oracle
from tests.oracle.driver import Pair
from tests.oracle.engine_side import Tidelog
from tests.oracle.export import compare
from tests.oracle.grammar import Command, Turn
from tests.oracle.played import played
from tests.oracle.rewritten import rewritten
from tests.oracle.wire import is_error

from tidelog.engine.commands.rewrite import Target

BATCH = 200  # commands sent at once: they and the replies must fit the socket's buffers


def taken(oracle: Oracle, commands: list[Command], now: int) -> None:
    """Sends the commands to both. Every reply, and every view after each batch, is as 7.0 owes."""
    pair = Pair(oracle)
    try:
        for at in range(0, len(commands), BATCH):
            pair.step(Turn(now, commands[at : at + BATCH]))
    finally:
        pair.close()


def test_random_histories(oracle: Oracle) -> None:
    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 1 << 32), commands=st.integers(1, 120))
    def run(seed: int, commands: int) -> None:
        source, now = played(random.Random(seed), commands)
        taken(oracle, rewritten(source.state, Target.REDIS_7_0)[0], now)

    run()


def test_without_a_mend_on_the_way(oracle: Oracle) -> None:
    """The state that tidelog shows, asked of the server directly: nothing but the rewrite was sent to it."""
    source = Tidelog()
    now = START_MS
    for line in SCRIPT.strip().split("\n"):
        now += 1
        source.run(now, line.encode().split())
    pair = Pair(oracle)
    try:
        pair.tidelog, pair.now = source, now
        oracle.clock.set(now)
        commands, lost = rewritten(source.state, Target.REDIS_7_0)
        for reply in pair.onlooker.pipeline(commands):
            assert not is_error(reply), reply
        assert {kind.value for kind, _, _ in lost.counts} == {"seen-time", "active-time"}
        compare(pair, pair.onlooker)
    finally:
        pair.close()


SCRIPT = """
XADD s 1-1 f v
XADD s 5-0 f v g w
XADD s 5-1 f v g w
XADD s 9-0 other v
XGROUP CREATE s g 0
XGROUP CREATE s h $
XREADGROUP GROUP g anna COUNT 1 STREAMS s >
XREADGROUP GROUP g ben COUNT 1 STREAMS s >
XCLAIM s g anna 0 5-1 TIME 5 RETRYCOUNT 9
XGROUP CREATECONSUMER s h carol
XSETID s 12-3 ENTRIESADDED 100
XGROUP CREATE empty g 0 MKSTREAM
XGROUP CREATE drained g 0 MKSTREAM
XADD drained 8-8 f v
XTRIM drained MAXLEN 0
SELECT 2
SET x one PXAT 1900000000000
SET y two
"""
