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

from tidelog.engine.rowkeys import key_prefix
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.batch.snapshots import opened

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


def test_a_key_whose_row_seems_to_be_of_another_table_is_not_lost(tmp_path: Path) -> None:
    """The first and last rows of a table may leave its range without leaving the order of the rows."""
    ((_, told),) = lives(tmp_path, range(1), 60)
    copy = tmp_path / "copy"
    shutil.copytree(told.path, copy)
    sound, data = answer(told.path, "keys"), (told.path / "data.mdb").read_bytes()
    with opened(str(told.path)) as sealed:
        tables = [table for table, count, _ in sealed.meta.tables["tables"] if count]
        rows = [row for table in tables for row, _ in sealed.rows.sizes(key_prefix(table))]
    assert len(rows) > 2
    for row in rows:
        for byte in range(5):
            for bit in (0, 7):
                changed = bytearray(data)
                changed[data.index(row) + byte] ^= 1 << bit
                (copy / "data.mdb").write_bytes(changed)
                found = answer(copy, "keys")
                assert isinstance(found, TidelogSparkError) or found == sound, (row, byte, bit)


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
