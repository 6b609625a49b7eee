"""tidelog report: the file that it writes, and the errors that it tells in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.rounds import rest_slow
from tests.spark.jobs.queued import TICKS, made
from tests.tools.conftest import Run
from tests.tools.report_page import Page

import tidelog
from tidelog.figures.queues import in_state
from tidelog.spark.jobs.terms import STATES
from tidelog.spark.source.batch.snapshots import opened
from tidelog.testing import Clock
from tidelog.tools import exits, installed
from tidelog.tools.report import command as report
from tidelog.tools.report.log_events import written
from tidelog.tools.report.page import page
from tidelog.tools.report.plain_log import log_of
from tidelog.tools.report.section import Chart, Section, Series


def test_a_page_shows_any_name_and_loads_nothing() -> None:
    odd = "<b>&\"' $x^2$ \\x00 ünï"
    chart = Chart(
        "bars", [odd, "b"], [Series("p50", [1, None]), Series(odd, [3.5, 1e9])], "ms", log=True
    )
    lines = Chart("lines", ["a", "b"], [Series("s", [None, 2.0])], "entries")
    stacked = Chart("stacked", ["q"], [Series("waiting", [1]), Series("dead", [2])], "jobs")
    found = Page(
        page(
            odd,
            {"store": odd},
            [
                Section(odd, odd, ("name", "n"), [(odd, 1234567), (None, 0.25)], chart, True),
                Section("Lag", "", ("name",), [("x",)], lines),
                Section("Queue", "", ("name",), [], stacked),
                Section("Nothing", "", ("name",), [], None),
            ],
        )
    )
    assert found.titles == [odd, "Lag", "Queue", "Nothing"]
    assert found.tables[odd] == [["name", "n"], [odd, "1,234,567"], ["", "0.25"]]
    assert len(found.charts) == len(found.captions) == 3
    assert ">1M<" in found.charts[odd]  # numbers of the axis are plain text
    assert "mathdefault" not in found.charts[odd]


def test_a_page_is_the_same_in_each_run() -> None:
    chart = Chart("bars", ["a"], [Series("p50", [1])], "ms")
    sections = [Section("One", "", ("n",), [(1,)], chart)]
    assert page("t", {}, sections) == page("t", {}, sections)


# --- errors, before Spark is started


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with tidelog.open(tmp_path / "orders") as db:
        db.xadd("orders", {"item": "tea"})
    return tmp_path / "orders"


def no_session(master: str) -> None:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("nothing", "-o", "a.html"), exits.NOT_A_STORE, "nothing is neither a store nor a snapshot"),
        (("orders", "-o", "a.html"), exits.NOT_A_STORE, "tidelog snapshot create"),
        (("orders", "-o", "a.html", "--snapshot", "77"), exits.NOT_A_STORE, "no snapshot of LSN 77"),
        (("orders", "-o", "a.html", "--snapshot", "all"), exits.USAGE, "a report shows one snapshot"),
        (("orders", "-o", "there.html"), exits.SYSTEM, "there.html exists already; give another name, or --force"),
        (("orders", "-o", "no/a.html"), exits.SYSTEM, "no/a.html: its directory does not exist"),
        (("orders", "-o", "a.html", "--events", "none", "--snapshot", "now"), exits.SYSTEM, "none: the file or dir"),
        (("orders", "-o", "a.html", "--log", "--master", "yarn"), exits.USAGE, "--log works only with a Spark master"),
        (("orders", "-o", "a.html", "--queue", "mails:dead:workers"), exits.USAGE, "a queue's own streams"),
    ],
)  # fmt: skip
def test_errors_are_one_line(
    run: Run,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(store.parent)
    monkeypatch.setattr(report, "spark_session", no_session)
    Path("there.html").write_text("mine")
    done = run("report", *args)
    assert (done.code, done.out) == (code, ""), done.err
    lines = done.err.splitlines()
    assert text in lines[-1] and (len(lines) == 1 or code == exits.USAGE)
    assert not Path("a.html").exists() and Path("there.html").read_text() == "mine"


def test_a_package_that_is_missing(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None if name == "matplotlib" else name)
    done = run("report", store, "-o", store / "a.html")
    assert done == (
        exits.SYSTEM,
        "",
        "tidelog: tidelog report needs matplotlib; install with: pip install 'tidelog[report]'\n",
    )


# --- small stores, without Spark


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queued") / "store"
    made(path)
    return path


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of Spark is installed."""
    monkeypatch.setattr(report, "spark_session", no_session)
    missing = ("pyspark", "pyarrow")
    monkeypatch.setattr(installed, "find_spec", lambda name: None if name in missing else name)


@pytest.mark.parametrize("log", rest_slow([(), ("--log",)], 1))
def test_a_small_store_needs_no_spark(
    run: Run, queued: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: tuple[str, ...]
) -> None:
    without_spark(monkeypatch)
    done = run("report", queued, "-o", tmp_path / "a.html", *log, "--poison", TICKS - 1)
    assert (done.code, done.err) == (0, "")
    found = Page((tmp_path / "a.html").read_text())
    latency = found.tables["Delivery latency"]
    first = latency[0].index("p50 (ms)")
    # delayed jobs and schedules are no deliveries
    assert not any("due" in row[0] or row[first].startswith("-") for row in latency[1:])
    assert not any("due" in row[0] for row in found.tables["Lag of groups"])
    assert "Poison messages" not in found.tables
    states = {row[0]: row[1] for row in found.tables["Queue mails"][1:]}
    assert states["scheduled"] == "3" and states["dead"] == "2", states
    assert [row[:2] for row in found.tables["Queue only-later"][1:]] == [["scheduled", "1"]]


def test_the_queues_are_those_of_all_views(run: Run, tmp_path: Path) -> None:
    """In a report, at a path, at a URL, and for a server's clients: the same queues with the same jobs."""
    root, clock = tmp_path / "store", Clock()
    with tidelog.open(root, clock=clock) as db, tidelog.serve(db, port=0) as serving:
        mails = db.queue("mails", max_deliveries=2, keep=2)
        mails.put_many(["done", "held", "paused", "dead", "new"])
        mails.put("urgent", priority=3)
        mails.put("later", delay=3600)
        held: list[object] = []
        for end in ("ack", "ack", None, "nack", "fail"):
            job = mails.get("ann", block=0)
            assert job is not None
            if end is None:
                held.append(job)
            elif end == "nack":
                assert job.nack("busy", delay=3600)
            else:
                assert getattr(job, end)()
        db.queue("ranked").put(1, priority=9)
        db.queue("delayed", "others").put(1, delay=3600)
        drained = db.queue("drained", "readers")
        drained.put(1)
        done = drained.get(block=0)
        assert done is not None and done.ack()
        for key in ("orders", "log:later", "own:priority:2", "own:dead"):
            db.xadd(key, {"item": "tea"})
            db.xgroup_create(key, "workers", id="0")
        snapshot = db.snapshot()
        url = f"redis://127.0.0.1:{serving.port}"
        listed = [
            [json.loads(line) for line in run("queue", "ls", place, "--json").out.splitlines()]
            for place in (root, url)
        ]
        with tidelog.connect(url) as client:
            told = client.execute_command("QUEUE", "LIST")
    queues = {"mails": "workers", "ranked": "workers", "delayed": "workers", "drained": "readers"}
    assert {name.decode(): group.decode() for name, group in told} == queues
    for rows in listed:
        assert {row["name"]: row["group"] for row in rows} == queues
    assert run("report", snapshot.path, "-o", tmp_path / "a.html").code == 0
    page = Page((tmp_path / "a.html").read_text())
    assert {title[6:] for title in page.titles if title.startswith("Queue ")} == {*queues}
    with opened(str(snapshot.path)) as sealed:
        rows = in_state(sealed.state(), (0,), sealed.manifest.now_ms)
    for row in rows:
        counts = {state: getattr(row, state) or 0 for state in STATES}
        table = page.tables.get(f"Queue {row.key.decode()}", [])  # none without a job
        shown = {each[0]: int(each[1]) for each in table[1:]}
        assert shown == {state: count for state, count in counts.items() if count}, row.key
        if row.key == b"mails":
            assert all(counts.values()), counts


def test_spark_runs_for_a_larger_store_and_when_it_is_asked_for(
    run: Run, queued: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    out = tmp_path / "a.html"
    needs = "tidelog: tidelog report in Spark needs pyspark and pyarrow; install with: pip install 'tidelog[report]'\n"
    assert run("report", queued, "-o", out, "--master", "local[2]") == (exits.SYSTEM, "", needs)
    assert run("report", queued, "-o", out, "--events", queued) == (exits.SYSTEM, "", needs)
    monkeypatch.setattr(report, "ITEMS_MAX", 5)
    assert run("report", queued, "-o", out) == (exits.SYSTEM, "", needs)
    monkeypatch.setattr(report, "ITEMS_MAX", 500)
    monkeypatch.setattr(report, "LOG_BYTES_MAX", 5)
    assert run("report", queued, "-o", out, "--log") == (exits.SYSTEM, "", needs)
    assert run("report", queued, "-o", out).code == 0


def test_the_modules_of_spark_are_not_loaded(queued: Path, tmp_path: Path) -> None:
    args = ["report", str(queued), "-o", str(tmp_path / "a.html"), "--log"]
    asked = f"import sys; from tidelog.tools import cli; assert cli.run({args!r}) == 0; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert not {"pyspark", "pyarrow"} & set(done.stdout.split())


def test_damage_without_spark(run: Run, queued: Path, tmp_path: Path) -> None:
    snapshot = max((queued / "snapshots").glob("0*"))
    copy = tmp_path / snapshot.name
    shutil.copytree(snapshot, copy)
    data = bytearray((copy / "data.mdb").read_bytes())
    data[data.rindex(b"no such address")] ^= 1
    (copy / "data.mdb").chmod(0o600)
    (copy / "data.mdb").write_bytes(data)
    done = run("report", copy, "-o", tmp_path / "a.html")
    assert (done.code, done.out) == (exits.DAMAGED, "")
    assert done.err.startswith("tidelog: [TIDELOG_DAMAGED] ") and str(copy) in done.err
    assert done.err.count("\n") == 1 and not (tmp_path / "a.html").exists()


def test_events_of_a_log_whose_beginning_was_released(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "orders", retain_bytes=0) as db:
        db.xadd("orders", {"item": "early"})
        db.xgroup_create("orders", "g", id="0")
        db.checkpoint()
        db.xadd("orders", {"item": "late"})
        db.checkpoint()
        (_, rows), *_ = db.xreadgroup("g", "c", {"orders": ">"})
        db.xack("orders", "g", rows[0][0])
    found = pq.read_table(written(log_of(tmp_path / "orders"), tmp_path / "events")).to_pylist()
    assert [row["event"] for row in found][-3:] == ["delivered", "delivered", "acknowledged"]
    assert (found[-3]["group"], found[-3]["consumer"], found[-3]["delivery_count"]) == (
        b"g",
        b"c",
        1,
    )
    ids = [entry_id.decode() for entry_id, _ in rows]
    assert [row["id"] for row in found][-3:] == [*ids, ids[0]]
