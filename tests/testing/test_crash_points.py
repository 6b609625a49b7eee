"""Long programs under `tidelog_crash`: no mistake is passed over, its first line is named, and a failure is kept."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.testing.test_crashes import failure, line_of
from tests.testing.test_guide import run_pytest
from tests.tools.benches import begin

import tidelog
from tidelog.testing.crashes import Crashes, Told
from tidelog.tools import exits

SETS = 320
STATES = 200  # as pytest has it by default
HASTY = """
def test_shop(tidelog_crash):
    def life(db, told):
        for n in range(SETS):
            told(n)
            db.set(f"key {n}", n)
    def after(db, told):
        assert told.count <= len(db.keys())
    tidelog_crash(life, after, double=False)
"""


def hasty(*when: int) -> Callable[[tidelog.Store, Told], None]:
    """A long program that tells too early, in two places."""

    def life(db: tidelog.Store, told: Told) -> None:
        for n in range(SETS):
            if n == when[0]:
                told(n)  # the first mistake
            if n == when[1]:
                told(n)  # the second mistake
            db.set(f"key {n}", n)
            if n not in when:
                told(n)

    return life


def all_told_are_there(db: tidelog.Store, told: Told) -> None:
    keys = set(db.keys())
    assert all(f"key {n}".encode() in keys for n in told)


@pytest.mark.parametrize("seed", rest_slow(range(3), 1))
@pytest.mark.parametrize(
    ("kind", "when"),
    [
        ("kill", (17, 300)),
        ("power", (301, 40)),
        pytest.param("kill", (301, 40), marks=pytest.mark.slow),
        pytest.param("power", (17, 300), marks=pytest.mark.slow),
    ],
)
def test_a_long_life_is_found_at_its_first_mistake(
    seed: int, kind: str, when: tuple[int, int]
) -> None:
    life = hasty(*when)
    crashes = Crashes(seed, STATES)
    text = failure(crashes, life, all_told_are_there, crashes=(kind,), double=False)
    name = "# the first mistake" if when[0] < when[1] else "# the second mistake"
    assert line_of(life, name) in text
    assert f", {min(when)}\n" in text  # told last


def test_a_state_that_was_passed_over_is_tried_when_a_later_one_fails() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        for n in range(SETS):
            db.set("one", n)
            if n >= 100:
                db.set("other", n)  # not in one unit
            if n % 10 == 9:
                told(n)

    def after(db: tidelog.Store, told: Told) -> None:
        one, other = db.get("one"), db.get("other")
        assert one is None or int(one) < 100 or one == other

    text = failure(Crashes(2, 40), life, after, crashes=("kill",), double=False)
    assert line_of(life, 'db.set("one", n)') in text
    assert "the last ones 59, 69, 79, 89, 99\n" in text


def test_states_that_even_then_are_passed_over_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.testing.crashes.EARLIER", 3)

    def life(db: tidelog.Store, told: Told) -> None:
        for n in range(60):
            db.set("one", n)
        told("all")
        db.set("last", 1)

    def after(db: tidelog.Store, told: Told) -> None:
        assert db.get("last") is not None or not told.count

    text = failure(Crashes(1, 5), life, after, crashes=("kill",), double=False)
    assert 'told("all")' in text
    assert text.endswith(" earlier states were not tried: the first line may be before this one")


def test_the_points_that_were_tried_are_told() -> None:
    lines: list[str] = []

    def life(db: tidelog.Store, told: Told) -> None:
        for n in range(50):
            db.set(f"key {n}", n)
            told(n)

    crashes = Crashes(1, 20, tell=lines.append)
    crashes(life, all_told_are_there, crashes=("kill",), double=False)
    assert 50 < crashes.points_tried < crashes.points
    assert lines == [
        f"{crashes.points_tried:,} of {crashes.points:,} crash points tried; more with --crash-states"
    ]
    lines.clear()
    crashes = Crashes(1, 10_000, tell=lines.append)
    crashes(life, all_told_are_there, crashes=("kill",), double=False)
    assert (crashes.points_tried, lines) == (crashes.points, [])


def program(directory: Path, text: str) -> None:
    (directory / "test_shop.py").write_text(text)
    # Nothing of another run is met there.
    (directory / "shm").mkdir()
    (directory / "conftest.py").write_text(
        "import pathlib, tidelog.testing.scratch as scratch\n"
        f"scratch.TMPFS = pathlib.Path({str(directory / 'shm')!r})\n"
    )


def test_a_failure_is_kept_and_shown_and_the_next_one_replaces_it(tmp_path: Path) -> None:
    program(tmp_path, HASTY.replace("SETS", "3"))
    for _ in range(2):
        done = run_pytest(tmp_path, "--crash-keep", "kept")
        assert "show it again: tidelog crash replay kept/test_shop.py-test_shop\n" in done.stdout
    (kept,) = (tmp_path / "kept").iterdir()
    shown = begin(tmp_path / "shm", "crash", "replay", kept)
    out, err = shown.communicate(timeout=120)
    assert (shown.returncode, err) == (exits.OK, "")
    first, *lines = out.splitlines()
    assert first.startswith("failed: after a crash the check failed: AssertionError")
    assert any(line.startswith("layer test, seed 0, policy always, tidelog ") for line in lines)
    assert "line test_shop.py:5: told(n)" in lines
    assert "acknowledged by then: 0" in lines
    assert lines[-2:] == [
        "now: the store is empty",
        "run the test again with --crash-seed 0: only that knows what is wrong here",
    ]


def test_the_summary_says_what_was_passed_over(tmp_path: Path) -> None:
    right = HASTY.replace("            told(n)\n", "", 1).replace(
        "n)\n    def after", "n)\n            told(n)\n    def after"
    )
    program(tmp_path, right.replace("SETS", "8"))
    for workers in ((), ("-n", "1")):
        done = run_pytest(tmp_path, "--crash-states", "5", *workers)
        assert "\n1 passed in" in done.stdout, done.stdout
        _, said, line, *_ = done.stdout.rpartition("- tidelog_crash -")
        assert said, done.stdout
        assert " crash points tried; more with --crash-states\n" in line
        assert "test_shop.py::test_shop: " in line


def test_what_a_killed_run_left_is_named_and_cleared(tmp_path: Path) -> None:
    killed = HASTY.replace("told(n)", "import os; os.kill(os.getpid(), 9)").replace("SETS", "3")
    program(tmp_path, killed)
    done: subprocess.CompletedProcess[str] = run_pytest(tmp_path)
    assert done.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "shm").iterdir()
    (tmp_path / "test_shop.py").write_text(HASTY.replace("told(n)", "told").replace("SETS", "3"))
    done = run_pytest(tmp_path, "-W", "ignore")
    assert f"test_shop.py::test_shop: removed {left}, which a killed run left\n" in done.stdout
    assert list((tmp_path / "shm").iterdir()) == []
