"""Delayed jobs of the embedded queue beside their model: see `later_machine`."""

from __future__ import annotations

import pytest
from tests.jobs.later_machine import LaterMachine, run
from tests.rounds import slow_and_soak


@pytest.mark.parametrize("examples", [12, *slow_and_soak(150, 3000)])
def test_delayed_jobs_behave_as_their_model(examples: int) -> None:
    run(LaterMachine, examples)
