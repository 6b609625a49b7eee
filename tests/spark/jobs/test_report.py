"""The report of a whole store, with the log's events: every number against what the store told while it was open."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.jobs import made as shops
from tests.spark.jobs.made import Told, unix_ms
from tests.spark.jobs.queued import made
from tests.tools.report_page import Page

import tidelog
from tidelog.testing import Clock
from tidelog.tools import cli, exits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The store with a queue in it, and one more snapshot."""
    told = shops.made(tmp_path_factory.mktemp("reported") / "orders", seed=5)
    clock = Clock(max(row[2] for row in told.events))
    clock.advance(100)
    with tidelog.open(told.path, fsync="no", clock=clock) as db:
        mails = db.queue("mails")
        for number in range(4):
            mails.put(number)
        clock.advance(30)
        failed = mails.get("w", block=0)
        clock.advance(5)
        assert failed is not None and failed.fail("no such address")
        held = mails.get("w", block=0)
        assert held is not None and mails.stats().depth == 3
        db.snapshot()
    return told


IN_SPARK = ("--master", "local[2]")


@pytest.mark.parametrize(
    "where",
    [pytest.param((), id="here"), pytest.param(IN_SPARK, id="spark", marks=pytest.mark.slow)],
)
def test_a_report(
    spark: SparkSession,
    shop: Told,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    where: tuple[str, ...],
) -> None:
    out = tmp_path / "report.html"
    args = ["report", str(shop.path), "-o", str(out), "--log", "--poison", "3", *where]
    assert cli.run(args) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.startswith(f"{out}: 6 sections of the snapshot at LSN ")
    page = Page(out.read_text())
    assert page.titles == [
        *("Hottest streams", "Hottest fields", "Delivery latency", "Lag of groups"),
        *("Poison messages", "Queue mails"),
    ]
    assert set(page.charts) == set(page.titles)
    assert [caption.split(",")[0] for caption in page.captions] == page.titles

    rows = [fields for _, _, fields in shop.entries]
    nbytes = sum(len(name) + len(value) for row in rows for name, value in row.items())
    (orders,) = (row for row in page.tables["Hottest streams"] if row[0] == "orders")
    assert orders[1:4] == [f"{len(rows):,}", f"{2 * len(rows):,}", f"{nbytes:,}"]
    assert ["orders", "user"] in [row[:2] for row in page.tables["Hottest fields"]]

    deliveries = Counter(
        (row[6], row[7]) for row in shop.events if row[4] in ("delivered", "claimed")
    )
    table = page.tables["Delivery latency"]
    assert table[0][:3] == ["group", "consumer", "deliveries"]
    assert {(row[0], row[1]): row[2] for row in table[1:] if row[0] != "mails workers"} == {
        (f"orders {group.decode()}", consumer.decode()): f"{number:,}"
        for (group, consumer), number in deliveries.items()
    }

    lag = {row[0]: row for row in page.tables["Lag of groups"][1:]}
    for name, (behind, pending, _) in shop.groups[-1][2].items():
        row = lag[f"orders {name.decode()}"]
        assert row[3:5] == ["" if behind is None else str(behind), str(pending)]
    assert "Over 4 snapshots" in out.read_text()

    poisoned = {
        (f"orders {group.decode()}", id): (str(count), str(unix_ms(at)))
        for (group, id), (_, at, count) in shop.pending.items()
        if count >= 3
    }
    table = page.tables["Poison messages"][1:]
    assert {(row[0], row[2]) for row in table} == set(poisoned)
    assert {row[3] for row in table} == {count for count, _ in poisoned.values()}

    jobs = {row[0]: row for row in page.tables["Queue mails"][1:]}
    assert {state: row[1] for state, row in jobs.items()} == {
        "waiting": "2",
        "in_flight": "1",
        "dead": "1",
    }
    # waited: all jobs were put 30 seconds before the first was taken; worked: the dead one for 5, by the log
    head = page.tables["Queue mails"][0]
    waited, worked = head.index("waited p50 (ms)"), head.index("worked p50 (ms)")
    assert {jobs[state][waited] for state in ("in_flight", "dead")} == {"35,000", "30,000"}
    assert (jobs["dead"][worked], jobs["in_flight"][worked]) == ("5,000", "0")


@pytest.mark.slow
@pytest.mark.parametrize("log", [(), ("--log",)])
def test_the_report_is_the_same_without_spark(
    spark: SparkSession, shop: Told, tmp_path: Path, log: tuple[str, ...]
) -> None:
    """Over a store of plain groups, and one of queues in all states, of two databases, with names that are no text."""
    queued = tmp_path / "queued"
    made(queued)
    for store in shop.path, queued:
        shown = []
        for name, where in ("here", ()), ("spark", IN_SPARK):
            out = tmp_path / f"{store.name}-{name}.html"
            args = ["report", str(store), "-o", str(out), *log, *where]
            assert cli.run([*args, "--poison", "2", "--top", "500"]) == 0
            shown.append(
                [line for line in out.read_text().splitlines() if "report made" not in line]
            )
        assert shown[0] == shown[1]


def test_damage_is_one_line(
    spark: SparkSession, shop: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = max((shop.path / "snapshots").glob("0*"))
    copy = tmp_path / snapshot.name
    copy.mkdir()
    for file in snapshot.iterdir():
        data = bytearray(file.read_bytes())
        if file.name == "data.mdb":
            at = data.rindex(b"no such address")
            data[at] ^= 1
        (copy / file.name).write_bytes(data)
    out = tmp_path / "report.html"
    assert cli.run(["report", str(copy), "-o", str(out), *IN_SPARK]) == exits.DAMAGED
    told = capsys.readouterr()
    line = told.err.splitlines()[-1]
    assert line.startswith("tidelog: [TIDELOG_DAMAGED] ") and str(copy) in line, told.err
    assert "Traceback" not in line and not out.exists()
