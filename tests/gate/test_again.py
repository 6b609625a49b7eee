"""The gate itself, on small suites of its own: which failures are tried again, and what then fails the gate."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gate.planted import WHOLE, Suite
from tests.gate.unsteady import MOST, listed

SLOW = pytest.mark.slow
A, B = "tests/tools/test_some.py::test_a", "tests/tools/test_some.py::test_b"


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return Suite(tmp_path)


def test_a_failure_that_passes_alone_is_unsteady_and_does_not_stop_the_gate(suite: Suite) -> None:
    suite.write(
        "tests/tools/test_some.py",
        """
def test_steady(): tries("steady")

@pytest.mark.parametrize("a", ["b c::d, `e`"])
def test_value(a):
    print("seed 17")
    assert tries("value") == 2

def test_worker_that_dies():
    if tries("dies") == 1:
        os._exit(3)

@pytest.mark.timeout(0.1)
def test_time():
    if tries("time") == 1:
        time.sleep(60)

@pytest.fixture
def room():
    try:
        assert tries("room") == 2
    except AssertionError as error:
        error.add_note("seed 18")
        raise

def test_setup(room): pass
""",
    )
    suite.write(
        "tests/replication/test_some.py",
        """
def test_wait(): wait(lambda: tries("wait") == 2, "no follower came")
""",
    )
    report = suite.first("-n", "2", "--dist", "loadgroup", plugins=WHOLE)
    assert (report.collected, report.finished, report.passed, report.broken) == (6, 6, 1, [])
    code, lines = suite.again(plugins=WHOLE)
    assert code == 0, lines
    names = sorted(line.partition(", ")[0].partition("::")[2] for line in lines)
    assert names == [
        "test_setup",
        "test_time",
        "test_value[b c::d",
        "test_wait",
        "test_worker_that_dies",
    ]
    assert any("::test_value[b c::d, `e`], seed 17, 0." in line for line in lines)
    assert any("::test_setup, seed 18, 0." in line for line in lines)
    # In the first run the worker that replaces a dead one does not try its test.
    assert {name: suite.tries(name) for name in ("steady", "value", "dies", "time", "wait")} == {
        "steady": 1, "value": 2, "dies": 2, "time": 2, "wait": 2,
    }  # fmt: skip

    # They are listed once each, and one that is unsteady again fails the gate.
    assert suite.run("tests.gate.unsteady").stdout == "5 tests added to tests/UNSTEADY.md\n"
    assert suite.run("tests.gate.unsteady").stdout == "0 tests added to tests/UNSTEADY.md\n"
    known = "tests/tools/test_some.py::test_value[b c::d, `e`]"
    assert known in listed(suite.root / "tests/UNSTEADY.md")
    (suite.root / "value").unlink()
    assert len(suite.first("-k", "value").failed) == 1
    code, lines = suite.again()
    assert code == 1
    assert lines[1:] == [
        f"the gate fails: {known} is unsteady again and stands in tests/UNSTEADY.md"
    ]


def test_one_that_always_fails_stops_the_gate(suite: Suite) -> None:
    suite.write(
        "tests/tools/test_some.py",
        """
def test_always(): assert not tries("always")
def test_once(): assert tries("once") == 2
def test_later_left_out():
    if tries("left") == 2:
        pytest.skip()
    assert False
""",
    )
    suite.write("tests/tools/test_other.py", "def test_not_chosen(): tries('other')")
    assert suite.first().passed == 1
    code, lines = suite.again()
    assert (code, lines) == (1, ["the gate fails: only 2 of 3 tests were tried again"])
    for name in ("left", "once"):
        (suite.root / name).unlink()
    suite.first("--deselect", "tests/tools/test_some.py::test_later_left_out")
    code, (unsteady, failed) = suite.again()
    assert code == 1
    assert unsteady.startswith("unsteady: tests/tools/test_some.py::test_once, no seed, ")
    assert failed == "the gate fails: tests/tools/test_some.py::test_always failed again"
    assert (suite.tries("always"), suite.tries("other")) == (4, 2)


def test_a_strict_test_fails_at_once(suite: Suite) -> None:
    suite.write(
        "tests/replication/test_some.py",
        """
def test_value(): assert tries("value") == 2

def test_death(): tries("death") == 2 or os._exit(3)

@pytest.mark.timeout(0.1)
def test_time(): tries("time") == 2 or time.sleep(60)

def test_wait_and_value():
    try:
        wait(lambda: tries("wait_and_value") == 2)
    finally:
        raise ValueError
""",
    )
    suite.write("tests/tools/test_some.py", "def test_b(): assert tries('b') == 2")
    suite.first("-n", "1")
    code, (line,) = suite.again()
    assert code == 1
    names = ("death", "time", "value", "wait_and_value")
    before, _, strict = line.partition(": these may not fail even once: ")
    assert (before, sorted(strict.split(", "))) == (
        "the gate fails",
        [f"tests/replication/test_some.py::test_{name}" for name in names],
    )
    assert {suite.tries(name) for name in (*names, "b")} == {1}


def test_six_unsteady_tests_in_one_run_fail(suite: Suite) -> None:
    suite.write(
        "tests/tools/test_some.py",
        f"""
@pytest.mark.parametrize("n", range({MOST + 1}))
def test_a(n): assert tries(str(n)) == 2
""",
    )
    suite.first("-k", "not test_a[0]")
    code, lines = suite.again()
    assert (code, len(lines)) == (0, MOST)
    suite.first("-k", "test_a[0]")  # another part of the same run
    code, lines = suite.again()
    assert (code, lines[1:]) == (
        1,
        ["the gate fails: 6 tests were unsteady in one run, and 5 may be"],
    )
    assert suite.run("tests.gate.unsteady").stdout == "6 tests added to tests/UNSTEADY.md\n"


def test_more_failures_than_a_busy_machine_explains_are_not_tried_again(suite: Suite) -> None:
    suite.write(
        "tests/tools/test_some.py",
        """
@pytest.mark.parametrize("n", range(21))
def test_a(n): assert tries("a") > 21
""",
    )
    suite.first()
    assert suite.again() == (
        1,
        ["the gate fails: 21 tests failed, and more than 20 are not tried again"],
    )


@pytest.mark.parametrize(
    "body, words, reason",
    [
        pytest.param("raise KeyboardInterrupt", (), "pytest ended with status 2 (interrupted)", marks=SLOW),
        ("pytest.exit('enough', 0)", (), f"2 tests did not finish: {A}, {B}"),
        pytest.param("assert tries('a') == 2", ("-x",), f"1 tests did not finish: {B}", marks=SLOW),
        pytest.param("pass\nraise ValueError", (), "tests/tools/test_some.py could not be collected", marks=SLOW),
        ("pass\nraise ValueError", ("-n", "1"), "tests/tools/test_some.py could not be collected"),
        pytest.param("pass", ("-k", "none"), "pytest ended with status 5 (no tests collected)", marks=SLOW),
    ],
    ids=["interrupted", "exit", "first", "collection", "collection-xdist", "none"],
)  # fmt: skip
def test_a_run_that_was_not_whole_fails(
    body: str, words: tuple[str, ...], reason: str, suite: Suite
) -> None:
    suite.write("tests/tools/test_some.py", f"def test_a():\n    {body}\ndef test_b(): pass\n")
    assert reason in suite.first(*words).broken


def test_a_worker_that_dies_after_its_tests_makes_a_run_not_whole(suite: Suite) -> None:
    suite.write("tests/tools/test_some.py", "def test_a(): pass")
    suite.write(
        "conftest.py",
        """
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        os._exit(3)
""",
    )
    report = suite.first("-n", "1", "--max-worker-restart", "0")
    assert (report.passed, report.failed) == (1, [])
    assert report.broken == ["1 workers died, and not in a test"]


def test_an_error_of_pytest_itself_fails_and_so_does_a_report_that_is_missing(suite: Suite) -> None:
    suite.write("tests/tools/test_some.py", "def test_a(): assert tries('a') == 2\n")
    suite.write("conftest.py", "def pytest_runtest_logfinish(): raise ValueError\n")
    assert suite.first().broken == ["pytest ended with status 3 (internal error)"]
    code, lines = suite.again()
    assert (code, lines) == (
        1,
        ["the gate fails: the run was not whole: pytest ended with status 3 (internal error)"],
    )
    assert suite.again() == (1, ["the gate fails: pytest ended without a report (report)"])
    suite.report.write_text('{"failed": [')
    done = suite.run("tests.gate.again", "report")
    assert done.returncode == 1 and "cannot be read" in done.stdout
    # A run that dies leaves no report of one before it.
    suite.write("conftest.py", "def pytest_runtest_logfinish(): os._exit(1)\n")
    suite.run("pytest", "-q", "--gate-report", "report")
    assert not suite.report.exists()
    assert suite.tries("a") == 2


def test_a_run_in_which_all_passed_holds(suite: Suite) -> None:
    suite.write("tests/tools/test_some.py", "def test_a(): pass\ndef test_b(): pytest.skip()\n")
    suite.first()
    done = suite.run("tests.gate.again", "report")
    assert (done.returncode, done.stdout) == (0, "1 tests passed, 1 were skipped\n")
