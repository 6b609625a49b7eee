"""Retry policies in a run of workers, and at a server that does not know them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.client.test_what_handlers_raise import RAISED, OfNoName, raised

import tidelog
from tidelog.server.commands import capabilities

POLICY = tidelog.RetryPolicy(never=(ValueError, SystemExit))
# The value of a job -> what its handler raises, and the state of the job afterwards.
ENDS: dict[str, tuple[BaseException, str]] = {
    "lookup": (LookupError("a"), "paused"),
    "unicode": (UnicodeDecodeError("utf-8", b"", 0, 1, "b"), "dead"),
    "exit": (SystemExit("c"), "dead"),
    "later": (tidelog.RetryJob("d", delay=60), "paused"),
    "given up": (tidelog.GiveUp("e"), "dead"),
    "no name": (OfNoName("f"), "paused"),
}


@pytest.fixture(params=["embedded", "shared"])
def open_queue(request: pytest.FixtureRequest, bench: Bench) -> Callable[..., Any]:
    """A queue of either backend, for threads."""
    store = bench.db if request.param == "embedded" else bench.connect()
    return lambda **options: store.queue("mails", **options)


def states(mails: Any, ids: dict[str, str]) -> dict[str, str]:
    return {value: mails.job(id).state for value, id in ids.items()}


WANTED = {value: state for value, (_, state) in ENDS.items()}


def test_a_run_of_threads(open_queue: Callable[..., Any]) -> None:
    mails = open_queue(retry=POLICY)
    ids = {value: mails.put(value) for value in ENDS}
    assert mails.run(lambda job: raised(ENDS[job.value][0]), workers=2, block=0) == 0
    assert states(mails, ids) == WANTED
    assert {dead.value: dead.reason for dead in mails.dead} == {
        "unicode": "UnicodeDecodeError: 'utf-8' codec can't decode bytes in position 0-0: b",
        **{"exit": "SystemExit: c", "given up": "e"},
    }


@pytest.mark.parametrize("shared", [False, True], ids=["embedded", "shared"])
def test_a_run_of_tasks(bench: Bench, shared: bool) -> None:
    before: Any = bench.db.queue("mails")
    ids = {value: before.put(value, retry=POLICY) for value in ENDS}
    if not shared:
        bench.serving.close()
        bench.db.close()

    async def handle(job: Any) -> None:
        await asyncio.sleep(0)
        raised(ENDS[job.value][0])

    async def main() -> None:
        opening: Any = tidelog.aconnect(bench.root) if shared else tidelog.aopen(bench.root)
        async with opening as store:
            assert await store.queue("mails").arun(handle, workers=2, block=0) == 0

    asyncio.run(main())
    if not shared:
        bench.begin()
    assert states(bench.db.queue("mails"), ids) == WANTED


def test_every_exception_can_be_asked_for_its_classes(open_queue: Callable[..., Any]) -> None:
    mails = open_queue(retry="on=ConnectionError")
    mails.put_many(list(RAISED))
    assert mails.run(lambda job: RAISED[job.value][0](), workers=1, block=0) == 0
    # A run nacks GeneratorExit itself, which a block takes for its own end.
    assert {dead.value for dead in mails.dead} == set(RAISED) - {"generator"}


# --- a server of an earlier version


@pytest.fixture
def old(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A server that knows dedup IDs and no policies, as far as its greeting says."""
    monkeypatch.setattr(capabilities, "CAPABILITIES", (b"confirm", b"dedup"))
    return bench


def new(**given: Any) -> Callable[[Any], Any]:
    return lambda queue: queue.put(2, **given)


CALLS: dict[str, Callable[[Any], Any]] = {
    "put": new(retry=POLICY),
    "with dedup": new(retry="max=2", dedup_id="d", dedup="until-done"),
    "put_many": lambda queue: queue.put_many([2, 3], retry="max=2"),
    "queue": lambda queue: queue.store.queue("q", retry=POLICY).put(2),
    "lease": lambda queue: queue.store.queue("q", lease=3).stats(),
    "get": lambda queue: queue.store.queue("q", lease=3).get("anna", 0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_call_that_the_server_does_not_know(old: Bench, call: Callable[[Any], Any]) -> None:
    # Both are the same, so the server need not be told.
    queue: Any = old.connect().queue("q", retry_after=3, lease=3)
    queue.put(1, dedup_id="d", dedup="replace")
    for _ in range(2):  # over a new connection, and over the one that is there
        with pytest.raises(tidelog.Unsupported, match="TIDELOG CAPABILITIES does not list 'retry'"):
            call(queue)
    assert len(queue) == 1


def test_a_job_stays_open_if_the_server_cannot_put_its_successor(old: Bench) -> None:
    queue: Any = old.connect().queue("q")
    queue.put(1)
    job = queue.get("anna", block=0)
    puts = queue.new(2, dedup_id="d", dedup="until-done"), queue.new(3, retry="max=2")
    with pytest.raises(tidelog.Unsupported, match="'retry'"):
        job.done_and(*puts)
    other = queue.store.queue("other", lease=3)
    with pytest.raises(tidelog.Unsupported, match="'retry'"):
        job.done_and(other.new(2))
    assert job.state == "open" and len(queue) == 1 and job.done_and(puts[0])
