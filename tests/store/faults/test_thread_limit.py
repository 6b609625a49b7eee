"""At a limit of threads or processes: one precise error of the store, and nothing lost."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.server.ports import free_port

import tidelog
from tidelog.snapshot import walk
from tidelog.snapshot.child import start_child


class Limit:
    """The system's: while it is `reached`, it gives no thread and no process."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reached = False
        start, popen = threading.Thread.start, subprocess.Popen.__init__

        def start_thread(thread: threading.Thread) -> None:
            if self.reached:
                raise RuntimeError("can't start new thread")
            start(thread)

        def start_process(process: Any, *args: Any, **options: Any) -> None:
            if self.reached:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            popen(process, *args, **options)

        patch.setattr(threading.Thread, "start", start_thread)
        patch.setattr(subprocess.Popen, "__init__", start_process)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Limit]:
    found = Limit(monkeypatch)
    yield found
    found.reached = False


POLICIES = ("always", "everysec", "no")


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_first_write_of_an_open_stores_all_or_nothing(
    policy: str, before: bool, limit: Limit, tmp_path: Path
) -> None:
    if before:
        with tidelog.open(tmp_path / "s") as db:
            db.xadd("s", {"n": "0"})
            db.checkpoint()
    with tidelog.open(tmp_path / "s", fsync=policy) as db:
        limit.reached = True
        writes: list[Callable[[], object]] = [
            lambda: db.xadd("s", {"n": "1"}),
            lambda: db.queue("jobs").put(1),
            lambda: db.xadd_many("s", [{"n": "1"}]),
            lambda: db.pipeline().xadd("s", {"n": "1"}).execute(),
        ]
        for write in writes:
            with pytest.raises(
                tidelog.NotStored, match="refused to start a thread to write checkpoints.*ulimit"
            ):
                write()
        assert db.xlen("s") == int(before) and db.xlen("jobs") == 0
        limit.reached = False
        db.xadd("s", {"n": "2"})
        limit.reached = True
        db.xadd("s", {"n": "3"})  # what runs goes on
        db.barrier()
    limit.reached = False
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("s") == int(before) + 2


def test_a_store_that_needs_a_thread_at_once_does_not_open(limit: Limit, tmp_path: Path) -> None:
    limit.reached = True
    with pytest.raises(
        tidelog.CannotOpen, match="refused to start a thread to sync the log every second"
    ):
        tidelog.open(tmp_path / "s", fsync="everysec")
    limit.reached = False
    tidelog.open(tmp_path / "s", fsync="everysec").close()


@pytest.mark.parametrize("policy", ["always", "no"])
def test_the_policy_stays(policy: str, limit: Limit, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync=policy) as db:
        db.xadd("s", {"n": "1"})
        limit.reached = True
        with pytest.raises(tidelog.NotStored, match=f"stays {policy}"):
            db.fsync = "everysec"
        assert db.fsync == policy
        db.xadd("s", {"n": "1"})
        limit.reached = False
        db.fsync = "everysec"
        assert db.fsync == "everysec"


@pytest.mark.parametrize("batch", [1, 3])
def test_a_worker_gets_and_finishes_its_jobs(
    batch: int, limit: Limit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        queue.put_many(range(5))
        limit.reached = True
        values = []
        with queue.consume("anna", batch, block=0) as jobs:
            for job in jobs:
                with job:
                    assert job.deliveries == 1
                    values.append(job.value)
        assert values == list(range(5)) and len(queue) == 0
        assert caplog.text.count("the thread that renews leases could not be started") == 1
        limit.reached = False
        queue.put(5)
        with queue.get("anna", block=0) as job:  # type: ignore[union-attr]
            assert "tidelog-leases" in {thread.name for thread in threading.enumerate()}


def test_what_is_made_beside_fails_with_its_own_error(
    limit: Limit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "start_child", start_child)  # the walk is a process of its own
    with tidelog.open(tmp_path / "s") as db:
        limit.reached = True
        with pytest.raises(tidelog.CheckpointFailed, match="refused to start a thread"):
            db.checkpoint()
        limit.reached = False
        db.xadd("s", {"n": "1"})
        db.checkpoint()
        limit.reached = True
        with pytest.raises(tidelog.CheckpointFailed, match="refused to start a thread to copy"):
            db.snapshot()
        with pytest.raises(tidelog.CheckpointFailed, match="cannot start the process"):
            db.verify()
        limit.reached = False
        assert db.verify() == []


def test_a_server_that_gets_no_thread_does_not_start(limit: Limit, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        limit.reached = True
        with pytest.raises(tidelog.CannotOpen, match="a thread to serve clients.*ulimit"):
            tidelog.serve(db, port=0)
        limit.reached = False
        with tidelog.serve(db, port=0) as server, redis.Redis(port=server.port) as client:
            assert client.ping()


def test_a_server_whose_metrics_get_no_thread_does_not_start(
    limit: Limit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        begin = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if thread.name == "tidelog-serve":
                run = thread.run

                def run_alone() -> None:
                    limit.reached = True
                    run()

                monkeypatch.setattr(thread, "run", run_alone)
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.raises(tidelog.CannotOpen, match="a thread to serve HTTP.*ulimit"):
            tidelog.serve(db, port=0, metrics_port=free_port())
        limit.reached = False
        monkeypatch.undo()
        tidelog.serve(db, port=0, metrics_port=free_port()).close()


def test_a_command_that_gets_no_thread_is_refused(limit: Limit, tmp_path: Path) -> None:
    with (
        tidelog.open(tmp_path / "s") as db,
        tidelog.serve(db, port=0) as server,
        redis.Redis(port=server.port) as client,
    ):
        client.xadd("s", {"n": "1"})
        limit.reached = True
        for words in ("SAVE", "MEMORY PURGE"):
            with pytest.raises(redis.ResponseError, match="a thread to run this command.*ulimit"):
                client.execute_command(words)
        limit.reached = False
        assert client.save()
