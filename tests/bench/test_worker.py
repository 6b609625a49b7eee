"""The process that a figure comes from: it does what it is told, says what went wrong, and is weighed from outside."""

import pytest
from bench.worker import Worker
from tests.bench.probe import Probe

MIB = 1 << 20


def test_only_the_work_of_a_slice_is_timed() -> None:
    with Worker("one", Probe) as worker:
        wall, cpu = worker.slice("work", 7, at_once=3)
        assert worker.call("told") == ["before 7 3", "work 7 3", "after 7 3"]
    assert 0 <= cpu < 0.05 and 0 <= wall < 0.05


def test_memory_is_seen_from_outside() -> None:
    with Worker("one", Probe) as worker:
        before = worker.anonymous()
        worker.peak()
        worker.call("hold", 40 * MIB)
        assert 35 * MIB < worker.peak() - before < 60 * MIB
        worker.call("hold", 0)
        worker.peak()
        assert worker.anonymous() - before < 10 * MIB


def test_a_call_that_fails_is_an_error_here(capfd: pytest.CaptureFixture[str]) -> None:
    with Worker("one", Probe) as worker:
        with pytest.raises(RuntimeError, match="one: fail failed in its process"):
            worker.call("fail")
    assert "told to fail" in capfd.readouterr().err


def test_one_that_does_not_start_is_an_error_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="the start failed"):
        Worker("one", Probe, fail=True)
    assert "told to fail" in capfd.readouterr().err
