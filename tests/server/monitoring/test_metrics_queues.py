"""/metrics of queues: what a scrape tells of them, on a server and on an owner, and what it must not do."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from tests import inside
from tests.server.conftest import Start
from tests.server.monitoring.test_metrics import Watched
from tests.server.ports import free_port
from tests.server.wire import calls, connect

import tidelog
from tidelog.figures.names import HELPERS
from tidelog.figures.working import Working

MAILS = {"db": "0", "queue": "mails"}
WORKERS = MAILS | {"group": "workers"}
ROOT = Path(__file__).resolve().parents[3]
LABELS = {
    *("db", "stream", "group", "queue", "command", "code", "level", "policy", "role", "follower"),
    *("le", "redis_version", "run_id"),
}
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_VALUE = r"[+-]?(?:[0-9.]+(?:e[+-]?[0-9]+)?|Inf)|NaN"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(?:{_LABEL})(?:,{_LABEL})*\}})? (?:{_VALUE})\Z")


@pytest.fixture
def watched(start: Start) -> Watched:
    return Watched(start)


def spend(watched: Watched) -> None:
    """Of six jobs one is done, one failed and paused, one dead, one held, two wait; one is delayed, one cancelled."""
    db = watched.running.db
    mails = db.queue("mails", codec="bytes")
    mails.put_many([b"1", b"2", b"3", b"4", b"5", b"6"])
    mails.put(b"7", delay=3600)
    assert mails.cancel(mails.put(b"8", delay=3600))
    with closing(connect(watched.running.port)) as client:
        taken = [calls(client, "QUEUE TAKE mails w1")[0][0] for _ in range(3)]
        (done, failed, dead) = (job[0].decode() for job in taken)
        calls(client, f"QUEUE DONE mails w1 {done} 1")
        calls(client, f"QUEUE RETRY mails w1 {failed} 1 no-answer DELAY 600000")
        calls(client, f"QUEUE FAIL mails w1 {dead} 1 no-address")


def test_the_figures_of_a_queue(watched: Watched) -> None:
    spend(watched)
    held = watched.running.db.queue("mails", codec="bytes").get("w2", block=0)
    assert held is not None
    found = watched.samples()

    def value(name: str, labels: dict[str, str]) -> float | None:
        return found.get((f"queue_{name}", tuple(sorted(labels.items()))))

    of_group = {name: value(name, WORKERS) for name in ("depth", "waiting", "in_flight", "paused")}
    assert of_group == {"depth": 4, "waiting": 2, "in_flight": 1, "paused": 1}
    assert value("workers", WORKERS) == 1
    assert value("oldest_seconds", WORKERS) is not None
    assert (value("left_total", WORKERS), value("done_total", WORKERS)) == (2, 1)
    whole = {name: value(name, MAILS) for name in ("scheduled", "dead", "failures")}
    assert whole == {"scheduled": 1, "dead": 1, "failures": 2}
    names = ("put", "died", "failed", "retried", "cancelled")
    counted = {name: value(f"{name}_total", MAILS) for name in names}
    assert counted == {"put": 6, "died": 1, "failed": 2, "retried": 1, "cancelled": 1}
    assert value("held_seconds_count", MAILS) == 3
    assert found["queues_shown", ()] == 1
    stats = watched.running.db.queue("mails").stats()
    assert (stats.depth, stats.waiting, stats.paused) == (4, 2, 1)


def test_a_worker_that_waits_is_alive(watched: Watched) -> None:
    watched.running.db.queue("mails").put("x")
    with closing(connect(watched.running.port)) as client:
        assert calls(client, "QUEUE TAKE mails w1")
        client.begin(*b"QUEUE TAKE mails w2 BLOCK 0".split())
        assert watched.value("queue_workers", **WORKERS) in (1, 2)
        watched.ask("PING")
        assert watched.value("queue_workers", **WORKERS) == 2


def test_helper_streams_are_not_shown(watched: Watched) -> None:
    spend(watched)
    shown = {dict(labels).get("stream") for _, labels in watched.samples()} - {None}
    assert shown == {"mails"}
    assert not any(name.endswith(tuple(h.decode() for h in HELPERS)) for name in shown if name)


def test_queues_are_bounded_and_only_those_that_the_user_may_know(start: Start) -> None:
    watched = Watched(start, metrics_streams=2)
    for name in "dcba":
        watched.running.db.queue(name).put("x")
    queues = {dict(at)["queue"] for name, at in watched.samples() if name == "queue_depth"}
    assert queues == {"a", "b"}
    watched.ask("ACL SETUSER reports ~b %R~b", "CONFIG SET metrics-user reports")
    queues = {dict(at)["queue"] for name, at in watched.samples() if name == "queue_depth"}
    assert queues == {"b"}


def test_a_users_stream_with_the_name_of_a_helper_makes_no_queue(watched: Watched) -> None:
    watched.ask("XADD orders 1-1 a b", "XADD orders:dead 1-1 a b", "XGROUP CREATE orders:dead g 0")
    assert watched.value("queues_shown") == 0
    shown = {dict(labels).get("stream") for _, labels in watched.samples()} - {None}
    assert shown == {"orders", "orders:dead"}


def test_dead_jobs_of_an_earlier_life_are_counted_and_stay_cold(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db") as db:
        mails = db.queue("mails")
        mails.put("x")
        job = mails.get(block=0)
        assert job is not None and job.fail("no")
        db.checkpoint()
    with tidelog.open(tmp_path / "db") as db:
        core = inside.core(db)
        (one,) = Working(core).figures(10, lambda key: True)
        assert (one.dead, one.died, one.failed, one.put, one.workers) == (1, 1, 1, 1, 0)
        assert dict.get(core.state.databases[0].keys, b"mails:dead") is None


@pytest.mark.parametrize("folded", [False, True], ids=["log", "checkpoint"])
def test_jobs_of_an_earlier_life_that_no_worker_asked_for_are_counted(
    tmp_path: Path, folded: bool
) -> None:
    """Nobody has worked with the queue since, so an alert for it depends on these figures."""
    with tidelog.open(tmp_path / "db") as db:
        db.queue("mails").put_many(["x", "y"])
        db.xadd("orders", {"a": "b"})
        db.set("name", "ann")
        if folded:
            db.checkpoint()
    with tidelog.open(tmp_path / "db") as db:
        core = inside.core(db)
        working = Working(core)
        for _ in range(2):
            (one,) = working.figures(10, lambda key: True)
            assert (one.key, one.group, one.depth, one.waiting) == (b"mails", None, 2, 2)
            assert one.oldest_ms is not None and one.workers == 0
            resident = dict.get(core.state.databases[0].keys, b"mails")
            assert (resident is None) is folded
        mails = db.queue("mails")
        for job in mails.consume(block=0):
            with job:
                pass
        (one,) = working.figures(10, lambda key: True)
        assert (one.group, one.depth, one.oldest_ms, one.done) == (b"workers", 0, None, 2)


def test_a_stream_becomes_a_queue_by_its_first_job(watched: Watched) -> None:
    watched.ask("XADD orders 1-1 a b")
    assert watched.value("queues_shown") == 0
    watched.ask("DEL orders", "XADD orders 1-1 value 1")
    assert watched.value("queue_oldest_seconds", db="0", queue="orders", group="") is not None


def test_an_owner_has_the_same_metrics(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "tidelog.client.owner", str(tmp_path), f"metrics-port={port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None and owner.stdout.readline()
            with tidelog.connect(tmp_path) as db:
                db.queue("mails").put("x")
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as got:
                    text = got.read().decode()
        finally:
            owner.terminate()
    assert 'tidelog_queue_waiting{db="0",group="",queue="mails"} 1.0' in text or (
        'tidelog_queue_waiting{db="0",queue="mails",group=""} 1.0' in text
    )


def test_every_line_is_in_the_format(watched: Watched) -> None:
    """Strictly: types before samples, each family once, no sample twice, no label whose values nobody bounds."""
    spend(watched)
    watched.ask("SELECT 3", 'XADD "a\\"b" 1-1 x y')
    status, text = watched.get("/metrics")
    assert status == 200 and text.endswith("\n")
    types: dict[str, str] = {}
    seen: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = _SAMPLE.match(line)
            assert match is not None, line
            name = match.group(1)
            family = re.sub(r"_(bucket|sum|count)\Z", "", name)
            assert name in types or types.get(family) == "histogram", line
            assert (types.get(name) != "counter") or name.endswith("_total"), line
            assert {each for each in re.findall(r'([a-z_]+)="', line)} <= LABELS, line
            at = line.rpartition(" ")[0]
            assert at not in seen, line
            seen.add(at)


def test_the_guide_lists_every_metric(watched: Watched) -> None:
    spend(watched)
    told = set(re.findall(r"`tidelog_\w+`", (ROOT / "docs/guides/metrics.md").read_text()))
    names = {name for name in watched.families() if name.startswith("tidelog_")}
    missing = {
        name for name in names if not {f"`{name}`", f"`{name}_total`", f"`{name}_info`"} & told
    }
    assert not missing
