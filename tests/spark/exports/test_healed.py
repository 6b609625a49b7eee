"""An error of reading or writing that heals: the task fails, so that Spark tries it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports import run
from tidelog.spark.exports.export import export
from tidelog.spark.exports.task import Task


class Context:
    """The part of Spark that an export uses. It runs each task in this process, up to `attempts` times.

    between   called after a failed attempt
    """

    def __init__(self, attempts: int, between: Callable[[], object]) -> None:
        self.attempts, self.between, self.failed = attempts, between, 0
        self.sparkContext = self

    def setJobGroup(self, group: str, text: str) -> None: ...

    def statusTracker(self) -> Context:
        return self

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return []

    def parallelize(self, tasks: Sequence[Task], slices: int) -> Context:
        self.tasks = tasks
        return self

    def map(self, work: Callable[[Task], Any]) -> Context:
        self.work = work
        return self

    def collect(self) -> list[Any]:
        return [self._tried(task) for task in self.tasks]

    def _tried(self, task: Task) -> Any:
        for attempt in range(self.attempts):
            try:
                return self.work(task)
            except Exception as error:
                self.failed += 1
                if attempt + 1 == self.attempts:
                    raise RuntimeError(
                        f"Job aborted\nTraceback ...\nE: {error}\n\tat java"
                    ) from None
                self.between()
        raise AssertionError


@pytest.mark.parametrize("heals", (True, False))
def test_a_directory_that_cannot_be_made_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heals: bool
) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        db.xadd("s", {"a": 1})
        snapshot = db.snapshot().path
    to = tmp_path / "to"
    to.mkdir()
    blocked = to / "entries"

    def runner(tasks: Sequence[Task], advance: Callable[[int], object]) -> Any:
        blocked.write_text("a file where a directory should be")
        return run.in_spark(context)(tasks, advance)  # type: ignore[arg-type]

    context = Context(4, blocked.unlink if heals else lambda: None)
    if heals:
        export(str(snapshot), str(to), runner=runner)
        assert context.failed == 1
    else:
        with pytest.raises(TidelogSparkError) as failed:
            export(str(snapshot), str(to), runner=runner)
        assert failed.value.code == "TIDELOG_IO" and "\n" not in str(failed.value)
        assert str(to) in str(failed.value) and context.failed == 4
