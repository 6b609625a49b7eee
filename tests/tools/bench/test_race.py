"""Races measure what they are told to, as often as they say, and nothing of the preparation."""

import time

from tidelog.tools.bench.race import Contender, race


def test_every_contender_runs_in_every_round_and_whole_quanta() -> None:
    runs: dict[str, list[int]] = {"a": [], "b": []}
    sides = [Contender(name, seen.append, quantum=10) for name, seen in runs.items()]
    rates = race(sides, rounds=4, slice_s=0.0001)
    assert list(rates) == ["a", "b"]
    for seen in runs.values():
        assert all(count % 10 == 0 and count > 0 for count in seen)
        assert len(set(seen[-4:])) == 1, "the size of a slice is found before the first round"


def test_preparation_and_clearing_up_are_not_measured() -> None:
    calls: list[str] = []

    def slow(count: int) -> None:
        calls.append("slow")
        time.sleep(0.02)

    def run(count: int) -> None:
        calls.append("run")

    began = time.perf_counter()
    spent = Contender("one", run, slow, slow).slice(1)
    assert calls == ["slow", "run", "slow"]
    assert spent < time.perf_counter() - began - 2 * 0.02


def test_a_slice_is_never_larger_than_the_contender_allows() -> None:
    seen: list[int] = []
    race([Contender("one", seen.append, most=50)], rounds=2, slice_s=0.1)
    assert max(seen) <= 50
