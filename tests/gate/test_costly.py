"""A costly test is slow: it has its turn, with the seconds that it took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.gate import costly, slow
from tests.gate.durations import ROOT
from tests.gate.test_sampled import Item

REPORT = """<testsuites><testsuite>
<testcase classname="tests.jobs.test_queue" name="test_quick[a]" time="0.4"/>
<testcase classname="tests.jobs.test_queue" name="test_quick[b]" time="0.4"/>
<testcase classname="tests.jobs.test_queue" name="test_long[a]" time="0.7"/>
<testcase classname="tests.jobs.test_queue" name="test_long[b]" time="0.7"/>
<testcase classname="tests.guard.test_guard" name="test_kept" time="9"/>
</testsuite></testsuites>"""
LONG = "tests/jobs/test_queue.py::test_long"


def test_what_a_report_shows_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((costly, "LIST"), (slow, "TABLE")):
        monkeypatch.setattr(module, name, tmp_path / name)
    monkeypatch.setattr(costly, "names", lambda: frozenset({"tests/aof/test_log.py::test_x"}))
    (tmp_path / "TABLE").write_text(json.dumps({LONG: 20.0}))
    (tmp_path / "report.xml").write_text(REPORT)
    assert costly.add(tmp_path / "report.xml") == [LONG]
    assert (tmp_path / "LIST").read_text().split() == ["tests/aof/test_log.py::test_x", LONG]
    assert slow.load() == {LONG: 21.4}


def test_all_cases_of_a_costly_test_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costly, "names", lambda: frozenset({LONG}))
    items: list[Any] = [Item(LONG, ["a"]), Item(LONG, ["b"], "soak"), Item(f"{LONG}er", ["a"])]
    costly.mark(items)
    assert [item.marks for item in items] == [["slow"], ["soak"], []]


def test_the_list_names_tests_that_exist_and_have_turns() -> None:
    """Otherwise they would run at each turn, or nobody would notice that one was renamed."""
    known = {name.partition("[")[0] for name in slow.load()}
    for name in costly.names():
        file, _, function = name.partition("::")
        assert name in known and not name.startswith(costly.KEPT)
        assert f"def {function.rpartition('::')[2]}(" in (ROOT / file).read_text(), name
