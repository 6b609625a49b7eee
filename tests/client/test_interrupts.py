"""An interrupt at any line of a shared queue: what nobody saw goes back uncounted, and nothing is left behind."""

from __future__ import annotations

import gc
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from tests.rounds import some_and_all
from tests.traps import CallTrap, Trap
from tests.until import until

import tidelog
from tidelog import api, client, jobs

FILES = tuple(str(Path(str(package.__file__)).parent) for package in (client, api, jobs))
OPTIONS: dict[str, Any] = {"retry_after": 600, "max_deliveries": 1}


def of_the_client(code: CodeType) -> bool:
    # A finalizer swallows what is raised in it.
    return code.co_filename.startswith(FILES) and code.co_name != "__del__"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", some_and_all(13, 1))
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("how", ["goes on", "is dropped"])
@pytest.mark.parametrize("kind", [Trap, CallTrap])
def test_the_next_job(kind: type[Trap], tmp_path: Path, batch: int, how: str, every: int) -> None:
    """Either the caller has the job, or a worker gets it soon, as its first."""
    with tidelog.open(tmp_path / "s", fsync="no") as db, tidelog.serve(db, port=0):
        with tidelog.connect(tmp_path / "s") as store:
            struck(kind, store, batch, how, every)


def struck(kind: type[Trap], store: Any, batch: int, how: str, every: int) -> None:
    at = 0
    while True:
        queue = store.queue(f"q{at}", **OPTIONS)
        queue.put_many(range(2))
        consumer = queue.consume(f"worker{at}", batch, block=0)
        got: list[Any] = []
        trap = kind(at, of_the_client)
        trap.breaks(lambda: got.append(next(consumer)))
        if not trap.where:
            assert got
            break
        found = [(job.value, job.deliveries) for job in got]
        if how == "goes on":
            for job in consumer:
                found.append((job.value, job.deliveries))
                assert job.ack(), trap.where
        del consumer
        gc.collect()
        if trap.where.endswith(": continue") and how == "is dropped":
            # It leaves an `except`, where no signal strikes. The interpreter keeps the exception, and so the consumer.
            at += every
            continue
        while len(found) < 2:
            heir = queue.get("heir", block=60)
            assert heir is not None, f"{trap.where}: {queue.stats()}"
            found.append((heir.value, heir.deliveries))
            assert heir.ack(), trap.where
        assert sorted(found) == [(0, 1), (1, 1)], trap.where
        del got
        if how == "goes on":
            until(lambda: not store._keeper._held, f"{trap.where}: {store._keeper._held}")
        at += every
    assert at > 20
