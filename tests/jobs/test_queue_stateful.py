"""The embedded queue beside its model: see `machine`."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from tests.jobs.machine import JumpyMachine, Machine, run
from tests.rounds import slow_and_soak


@pytest.mark.parametrize("machine", [Machine, JumpyMachine])
def test_the_queue_beside_its_model(machine: type[Machine]) -> None:
    """Without shrinking, which takes minutes: what fails here is found again, and made small, by the slow one."""
    run(machine, 12, 50)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", [Machine, JumpyMachine])
@pytest.mark.parametrize("count", slow_and_soak(150, 400))
def test_the_queue_beside_its_model_for_long(machine: type[Machine], count: int) -> None:
    run(machine, count, 60, Phase.shrink)
