"""A reader whose directory's name a restored store gets, which has other records under the same LSNs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rounds import rest_slow

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


@pytest.mark.parametrize("segment_bytes", rest_slow([4096, 1 << 20], 1))
@pytest.mark.parametrize("count", [3, 50, 51, 80, 300])
def test_it_shows_what_is_there_and_no_mixture(
    tmp_path: Path, count: int, segment_bytes: int
) -> None:
    root = tmp_path / "data"
    with tidelog.open(root, **OPTIONS, segment_bytes=segment_bytes) as db:
        db.xadd("s", {"n": "base"})
        made = db.snapshot()
        for n in range(50):
            db.xadd("s", {"old": n, "pad": "x" * 100})
        with tidelog.open(root, read_only=True) as reader:
            assert reader.xlen("s") == 51
            db.close()
            restore(RealDisk(), made.path, tmp_path / "restored")
            root.rename(tmp_path / "broken")
            (tmp_path / "restored").rename(root)
            with tidelog.open(root, **OPTIONS, segment_bytes=segment_bytes) as other:
                for n in range(count):
                    other.xadd("s", {"new": n, "pad": "x" * 100})
                reader.refresh()
                assert reader.xrange("s") == other.xrange("s")
                assert reader.digest() == other.digest()
                other.xadd("s", {"new": "more"})
                reader.refresh()
                assert reader.digest() == other.digest()
