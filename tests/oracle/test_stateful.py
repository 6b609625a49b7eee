"""The comparison with 7.0 and 8.2 once more, as a hypothesis state machine: smaller runs, shrunk by hypothesis."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.oracle.conftest import Oracle
from tests.oracle.driver import Pair
from tests.oracle.export import assert_export_agrees, assert_replay_agrees
from tests.oracle.grammar import Grammar, Grammar82
from tests.rounds import some_and_all

draws = st.randoms(use_true_random=False)


@pytest.mark.parametrize("examples", some_and_all(20, 40))
def test_tidelog_and_redis_step_by_step(oracle: Oracle, examples: int) -> None:
    step_by_step(oracle, Grammar, examples)


@pytest.mark.parametrize("examples", some_and_all(10, 40))
def test_tidelog_and_redis_8_2_step_by_step(oracle_8_2: Oracle, examples: int) -> None:
    step_by_step(oracle_8_2, Grammar82, examples)


def step_by_step(oracle: Oracle, grammar: type[Grammar], examples: int) -> None:
    class Both(RuleBasedStateMachine):
        """Every step is one turn to both, compared as in test_differential."""

        @initialize(r=draws)
        def start(self, r: random.Random) -> None:
            self.pair = Pair(oracle)
            self.grammar = grammar(r)
            self.pair.step(self.grammar.turn(fill=True))

        @rule(r=draws)
        def turn(self, r: random.Random) -> None:
            self.grammar.r = r
            self.pair.step(self.grammar.turn())

        @rule()
        def the_log_replays(self) -> None:
            assert_replay_agrees(self.pair.tidelog)

        def teardown(self) -> None:
            if hasattr(self, "pair"):
                self.pair.close()
                assert_replay_agrees(self.pair.tidelog)
                assert_export_agrees(self.pair, oracle)

    run_state_machine_as_test(
        Both,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
