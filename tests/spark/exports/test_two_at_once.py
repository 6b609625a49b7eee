"""Two exports to one place at the same time: the content is that of one of them, and the other one knows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pytest
from pyiceberg.table import StaticTable
from tests.snapshot.buckets import Bucket
from tests.spark.exports.test_chain import state
from tests.spark.exports.test_export import in_this_process

import tidelog
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports import lakes
from tidelog.spark.exports.export import Advance, Exported, Progress, export
from tidelog.spark.exports.seal import ExportFile, read_export
from tidelog.spark.exports.target import LocalTarget, RemoteTarget
from tidelog.spark.exports.task import Task, run

COUNTS = (0, 3, 5)  # entries of each snapshot


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    found: list[str] = []
    with tidelog.open(tmp_path_factory.mktemp("two") / "store", fsync="no") as db:
        db.set("a", "b")
        for count in COUNTS:
            while db.xlen("s") < count:
                db.xadd("s", {"n": 1})
            found.append(str(db.snapshot().path))
    return found


def rows(kind: str, place: Path) -> int:
    """The number of rows that a program reads which knows the lake's own format only."""
    if kind == "delta":
        return int(deltalake.DeltaTable(str(place)).to_pyarrow_table().num_rows)
    return int(StaticTable.from_metadata(str(place)).scan().to_arrow().num_rows)


def meanwhile(then: Callable[[], object]) -> Progress:
    """Calls `then` once, after the export has looked at the table and before it commits."""
    waiting = [then]

    @contextmanager
    def progress(what: str, total: int) -> Iterator[Advance]:
        if waiting:
            waiting.pop()()
        yield lambda done: None

    return progress


@pytest.mark.parametrize("existing", (False, True))
@pytest.mark.parametrize("kind", ("delta", "iceberg"))
def test_commits_to_a_lake(snapshots: list[str], tmp_path: Path, kind: str, existing: bool) -> None:
    empty, older, newer = snapshots
    for other, one in ((newer, newer), (older, newer), (empty, newer)):
        place = tmp_path / f"{Path(other).name}-{Path(one).name}"
        if (
            existing
        ):  # an empty table: then no commit removes a file that another one removes as well
            lakes.export(empty, kind, str(place))
        among: list[lakes.Committed] = []

        def beside(place: Path = place, other: str = other) -> None:
            among.append(lakes.export(other, kind, str(place)))

        done = lakes.export(one, kind, str(place), progress=meanwhile(beside))
        assert rows(kind, place) == done.rows == COUNTS[-1]
        assert done.existed == (other == one)
        assert done.version == among[0].version + (other != one)


@pytest.mark.parametrize("kind", ("delta", "iceberg"))
def test_commits_that_always_come_first(snapshots: list[str], tmp_path: Path, kind: str) -> None:
    place = str(tmp_path / "lake")
    count = 0

    @contextmanager
    def progress(what: str, total: int) -> Iterator[Advance]:
        nonlocal count
        lakes.export(snapshots[count % 2], kind, place, replace_newer=True)
        count += 1
        yield lambda done: None

    with pytest.raises(TidelogSparkError, match=f"{place}: others committed first, 5 times. Run"):
        lakes.export(snapshots[2], kind, place, progress=progress)


def test_an_iceberg_commit_whose_hint_was_not_written(snapshots: list[str], tmp_path: Path) -> None:
    place = tmp_path / "lake"
    for snapshot in snapshots[1:]:
        lakes.export(snapshot, "iceberg", str(place))
    hint = place / "metadata/version-hint.text"
    hint.write_text("1")
    assert lakes.export(snapshots[2], "iceberg", str(place)).existed
    assert hint.read_text() == "2" and rows("iceberg", place) == COUNTS[2]


@pytest.fixture(params=("directory", "bucket"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "to")
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket.url("to")


@pytest.mark.parametrize("same", (False, True))
def test_files_of_which_another_export_is_begun_first(
    snapshots: list[str], place: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other export begins and ends after this one has seen that nothing is there."""
    others: list[Exported] = []
    target = RemoteTarget if "://" in place else LocalTarget
    files = target.files

    def seen(self: LocalTarget | RemoteTarget) -> dict[str, int]:
        found = files(self)  # type: ignore[arg-type]
        if not others:
            monkeypatch.setattr(target, "files", files)
            others.append(export(snapshots[2], place, runner=in_this_process))
        return found

    monkeypatch.setattr(target, "files", seen)
    if same:
        assert export(snapshots[2], place, runner=in_this_process).existed
    else:
        with pytest.raises(TidelogSparkError, match="holds another export, of LSN"):
            export(snapshots[1], place, runner=in_this_process)
    assert read_export(place).seal == others[0].seal
    assert len(state([place])) == COUNTS[2]


def test_files_of_two_exports_that_begin_at_once(
    snapshots: list[str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2)
    target = RemoteTarget if "://" in place else LocalTarget
    files = target.files
    waited = threading.local()

    def seen(self: LocalTarget | RemoteTarget) -> dict[str, int]:
        found = files(self)  # type: ignore[arg-type]
        if not hasattr(waited, "once"):
            waited.once = True
            together.wait(30)
        return found

    monkeypatch.setattr(target, "files", seen)
    told: list[Exported | TidelogSparkError] = []

    def one(snapshot: str) -> None:
        try:
            told.append(export(snapshot, place, runner=in_this_process))
        except TidelogSparkError as error:
            told.append(error)

    threads = [threading.Thread(target=one, args=(each,)) for each in snapshots[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.setattr(target, "files", files)
    (done,) = (each for each in told if isinstance(each, Exported))
    (lost,) = (each for each in told if isinstance(each, TidelogSparkError))
    assert place.partition("?")[0] in str(lost) and lost.code == "TIDELOG_EXPORT"
    assert read_export(place).seal == done.seal
    assert len(state([place])) == done.seal.tables["entries"]


def test_the_same_export_twice_at_a_url(snapshots: list[str], bucket: Bucket) -> None:
    """Both get on, one says that the other made it, and no file of either is left over."""
    place = bucket.url("to")
    others: list[Exported] = []

    def runner(tasks: Sequence[Task], advance: Advance) -> list[list[ExportFile]]:
        made = [run(task) for task in tasks[:1]]
        others.append(export(snapshots[2], place, runner=in_this_process))
        return made + [run(task) for task in tasks[1:]]

    done = export(snapshots[2], place, runner=runner)
    assert done.existed and done.seal == others[0].seal
    assert len(state([place])) == COUNTS[2]
    assert bucket.names("to") == ["_index.parquet", "_manifest.json", "entries"]
