"""An incremental export reads the index of its snapshot and what changed, and little else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.spark.bulk import BY_HAND, add, name_of, store

import tidelog
from tidelog.aof.identity import DATA
from tidelog.snapshot.place import LocalPlace
from tidelog.spark.exports.export import export
from tidelog.spark.exports.run import Advance
from tidelog.spark.exports.seal import ExportFile
from tidelog.spark.exports.task import Task, run

STREAMS, LENGTH = 3, 20_000


def here(tasks: Sequence[Task], advance: Advance) -> list[list[ExportFile]]:
    return [run(task) for task in tasks]


def test_one_entry_in_a_hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, base, newer = store(tmp_path, STREAMS, LENGTH), str(tmp_path / "1"), str(tmp_path / "2")
    export(str(place), base, options={"columns": "ms"}, runner=here)
    with tidelog.open(place, **BY_HAND) as db:
        for number in range(STREAMS):
            add(db, number, LENGTH // 100)
            db.xtrim(name_of(number), maxlen=LENGTH, approximate=False)
        path = db.snapshot().path
    found: list[int] = []
    read_at = LocalPlace.read_at

    def counted(self: LocalPlace, file: str, offset: int, nbytes: int) -> bytes:
        data = read_at(self, file, offset, nbytes)
        if file == DATA:
            found.append(len(data))
        return data

    monkeypatch.setattr(LocalPlace, "read_at", counted)
    made = export(str(path), newer, since=base, options={"columns": "ms"}, runner=here)
    assert made.seal.tables["entries"] == STREAMS * LENGTH // 100
    assert sum(found) <= 0.05 * (path / DATA).stat().st_size
