"""The process that a figure comes from: it does what it is told, says what went wrong, and is weighed from outside."""

from pathlib import Path

import pytest

from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.opened import Opened
from tidelog.tools.bench.processes.pauses import Gaps

MIB = 1 << 20


def test_it_keeps_its_object_between_calls(tmp_path: Path) -> None:
    with Fresh(Opened, tmp_path / "store") as fresh:
        assert len(fresh.call("fill", 2_000, 100)) == 100
        assert fresh.call("scan", 1) > 0
        assert fresh.call("deliver", 1_500) == []
        fresh.call("acknowledge", 1_000)
    with Fresh(Opened, tmp_path / "store") as again:
        assert again.call("scan", 3) > 0


def test_a_call_that_fails_is_an_error_here(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Fresh(Opened, tmp_path / "store") as fresh:
        with pytest.raises(RuntimeError, match="read_each failed"):
            fresh.call("read_each", ["1-1"])
    assert "LookupError" in capfd.readouterr().err


def test_one_that_does_not_start_is_an_error_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="the start failed"):
        Fresh(Opened, tmp_path / "not" / "there")
    assert "CannotOpen" in capfd.readouterr().err


def test_memory_is_seen_from_outside(tmp_path: Path) -> None:
    with Fresh(Opened, tmp_path / "store", "random") as fresh:
        before = fresh.anonymous()
        fresh.peak()
        fresh.call("add", 100_000)
        assert 5 * MIB < fresh.peak() - before < 60 * MIB


def test_gaps_lie_between_the_ends_of_calls() -> None:
    left = iter(range(2_000))
    seen: list[tuple[str, object]] = []

    def call(key: str, fields: object) -> None:
        seen.append((key, fields))

    found = Gaps(5_000).run(call, lambda: next(left, None) is None)
    assert found["calls"] == len(seen) == 2_000
    assert 0 < found["p99.9"] <= found["worst"]
    assert Gaps(10).run(call, lambda: False)["calls"] == 10, "it ends where its room does"
