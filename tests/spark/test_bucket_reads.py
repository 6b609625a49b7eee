"""One stream out of a bucket costs no more requests than reads of a local file, and hardly more bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark import counting
from tests.spark.bulk import name_of, store
from tests.spark.counting import counted

from tidelog.disk.real import RealDisk
from tidelog.snapshot.place import LocalPlace, Place
from tidelog.snapshot.remote import RemotePlace


class Bucket(LocalPlace):
    """A local directory that is read as a bucket is."""

    least = RemotePlace.least


def in_bucket(path: str) -> Place:
    return Bucket(RealDisk(), Path(path))


def test_one_stream_out_of_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, stream = str(store(tmp_path, 20, 5_000)), name_of(10)
    local = counted(path, stream)
    monkeypatch.setattr(counting, "place_of", in_bucket)
    found = counted(path, stream)
    assert found.entries == local.entries == 5_000
    # A page of the tree costs 32 KiB of a bucket, and how many pages lead to one stream depends on where it lies.
    assert found.nbytes <= 1.15 * local.nbytes
    assert found.reads <= local.reads
