"""Options select what they say, for random stores and random choices of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import rest_slow
from tests.spark.histories import Told, lives
from tests.spark.rows import rows

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.options import parse

COLUMNS = "db,stream,id,ms,seq,ts,fields"
Row = dict[str, Any]


def entry_id(row: Row) -> int:
    ms, seq = row["id"].split("-")
    return int(ms) << 64 | int(seq)


def text(number: int) -> str:
    return f"{number >> 64}-{number & (1 << 64) - 1}"


def counted(found: list[Row]) -> Counter[str]:
    return Counter(repr((row["db"], row["stream"], row["id"], row["fields"])) for row in found)


def choices(r: random.Random, all_rows: list[Row]) -> tuple[dict[str, str], Callable[[Row], bool]]:
    """Random options, and whether they select an entry."""
    some = r.choice(all_rows)
    options: dict[str, str] = {}
    tests: list[Callable[[Row], bool]] = []
    if r.random() < 0.3:
        options["db"] = str(some["db"])
        tests.append(lambda row: row["db"] == some["db"])
    if r.random() < 0.3:
        names = sorted({row["stream"] for row in r.sample(all_rows, min(3, len(all_rows)))})
        options["streams"] = json.dumps([name.decode("utf-8", "surrogateescape") for name in names])
        tests.append(lambda row: row["stream"] in names)
    if r.random() < 0.2:
        options["streamsPattern"] = "?"
        tests.append(lambda row: fnmatchcase(row["stream"].decode("latin-1"), "?"))
    if r.random() < 0.6:
        start, end = sorted(entry_id(r.choice(all_rows)) for _ in range(2))
        if r.random() < 0.7:
            options["startId"] = text(start)
            tests.append(lambda row: entry_id(row) >= start)
        if r.random() < 0.5:
            options["endId"] = text(end) if r.random() < 0.5 else str(end >> 64)
            least = end if "-" in options["endId"] else end | (1 << 64) - 1
            tests.append(lambda row: entry_id(row) <= least)
    if r.random() < 0.3 and some["ms"] is not None:
        options["startTimestamp"] = str(some["ms"])
        tests.append(lambda row: entry_id(row) >> 64 >= some["ms"])
    options["targetPartitionBytes"] = str(r.choice((1, 200, 5000, 1 << 24)))
    options["batchRows"] = str(r.choice((1, 7, 10_000)))
    if r.random() < 0.2:
        options["maxPartitions"] = str(r.choice((1, 2)))
    return options, lambda row: all(test(row) for test in tests)


def check(told: Told, r: random.Random) -> None:
    whole = rows(told.path, columns=COLUMNS)
    if not whole:
        return
    for _ in range(6):
        options, selected = choices(r, whole)
        found = rows(told.path, columns=COLUMNS, **options)
        assert counted(found) == counted([row for row in whole if selected(row)]), options


@pytest.mark.parametrize("first", rest_slow(range(5_000, 5_400, 10), 1))
def test_options_select_what_they_say(tmp_path: Path, first: int) -> None:
    r = random.Random(first)
    for seed, told in lives(tmp_path, range(first, first + 4), 40):
        print("seed", seed)
        check(told, r)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "no snapshot or store is named"),
        ({"path": "x", "paths": "[]"}, "either path or paths"),
        ({"paths": "x"}, "a JSON list of paths"),
        ({"path": "x", "tabel": "keys"}, "unknown option tabel; did you mean table"),
        ({"path": "x", "table": "rows"}, "give entries or streams"),
        ({"path": "x", "columns": "id,id"}, "appears twice"),
        ({"path": "x", "columns": "idd"}, "has no column idd; it has db, stream"),
        ({"path": "x", "columns": " , "}, "list of columns is empty"),
        ({"path": "x", "db": "99999"}, "a number from 0 to"),
        ({"path": "x", "startId": "1-2-3"}, "an ID as ms or ms-seq"),
        ({"path": "x", "startId": str(1 << 64)}, "an ID as ms or ms-seq"),
        ({"path": "x", "startTimestamp": "noon"}, "Unix milliseconds, or a time"),
        ({"path": "x", "snapshot": "newest"}, "latest, all, now or an LSN"),
        (
            {"path": "x", "table": "keys", "startId": "1"},
            "option startId can only be used with table=entries, not keys",
        ),
        ({"path": "x", "batchRows": "0"}, "a number from 1"),
        ({"path": "x", "streams": "[1]"}, "a name, or a JSON list of names"),
        ({"path": "x", "streams": '["\\ud800"]'}, "a byte that is not UTF-8 is"),
        ({"path": "x", "streamsPattern": "\ud800*"}, "a byte that is not UTF-8 is"),
    ],
)
def test_a_wrong_option_is_one_precise_error(options: dict[str, str], error: str) -> None:
    with pytest.raises(TidelogSparkError, match=error) as caught:
        parse(options)
    assert caught.value.code == "TIDELOG_OPTION"


def test_names_that_are_not_utf8() -> None:
    """Python gives such arguments of a command as surrogates, and JSON can spell them, through Java, too."""
    assert parse({"path": "x", "streams": "a\udcff"}).streams == (b"a\xff",)
    assert parse({"path": "x", "streams": '["a", "\\udcff"]'}).streams == (b"a", b"\xff")
    assert parse({"path": "x", "streamsPattern": "\udcff*"}).pattern == b"\xff*"
