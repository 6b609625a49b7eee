"""The number of a life orders histories: a promotion outranks any number of restarts."""

from __future__ import annotations

from tidelog.aof.epochs import counter, generation, next_generation


def test_a_promotion_outranks_restarts() -> None:
    restarted = 1 + 4_000_000_000
    promoted = next_generation(7)
    assert generation(7) == generation(restarted) == 0 and counter(7) == 7
    assert (generation(promoted), counter(promoted)) == (1, 0)
    assert promoted > restarted
    assert next_generation(promoted + 5) == 2 << 32
    assert generation(promoted + 5) == 1 and counter(promoted + 5) == 5
