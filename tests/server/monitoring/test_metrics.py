"""/metrics and /health over HTTP, and what a scrape costs those who use the store."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests import inside
from tests.server.conftest import Running, Start
from tests.server.loop import loop_held
from tests.server.ports import free_port
from tests.server.wire import calls, connect
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.real import RealFile
from tidelog.engine.streams.stream import Stream
from tidelog.figures import resident
from tidelog.server.config.config import ConfigError
from tidelog.server.monitoring.collector import SyncTimes
from tidelog.server.monitoring.times import SYNC_BUCKETS_S

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Watched:
    """A server with metrics."""

    def __init__(self, start: Start, **options: Any) -> None:
        self.http_port = free_port()
        self.running: Running = start(metrics_port=self.http_port, **options)

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """(status, body)."""
        url = f"http://127.0.0.1:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, headers=headers), timeout=PATIENCE_S
            ) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def families(self) -> dict[str, Metric]:
        status, text = self.get("/metrics")
        assert status == 200
        return {family.name: family for family in text_string_to_metric_families(text)}

    def samples(self) -> Samples:
        return {
            (
                sample.name.removeprefix("tidelog_"),
                tuple(sorted(sample.labels.items())),
            ): sample.value
            for family in self.families().values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, tuple(sorted(labels.items()))))

    def ask(self, *commands: str) -> list[Any]:
        with closing(connect(self.running.port)) as client:
            return calls(client, *commands)


@pytest.fixture
def watched(start: Start) -> Watched:
    return Watched(start)


def test_streams_and_groups(watched: Watched) -> None:
    watched.ask("XADD a 1-1 f v", "XADD a 2-1 f v", "XADD a 3-1 f v", "XDEL a 1-1")
    watched.ask("XGROUP CREATE a g 0", "XREADGROUP GROUP g c COUNT 1 STREAMS a >")
    watched.ask("XGROUP CREATE a tail $", "SELECT 5", "XADD b 1-1 f v", "SET s text")
    time.sleep(0.05)
    found = watched.samples()
    a, g = (("db", "0"), ("stream", "a")), (("db", "0"), ("group", "g"), ("stream", "a"))
    tail = (("db", "0"), ("group", "tail"), ("stream", "a"))
    assert found["stream_length", a] == 2
    assert found["stream_entries_added", a] == 3
    assert found["stream_groups", a] == 2
    assert found["stream_length", (("db", "5"), ("stream", "b"))] == 1
    assert found["group_lag", g] == 1 and found["group_lag", tail] == 0
    assert found["group_pending", g] == 1 and found["group_pending", tail] == 0
    assert found["group_consumers", g] == 1
    assert 0.05 <= found["group_oldest_pending_seconds", g] < 20
    assert ("group_oldest_pending_seconds", tail) not in found
    assert found["streams_shown", ()] == 2
    assert found["keys", (("db", "0"),)] == 1 and found["keys", (("db", "5"),)] == 2
    assert found["expiring_keys", (("db", "5"),)] == 0


def test_what_a_consumer_gave_back_is_not_waited_for(watched: Watched) -> None:
    watched.ask("XADD a 1-1 f v", "XADD a 2-1 f v", "XGROUP CREATE a g 0")
    watched.ask("XREADGROUP GROUP g c COUNT 1 STREAMS a >", "XNACK a g FAIL IDS 1 1-1")
    labels = {"db": "0", "stream": "a", "group": "g"}
    assert watched.value("group_pending", **labels) == 1
    assert watched.value("group_oldest_pending_seconds", **labels) is None
    watched.ask("XREADGROUP GROUP g c COUNT 1 STREAMS a >")
    age = watched.value("group_oldest_pending_seconds", **labels)
    assert age is not None and age < 20


def test_only_the_first_streams_by_name(start: Start) -> None:
    watched = Watched(start, metrics_streams=3)
    watched.ask(
        *(f"XADD {name} 1-1 x y" for name in "edcba"), "SET aa 1", "SELECT 1", "XADD a 1-1 x y"
    )
    shown = [
        dict(labels)["stream"] for name, labels in watched.samples() if name == "stream_length"
    ]
    assert sorted(shown) == ["a", "b", "c"]
    assert Watched(start, metrics_streams=0).value("streams_shown") == 0


def test_names_that_are_no_text_and_names_that_look_alike(watched: Watched) -> None:
    names = [b'\xff\n"', b'\\xff\n"', "grün\U0001f40d".encode(), b"\0", b""]
    with closing(connect(watched.running.port)) as client:
        calls(client, *([b"XADD", name, b"1-1", b"x", b"y"] for name in names))
        calls(client, *([b"XGROUP", b"CREATE", b"", name, b"0"] for name in names))
    shown = [
        dict(labels)["stream"] for name, labels in watched.samples() if name == "stream_length"
    ]
    assert sorted(shown) == sorted(['\\xff\n"', "grün\U0001f40d", "\0", ""])


def test_a_scrape_loads_nothing(watched: Watched) -> None:
    db = watched.running.db
    watched.ask(
        "XADD a 1-1 x y",
        "XADD b 1-1 x y",
        "XGROUP CREATE a g 0",
        "XREADGROUP GROUP g c STREAMS a >",
    )
    db.checkpoint()
    with inside.lock(db):
        assert inside.databases(db)[0].keys.evict(b"a")
    labels = {"db": "0", "stream": "a"}
    assert watched.value("stream_length", **labels) is None
    assert watched.value("stream_length", db="0", stream="b") == 1
    assert watched.value("keys", db="0") == 2
    assert dict.get(inside.databases(db)[0].keys, b"a") is None
    watched.ask("XLEN a")
    assert watched.value("stream_length", **labels) == 1
    # The stream is there again, its pending entries are not: their age is known from the directory of chunks.
    found = watched.samples()
    group = (("db", "0"), ("group", "g"), ("stream", "a"))
    assert found["group_pending", group] == 1
    assert found["group_oldest_pending_seconds", group] < 20
    stream = inside.databases(db)[0].keys[b"a"]
    assert isinstance(stream, Stream) and stream.groups[b"g"].pending.orders.away


def test_the_server_and_its_commands(watched: Watched) -> None:
    with closing(connect(watched.running.port)) as client:
        client.begin(*b"XREAD BLOCK 0 STREAMS a $".split())
        until(lambda: watched.running.server.blocked == 1)
        watched.ask("XADD b * x y", "XADD b 0-0 x y", "XADD b nonsense x y", "SET s 1", "XLEN s")
        xadd = (("command", "xadd"),)
        # Calls are counted with each sample of the rates.
        until(lambda: watched.samples().get(("commands_total", xadd)) == 3)
        found = watched.samples()
    assert found["blocked_clients", ()] == 1
    assert found["connected_clients", ()] >= 1
    assert found["connections_received_total", ()] == 2
    assert found["net_input_bytes_total", ()] > 100 and found["net_output_bytes_total", ()] > 10
    assert found["commands_failed_total", xadd] == 2
    assert 0 < found["commands_duration_seconds_total", xadd] < 20
    assert found["error_replies_total", (("code", "ERR"),)] == 2
    assert found["error_replies_total", (("code", "WRONGTYPE"),)] == 1
    assert found["replication_role", (("role", "master"),)] == 1
    assert found["replication_followers", ()] == 0


def test_the_log_and_the_checkpoint(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(start, fsync="no")
    watched.ask("XADD a * x y", "WAITAOF 1 0 0")
    before = watched.samples()
    assert before["fsync_duration_seconds_count", ()] >= 1
    assert 0 < before["fsync_duration_seconds_sum", ()] < 20
    buckets = [
        value for (name, _), value in before.items() if name == "fsync_duration_seconds_bucket"
    ]
    assert len(buckets) == len(SYNC_BUCKETS_S) + 1 and buckets == sorted(buckets)
    assert before["log_exposed_bytes", ()] == 0
    watched.ask("XADD a * x y")
    time.sleep(0.02)
    found = watched.samples()
    assert found["log_exposed_bytes", ()] > 20 and found["log_exposed_seconds", ()] >= 0.02
    added, synced = (found["log_lsn", (("level", level),)] for level in ("added", "fsynced"))
    assert added == synced + 1 == found["log_lsn", (("level", "written"),)]
    assert found["log_fsync_policy", (("policy", "no"),)] == 1
    assert found["log_failed", ()] == found["log_replies_parked", ()] == 0
    assert found["checkpoint_lsn", ()] == found["checkpoint_timestamp_seconds", ()] == 0
    assert found["log_records_since_checkpoint", ()] == added
    watched.ask("SAVE")
    found = watched.samples()
    assert found["checkpoint_lsn", ()] == added
    assert abs(found["checkpoint_timestamp_seconds", ()] - time.time()) < 60
    assert found["log_records_since_checkpoint", ()] == found["checkpoint_failed", ()] == 0


def test_every_fsync_is_counted_also_by_a_log_that_is_begun_anew(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(start, fsync="always")
    done: list[float] = []
    sync = RealFile.fdatasync

    def fdatasync(file: RealFile) -> None:
        sync(file)
        if file.path.suffix == ".aof":  # DURABLE is synced when a log is opened
            done.append(1)

    monkeypatch.setattr(RealFile, "fdatasync", fdatasync)
    for number in range(1, 11):
        watched.ask(f"XADD a {number}-1 x y")
    assert watched.value("fsync_duration_seconds_count") == len(done) >= 10
    core = inside.core(watched.running.db)
    with core.lock:
        core.log._doubts(RuntimeError("a write broke off"))
        core.landing.trouble = "a write broke off"
    watched.ask("XLEN a", "XADD a 11-1 x y")
    assert watched.value("fsync_duration_seconds_count") == len(done) >= 11


def test_a_store_is_served_once(start: Start) -> None:
    running = start()
    with pytest.raises(ConfigError, match="already being served"):
        tidelog.serve(running.db, port=0)
    running.serving.close()
    with tidelog.serve(running.db, port=0) as again:  # and again after that
        assert again.port


def test_sync_times_fall_into_their_buckets() -> None:
    times = SyncTimes()
    for seconds in (0.0, 0.00005, 0.00006, 9.0, 10.0, 11.0, 1000.0):
        times.observe(seconds)
    assert times.counts[0] == 2 and times.counts[1] == 1
    assert times.counts[-2] == 2 and times.counts[-1] == 2
    assert times.seconds == pytest.approx(1030.00011)


def test_both_formats(watched: Watched) -> None:
    watched.ask("XADD a 1-1 x y")
    status, text = watched.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200 and text.endswith("# EOF\n")
    assert "tidelog_stream_length" in {family.name for family in _openmetrics(text)}
    for family in watched.families().values():
        assert family.documentation and len(family.samples) < 100


def _openmetrics(text: str) -> list[Metric]:
    return list(openmetrics.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


# --- health


def test_health(watched: Watched) -> None:
    status, body = watched.get("/health")
    assert status == 200
    health = json.loads(body)
    assert health["status"] == "ok" and health["role"] == "master"
    assert health["exposed_bytes"] == 0 and health["fsync"] == "everysec"


def test_a_poisoned_store_is_not_healthy(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(start, fsync="no")

    def fdatasync(file: RealFile) -> None:
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(RealFile, "fdatasync", fdatasync)
    watched.ask("XADD a 1-1 x y", "WAITAOF 1 0 0")
    status, body = watched.get("/health")
    assert status == 503 and "the disk is broken" in json.loads(body)["reason"]
    assert watched.value("log_failed") == 1
    monkeypatch.undo()
    watched.running.serving.close()
    with pytest.raises(tidelog.StorePoisoned):
        watched.running.db.close()


def test_a_loop_or_a_store_that_hangs_is_noticed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.server.monitoring.metrics.HEALTH_S", 0.1)
    watched = Watched(start)
    with loop_held(watched.running):
        status, body = watched.get("/health")
    assert status == 503 and "event loop" in json.loads(body)["reason"]
    until(lambda: watched.get("/health")[0] == 200)
    with inside.lock(watched.running.db):
        until(lambda: "the store did not answer" in watched.get("/health")[1])
    until(lambda: watched.get("/health")[0] == 200)


def test_a_store_that_needs_its_memory_rebuilt_has_it_rebuilt(watched: Watched) -> None:
    core = inside.core(watched.running.db)
    watched.ask("XADD a 1-1 x y")
    with core.lock:
        core.landing.trouble = "memory may be ahead"
    assert watched.get("/health")[0] == 200
    assert core.trouble is None


# --- the HTTP server


def test_other_paths_and_methods(watched: Watched) -> None:
    assert watched.get("/")[0] == watched.get("/metrics/x")[0] == 404
    assert watched.get("/metrics?name=x")[0] == 200
    with closing(socket.create_connection(("127.0.0.1", watched.http_port), 60)) as link:
        link.sendall(b"HEAD /health HTTP/1.0\r\n\r\n")
        head = _all_of(link)
    assert head.startswith(b"HTTP/1.0 200") and head.endswith(b"\r\n\r\n")
    with closing(socket.create_connection(("127.0.0.1", watched.http_port), 60)) as link:
        link.sendall(b"POST /metrics HTTP/1.0\r\n\r\n")
        assert b" 405 " in _all_of(link)


def test_garbage_and_silence_harm_nobody(watched: Watched) -> None:
    silent = [socket.create_connection(("127.0.0.1", watched.http_port), 60) for _ in range(12)]
    try:
        with closing(socket.create_connection(("127.0.0.1", watched.http_port), 60)) as link:
            link.settimeout(60)
            assert _all_of(link) == b""  # turned away: there are enough
        names = [thread.name for thread in threading.enumerate()]
        assert sum("process_request_thread" in name for name in names) <= 8
    finally:
        for each in silent:
            each.close()
    until(lambda: _status(watched) == 200)
    with closing(socket.create_connection(("127.0.0.1", watched.http_port), 60)) as link:
        link.sendall(b"\0\xff\r\n" * 20)
        _all_of(link)
    until(lambda: _status(watched) == 200)
    assert watched.ask("PING") == [("+", b"PONG")]


def _status(watched: Watched) -> int:
    try:
        return watched.get("/health")[0]
    except (OSError, urllib.error.URLError):
        return 0


def _all_of(link: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            piece = link.recv(1 << 16)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def test_the_port_is_given_back(start: Start) -> None:
    watched = Watched(start)
    began = time.monotonic()
    watched.running.serving.close()
    assert time.monotonic() - began < PATIENCE_S
    assert not [t for t in threading.enumerate() if t.name == "tidelog-http"]
    with closing(socket.socket()) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.bind(("127.0.0.1", watched.http_port))


def test_a_port_that_is_taken_is_named(start: Start) -> None:
    with closing(socket.socket()) as link:
        link.bind(("127.0.0.1", 0))
        link.listen()
        port = link.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}"):
            start(metrics_port=port)


# --- what it costs


class Counted:
    """In the place of the store's lock: how many functions, of Python and of C, its holder called meanwhile."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.calls: list[int] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self.calls.append(0)
        sys.setprofile(self._count)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        self._lock.release()

    def _count(self, frame: object, event: str, argument: object) -> None:
        self.calls[-1] += event in ("call", "c_call")


@pytest.fixture
def crowded(start: Start) -> Iterator[Watched]:
    """A hundred streams with groups of which each has a thousand pending entries, among many keys."""
    watched = Watched(start, fsync="no", save=())
    db = watched.running.db
    for number in range(100):
        name = f"stream{number:03}"
        db.xadd_many(name, [{"x": "y"}] * 1000)
        for group in range(5):
            db.xgroup_create(name, f"g{group}", 0)
            db.xreadgroup(f"g{group}", "c", {name: ">"}, count=1000)
        db.xdel(name, db.xrange(name, count=1)[0][0])
    for number in range(5_000):
        db.set(f"key{number}", "x")
    yield watched


def test_a_scrape_never_holds_the_lock_for_long(crowded: Watched) -> None:
    """Counted, not timed: what a call costs is the machine's, how many are made at a time is ours."""
    core = inside.core(crowded.running.db)
    before, core.lock = core.lock, Counted(core.lock)
    try:
        found = resident.figures(core, 100)
        calls = core.lock.calls
    finally:
        core.lock = before
    assert len(found) == 100 and all(stream.groups == len(stream.each) == 5 for stream in found)
    assert max(calls) < 2 * resident.NAMES, max(calls)


def test_scrapes_beside_clients(crowded: Watched) -> None:
    """Streams come and go, and groups, while they are looked at."""
    stop = threading.Event()
    wrong: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            wrong.append(error)

    def change() -> None:
        crowded.ask(
            "XADD s * x y",
            "XGROUP CREATE s g 0",
            "XREADGROUP GROUP g c STREAMS s >",
            "DEL s",
            "FLUSHDB",
        )

    threads = [
        threading.Thread(target=guarded, args=(work,)) for work in (change, crowded.families)
    ]
    for thread in threads:
        thread.start()
    for _ in range(10):
        crowded.families()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
