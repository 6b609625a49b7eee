"""Exports in an object store: written, resumed, continued and combined there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.snapshot.buckets import Bucket
from tests.spark.exports.test_chain import change, state
from tests.spark.exports.test_export import in_this_process
from tests.spark.histories import Life, told_after
from tests.spark.test_tables import assert_same

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.export import export
from tidelog.spark.exports.task import Task, run


class Interrupted(Exception):
    pass


def test_a_chain_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 21)
    try:
        life.play(60)
        first = life.told()
        for _ in range(3):
            change(life)
        second = life.told()
    finally:
        life.close()
    base, newer = bucket.url("base"), bucket.url("newer")

    def interrupted(tasks: list[Task], advance: object) -> None:
        run(tasks[0])
        run(tasks[-1])
        raise Interrupted

    with pytest.raises(Interrupted):
        export(str(first.path), base, tables=("entries", "groups"), runner=interrupted)  # type: ignore[arg-type]
    with pytest.raises(TidelogSparkError, match="begun there and not completed"):
        state([base])
    with pytest.raises(TidelogSparkError, match="unfinished export of other content"):
        export(str(second.path), base, runner=in_this_process)
    done = export(str(first.path), base, tables=("entries", "groups"), runner=in_this_process)
    assert done.kept == 2 and "?" not in done.path
    assert set(bucket.names("base")) == {"_manifest.json", "_index.parquet", "entries", "groups"}
    assert export(str(first.path), base, tables=("entries", "groups")).existed
    export(str(second.path), newer, since=base, runner=in_this_process)
    assert_same(state([base]), first.tables["entries"])
    assert_same(state([base, newer]), second.tables["entries"])


def test_a_snapshot_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    told = told_after(tmp_path / "store", 22, 30)
    for name in ("data.mdb", "manifest.json"):
        bucket.put(f"{told.path.name}/{name}", (told.path / name).read_bytes())
    to = tmp_path / "to"
    done = export(bucket.url(told.path.name), str(to), runner=in_this_process)
    assert_same(state([str(to)]), told.tables["entries"])
    assert "?" not in done.seal.snapshot.path


def test_a_bucket_that_is_not_there(bucket: Bucket, tmp_path: Path) -> None:
    told = told_after(tmp_path / "store", 23, 5)
    other = bucket.url("x").replace(f"//{bucket.name}/", "//nothing/")
    with pytest.raises(TidelogSparkError) as failed:
        export(str(told.path), other, runner=in_this_process)
    assert failed.value.code == "TIDELOG_IO" and "nothing" in str(failed.value)
