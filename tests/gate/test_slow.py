"""Every slow test has its turn, those of changed rooms come first, and nothing is left out for ever."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from tests import turns
from tests.gate import slow
from tests.gate.durations import ROOT, durations
from tests.gate.slow import Choice, changed_rooms, choose, told

LONGEST_S = (
    80.0  # of one test: a longer one does not fit a turn, and is split or belongs to the soak
)


def table(seed: int, rooms: str = "abcd") -> dict[str, float]:
    r = random.Random(seed)
    names = {f"tests/{r.choice(rooms)}/test_{n}.py::test_{n}" for n in range(60)}
    return {name: r.choice([0.1, 2.0, 9.5, 40.0]) for name in names}


@pytest.mark.parametrize("seed", range(20))
def test_each_test_has_its_turn(seed: int) -> None:
    durations = table(seed)
    for changed in ([], ["a"], [*"abcd"]):
        missing = set(durations)
        first = random.Random(seed).randrange(10_000)
        turns = 2 + round(sum(durations.values()) / (100 * (1 - slow.CHANGED_PART)))
        for turn in range(first, first + turns):
            missing -= choose(durations, changed, turn, 100.0).taken
        assert not missing


@pytest.mark.parametrize("seed", range(20))
def test_a_turn_takes_about_its_seconds(seed: int) -> None:
    durations = table(seed)
    for turn in range(30):
        taken = choose(durations, ["a"], turn, 100.0).taken
        assert 20 <= sum(durations[name] for name in taken) <= 180  # it ends with whole tests
        assert choose(durations, ["a"], turn, 1e9) == Choice(frozenset(durations), frozenset())


def test_changed_rooms_have_the_larger_part_and_all_of_it_if_there_is_nothing_else() -> None:
    durations = {f"tests/{room}/test_{n}.py::test": 1.0 for room in "ab" for n in range(100)}
    taken = choose(durations, ["a"], 7, 50.0).taken
    assert sum(name.startswith("tests/a/") for name in taken) == 30
    assert len(taken) == 50
    assert len(choose(durations, ["a", "b"], 7, 50.0).taken) == 50
    assert len(choose(durations, [], 7, 50.0).taken) == 50
    small = {name: 1.0 for name in durations if name < "tests/a/test_20" or "/b/" in name}
    in_a = {name for name in small if "/a/" in name}
    assert choose(small, ["a"], 7, 50.0).taken >= in_a


def test_one_process_gets_no_more_than_its_part() -> None:
    durations = {
        f"tests/{room}/test_{n}.py::test": 1.0 for room in ("spark", "a") for n in range(100)
    }
    for changed in ([], ["spark"], ["a"], ["spark", "a"]):
        missing = set(durations)
        for turn in range(12):
            taken = choose(durations, changed, turn, 40.0).taken
            assert sum(name.startswith(slow.SPARK) for name in taken) == 12
            assert len(taken) == 40
            missing -= taken
        assert not missing


def test_the_guard_runs_in_every_turn() -> None:
    durations = slow.load()
    assert durations.keys() >= slow.ALWAYS
    for turn in range(100):
        assert choose(durations, ["docs"], turn, 100.0).taken >= slow.ALWAYS


def test_tests_of_several_rooms_run_when_one_of_them_changed() -> None:
    assert {"engine", "server", "oracle"} == slow.rooms_of("tests/oracle/test_x.py::test_x")
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir()}
    for folder, tried in slow.TRIED.items():
        assert (ROOT / "tests" / folder).is_dir() and tried <= rooms


def test_the_rooms_of_the_last_day_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "__file__", str(tmp_path / "turns.py"))
    assert changed_rooms() == set()

    def commit(day: int, *names: str) -> None:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{day}")
        when = f"2026-03-{day:02}T12:00:00Z"
        env = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        for words in (("add", "-A"), (*who, "commit", "-q", "-m", "x")):
            subprocess.run(["git", *words], cwd=tmp_path, check=True, env=env)

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(1, "spark/old.py")
    commit(9, "api/queue/base.py", "tests/aof/test_log.py", "tests/conftest.py")
    commit(9, "README.md")
    assert changed_rooms() == {"api", "aof", "tests", "README.md"}
    shallow = tmp_path / "shallow"
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{tmp_path}", shallow], check=True
    )
    monkeypatch.setattr(turns, "__file__", str(shallow / "turns.py"))
    assert "README.md" in changed_rooms()


def test_the_table_names_tests_that_are_there_and_not_too_long() -> None:
    for name, seconds in slow.load().items():
        file, *_, function = name.partition("[")[0].split("::")
        assert re.search(rf"\b{function}\b", (ROOT / file).read_text()), name
        assert seconds <= LONGEST_S, name


def test_what_is_left_out_is_told() -> None:
    names = ["tests/a/test_x.py::test_1", "tests/a/test_x.py::test_2", "tests/b/test_y.py::test"]
    choice = Choice(frozenset(["tests/c/test_z.py::test"]), frozenset(names))
    assert told(choice) == [
        "1 slow tests have their turn; 3 have it later:",
        "  tests/a/test_x.py (2)",
        "  tests/b/test_y.py (1)",
    ]


def test_the_table_is_made_from_the_report_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.gate.test_slow" name="test_a[1]" time="1.04"/>'
        '<testcase classname="tests.gate.test_slow" name="test_a[x-[]" time="2.5"/>'
        '<testcase classname="tests.gate.test_slow.TestB" name="test_b" time="0.26"/>'
        "</testsuite></testsuites>"
    )
    file = "tests/gate/test_slow.py"
    found = {f"{file}::TestB::test_b": 0.3, f"{file}::test_a": 3.5}
    assert durations(report) == found
    monkeypatch.setattr("tests.gate.durations.LONG_S", 3.0)
    del found[f"{file}::test_a"]
    assert durations(report) == found | {f"{file}::test_a[1]": 1.0, f"{file}::test_a[x-[]": 2.5}


def test_cases_of_a_long_test_have_turns_of_their_own() -> None:
    file = "tests/a/test_x.py"
    choice = Choice(frozenset(), frozenset([f"{file}::test_1", f"{file}::test_2[b]"]))
    assert not choice.runs(f"{file}::test_1[x]") and not choice.runs(f"{file}::test_2[b]")
    assert choice.runs(f"{file}::test_2[a]") and choice.runs(f"{file}::test_3")
