"""A shared queue at a server without the capability `dedup`: the usual mode works, the rest is one named error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.conftest import Bench

import tidelog
from tidelog.server.commands import capabilities


@pytest.fixture
def old(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A server of a version before 0.2, as far as its greeting says."""
    monkeypatch.setattr(capabilities, "CAPABILITIES", ("confirm",))
    return bench


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.put(2, dedup_id="d", dedup="until-done"),
        lambda queue: queue.put(2, dedup_id="d", dedup="replace", delay=3),
        lambda queue: queue.forget("d"),
    ],
    ids=["until-done", "replace", "forget"],
)
def test_a_call_that_the_server_does_not_know(old: Bench, call: Callable[[Any], Any]) -> None:
    queue: Any = old.connect().queue("q")
    first = queue.put(1, dedup_id="d")
    for _ in range(2):  # over a new connection, and over the one that is there
        with pytest.raises(tidelog.Unsupported, match="TIDELOG CAPABILITIES does not list 'dedup'"):
            call(queue)
    assert queue.put(3, dedup_id="d", dedup="window") == first and len(queue) == 1


def test_a_job_stays_open_if_the_server_cannot_put_its_successor(old: Bench) -> None:
    queue: Any = old.connect().queue("q")
    queue.put(1)
    job = queue.get("anna", block=0)
    with pytest.raises(tidelog.Unsupported):
        job.done_and(queue.new(2), queue.new(3, dedup_id="d", dedup="until-done"))
    assert job.state == "open" and len(queue) == 1
    assert job.done_and(queue.new(2)) and len(queue) == 1


def test_a_call_for_asyncio(old: Bench) -> None:
    async def calls() -> None:
        async with await tidelog.aconnect(old.root) as store:
            queue: Any = store.queue("q")
            with pytest.raises(tidelog.Unsupported):
                await queue.put(1, dedup_id="d", dedup="replace")
            with pytest.raises(tidelog.Unsupported):
                await queue.forget("d")
            assert (await queue.stats()).depth == 0

    asyncio.run(calls())
