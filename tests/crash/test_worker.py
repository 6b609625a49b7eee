"""The worker of the layer `servers` finds jobs that are lost, put twice, or done twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.api.sync import Store
from tidelog.crash.client import BadReply
from tidelog.crash.oracle import Kind
from tidelog.crash.served import contents_of
from tidelog.crash.worker import Worker
from tidelog.jobs.verbs import done
from tidelog.server import once
from tidelog.server.serving import serve


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with tidelog.open(tmp_path / "db", fsync="no", save=(), decode_responses=False) as db:
        yield db


def worked(store: Store, worker: Worker, commands: int, *, lose: bool = False) -> None:
    """Let the worker send commands to a server of the store. `lose`: close before the reply to the last one is read."""
    with serve(store, port=0) as server:
        worker.connect(server.port, 30)
        try:
            worker.send(commands)
            while worker.waits:
                if lose and not worker._left:
                    assert worker._socket is not None
                    worker._socket.recv(1)  # it was done
                    break
                assert worker.receive()
        finally:
            worker.disconnect()


def test_a_worker_that_loses_replies_does_every_job_once(store: Store) -> None:
    worker = Worker("jobs", random.Random(3))
    for life in range(12):
        worked(store, worker, 4, lose=life % 2 == 0)
        if worker._flight is None:
            assert worker.judge(contents_of(store)) is None
    worked(store, worker, 10)
    assert worker.judge(contents_of(store)) is None
    assert len(worker.put) > 40 and len(worker.done) > 10
    assert all(map(worker.owns, contents_of(store)))


def test_a_late_done_does_not_count(store: Store) -> None:
    """A worker whose connection ended takes its jobs again, and then ends some of them by their earlier delivery."""
    worker = Worker("jobs", random.Random(3))
    late = 0
    original = worker._done_late

    def counted(job_id: bytes, count: int) -> Any:
        nonlocal late
        late += 1
        return original(job_id, count)

    worker._done_late = counted  # type: ignore[method-assign]
    for _ in range(10):
        worked(store, worker, 3)
    assert late > 3
    assert worker.judge(contents_of(store)) is None


def test_what_is_wrong_is_named(store: Store) -> None:
    worker = Worker("jobs", random.Random(3))
    worked(store, worker, 6)
    contents = contents_of(store)
    entries, *rest = contents[b"jobs"]
    for changed, kind, words in (
        (entries[1:], Kind.LOST, "is lost"),
        ((*entries, entries[0]), Kind.WRONG, "is there 2 times"),
        ((*entries, (b"9-9", (b"value", b"x"))), Kind.WRONG, "was never put"),
        (
            (*entries, (b"9-9", (b"value", min(worker.done)))),
            Kind.WRONG,
            "is done, and is there again",
        ),
    ):
        fault = worker.judge({**contents, b"jobs": (changed, *rest)})
        assert fault is not None and fault.kind is kind and words in fault.words


def test_a_server_that_forgets_numbers_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once.Once, "before", lambda self, ctx: once.NEW)
    worker = Worker("jobs", random.Random(3))
    found = ""
    for _ in range(40):
        try:
            worked(store, worker, 1, lose=True)
        except BadReply as error:  # a repeated DONE finds the job gone
            found = str(error)
            break
    fault = worker.judge(contents_of(store))
    assert found or (fault is not None and "times" in fault.words)


def test_a_server_without_fences_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DONE counts, whichever delivery it names."""

    def unfenced(group: Any, worker: bytes, fences: Any) -> list[int]:
        return [job for job, _ in fences if group.pending.contains(job)]

    monkeypatch.setattr(done, "among_held", unfenced)
    worker = Worker("jobs", random.Random(3))
    with pytest.raises(BadReply, match="was done by delivery"):
        for _ in range(40):
            worked(store, worker, 3)
