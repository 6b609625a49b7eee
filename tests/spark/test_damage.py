"""A damaged snapshot gives the right rows or an error that names the place: never a wrong row, a crash or a hang."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import some_and_all
from tests.spark.histories import lives
from tests.spark.rows import rows

from tidelog.spark.errors import TidelogSparkError

TABLES = ("entries", "streams", "groups", "consumers", "pending", "keys")


def damage(data: bytearray, r: random.Random) -> str:
    """Change the bytes of a data.mdb at random; say how."""
    at = r.randrange(len(data))
    way = r.choice(("flip", "flip", "flip", "bytes", "zeros", "cut", "copy"))
    if way == "flip":
        data[at] ^= 1 << r.randrange(8)
    elif way == "bytes":
        data[at : at + 8] = r.randbytes(len(data[at : at + 8]))
    elif way == "zeros":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif way == "cut":
        del data[at:]
    else:
        page, other = (r.randrange(len(data) // 4096) * 4096 for _ in range(2))
        data[page : page + 4096] = data[other : other + 4096]
    return f"{way} at {at}"


def answer(path: Path, table: str) -> list[str] | TidelogSparkError:
    try:
        return sorted(map(repr, rows(path, table=table, batchRows="50")))
    except TidelogSparkError as error:
        return error


SOAK = [pytest.param(20_000, marks=pytest.mark.soak, id=f"soak-{n}") for n in range(5)]


@pytest.mark.parametrize("rounds", [*some_and_all(150, 5_000), *SOAK])
def test_a_damaged_snapshot_gives_no_wrong_row(tmp_path: Path, rounds: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    r = random.Random(seed)
    told = [each for _, each in lives(tmp_path, range(3), 60)]
    sound: dict[tuple[Path, str], Any] = {
        (each.path, table): answer(each.path, table) for each in told for table in TABLES
    }
    copies = {each.path: tmp_path / f"copy-{at}" for at, each in enumerate(told)}
    for path, copy in copies.items():
        shutil.copytree(path, copy)
    errors = 0
    for _ in range(rounds):
        path = r.choice(list(copies))
        data = bytearray((path / "data.mdb").read_bytes())
        what = damage(data, r)
        (copies[path] / "data.mdb").write_bytes(data)
        table = r.choice(TABLES)
        found = answer(copies[path], table)
        if isinstance(found, TidelogSparkError):
            errors += 1
            assert str(copies[path]) in str(found), what
            assert "Traceback" not in str(found)
        else:
            assert found == sound[path, table], what
    assert errors > rounds / 10
