"""Every table of a snapshot says what the store's own commands say, read without a JVM."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import lmdb
import pytest
from tests.rounds import rest_slow
from tests.spark.histories import Told, lives
from tests.spark.rows import rows

from tidelog.snapshot.rows.seal import CRC_BYTES
from tidelog.spark.source.batch.snapshots import opened

STORES = 4


def ms(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its times as unix ms."""
    return {
        name: round(value.timestamp() * 1000) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def frozen(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, repr(value)) for name, value in row.items()))


def assert_same(found: list[dict[str, Any]], told: list[dict[str, Any]]) -> None:
    """The same rows in any order; only the columns that were told."""
    names = told[0].keys() if told else set()
    seen = Counter(frozen({name: row[name] for name in names}) for row in map(ms, found))
    assert seen == Counter(map(frozen, told))


def assert_all_tables(told: Told) -> None:
    for table, expected in told.tables.items():
        found = rows(told.path, table=table)
        if table == "keys":
            strings = [row for row in expected if row["type"] == "string"]
            assert_same([row for row in found if row["type"] == "string"], strings)
            assert_same(
                [row for row in found if row["type"] == "stream"],
                [row for row in expected if row["type"] == "stream"],
            )
        elif table == "entries":
            everything = "db,stream,id,id_key,fields"
            assert_same(rows(told.path, columns=everything), expected)
            small = rows(told.path, columns=everything, targetPartitionBytes="100", batchRows="3")
            assert_same(small, expected)
            ids = [{name: row[name] for name in ("db", "stream", "id")} for row in expected]
            assert_same(rows(told.path, columns="db,stream,id"), ids)
        else:
            assert_same(found, expected)


def assert_rows_are_those_of_lmdb(snapshot: Path) -> None:
    """The tables are made of rows that were read without LMDB; LMDB reads the same ones."""
    data = str(snapshot / "data.mdb")
    with lmdb.Environment(data, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        stored = [(bytes(key), bytes(value)) for key, value in txn.cursor()]
    with opened(str(snapshot)) as sealed:
        assert list(sealed.rows.values(b"")) == stored
        assert list(sealed.rows.rows(b"")) == [(key, value[:-CRC_BYTES]) for key, value in stored]


@pytest.mark.parametrize("first", rest_slow(range(0, 2000, STORES), 2))
def test_tables_say_what_the_store_says(tmp_path: Path, first: int) -> None:
    for seed, told in lives(tmp_path, range(first, first + STORES), 40):
        print("seed", seed)
        assert_all_tables(told)
        assert_rows_are_those_of_lmdb(told.path)
