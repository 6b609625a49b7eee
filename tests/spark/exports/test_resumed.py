"""An interrupted export goes on: it keeps whole files and writes the others again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.spark.exports.test_export import exported, rows
from tests.spark.histories import Told, told_after
from tests.spark.test_tables import assert_same

from tidelog.snapshot.manifest import check_of
from tidelog.spark.exports.export import export
from tidelog.spark.exports.task import Task, run

OPTIONS = {"targetPartitionBytes": "2000"}


class Interrupted(Exception):
    pass


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Told, Path]:
    """A snapshot, and an export of it that has everything but the seal."""
    told = told_after(tmp_path / "store", 41, 60)

    def interrupted(tasks: list[Task], advance: object) -> None:
        for task in tasks:
            run(task)
        raise Interrupted

    with pytest.raises(Interrupted):
        export(str(told.path), str(tmp_path / "to"), options=OPTIONS, runner=interrupted)  # type: ignore[arg-type]
    return told, tmp_path / "to"


def finished(told: Told, to: Path) -> int:
    """Go on with the export, and compare it. Returns how many tasks were kept."""
    done = exported(told, to, options=OPTIONS)
    assert_same(rows(done, "entries"), told.tables["entries"])
    assert not [path for path in to.rglob("*") if path.name.endswith(".new")]
    return done.kept


def test_nothing_is_written_again(begun: tuple[Told, Path]) -> None:
    told, to = begun
    tasks = len(list(to.glob("_task-*.json")))
    assert finished(told, to) == tasks > 3


def test_a_changed_file_is_written_again(begun: tuple[Told, Path]) -> None:
    told, to = begun
    tasks = len(list(to.glob("_task-*.json")))
    file = sorted((to / "entries").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert finished(told, to) == tasks - 1


def test_a_missing_file_and_a_damaged_record(begun: tuple[Told, Path]) -> None:
    told, to = begun
    records = sorted(to.glob("_task-*.json"))
    sorted((to / "entries").iterdir())[-1].unlink()
    records[1].write_bytes(records[1].read_bytes()[:-5])
    records[0].write_text("[]")
    (to / "entries/.part-00000.parquet.01234567.new").write_bytes(b"left by a killed process")
    (to / "entries/part-99999.parquet").write_bytes(b"of no task")
    assert finished(told, to) == len(records) - 3
    assert not (to / "entries/part-99999.parquet").exists()


def test_records_of_a_plan_that_was_cut_elsewhere(begun: tuple[Told, Path]) -> None:
    """As if other versions had run two tasks: one did not say which rows a task reads, one cut elsewhere."""
    told, to = begun
    tasks = len(list(to.glob("_task-*.json")))
    record = to / "_task-00001.json"
    facts = json.loads(record.read_bytes())
    del facts["work"], facts["check"]
    record.write_text(json.dumps({**facts, "check": check_of(facts)}))
    second = json.loads((to / "_task-00002.json").read_bytes())
    del second["check"]
    second["work"] = "of other streams"
    (to / "_task-00002.json").write_text(json.dumps({**second, "check": check_of(second)}))
    assert finished(told, to) == tasks - 2
