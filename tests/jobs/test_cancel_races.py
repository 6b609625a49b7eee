"""A cancel beside what a worker says of its job: one outcome, and both sides learn it."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.client.conftest import aopened
from tests.rounds import some_and_all
from tests.until import PATIENCE_S

import tidelog

ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "ack": lambda mails, job: job.ack(),
    "result": lambda mails, job: job.ack(result="r"),
    "fail": lambda mails, job: job.fail("no"),
    "done_and": lambda mails, job: job.done_and(mails.new(0, delay=1000)),
    "nack": lambda mails, job: job.nack("no", delay=1000),
    "release": lambda mails, job: job.release(),
}
GIVE_BACK = ("nack", "release")  # afterwards there is still something to cancel
SEED = 20260
TURNS = 10_000
DECIDED = 10  # in one of these each side is surely the first one


@pytest.fixture(autouse=True)
def threads_take_short_turns() -> Iterator[None]:
    """So that one side may be interrupted within its call."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def idle(turns: int) -> None:
    for _ in range(turns):
        pass


@pytest.fixture(params=("embedded", "shared"))
def mails(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A queue of an open store, or of a served one."""
    with ExitStack() as stack:
        db: Any = stack.enter_context(tidelog.open(tmp_path / "store", fsync="no"))
        if request.param == "shared":
            stack.callback(tidelog.serve(db, port=0).close)
            db = stack.enter_context(tidelog.connect(tmp_path / "store"))
        yield db.queue("mails")


class Canceller:
    """A thread that cancels a job at the moment at which the caller says something else of it.

    Each side begins after turns of a loop that a die decides, so that either may be first.
    """

    def __init__(self, mails: Any, chance: random.Random) -> None:
        self._mails, self._chance = mails, chance
        self._asked: SimpleQueue[str | None] = SimpleQueue()
        self._told: SimpleQueue[Any] = SimpleQueue()
        self._start = threading.Barrier(2)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while (id := self._asked.get()) is not None:
            turns = self._chance.randrange(TURNS)
            self._start.wait(PATIENCE_S)
            idle(turns)
            try:
                self._told.put(self._mails.cancel(id))
            except BaseException as error:
                self._told.put(error)

    def beside(self, id: str, call: Callable[[], Any]) -> tuple[Any, Any]:
        """The results of the call, and of the cancel."""
        self._asked.put(id)
        turns = self._chance.randrange(TURNS)
        self._start.wait(PATIENCE_S)
        idle(turns)
        found = call()
        return found, self._told.get(timeout=PATIENCE_S)

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join(PATIENCE_S)


def judge(how: str, settled: Any, cancelled: Any, state: str, told: Any) -> None:
    """Compare what both sides were told with what is recorded."""
    assert isinstance(settled, bool) and isinstance(cancelled, bool), (settled, cancelled)
    if how in GIVE_BACK:
        assert cancelled, "the job is not done"
    else:
        assert settled != cancelled, f"{how} said {settled}, cancel said {cancelled}"
    assert settled or state == "cancelled", (how, state)
    recorded = None if told is None else told.state
    assert (recorded == "cancelled") == cancelled, (how, recorded)


@pytest.mark.parametrize("races", some_and_all(150, 5_000))
def test_one_outcome(mails: Any, races: int) -> None:
    chance, won = random.Random(SEED), Counter[tuple[str, bool]]()
    canceller = Canceller(mails, random.Random(SEED))
    try:
        for number in range(races):
            how = chance.choice(list(ENDS))
            id = mails.put("v")
            job = mails.get("anna", 0)
            assert job.id == id, "no job comes again"
            # On a busy machine one thread may be first in all races. So some are decided beforehand.
            if number % DECIDED == 0:
                settled = ENDS[how](mails, job)
                cancelled = mails.cancel(id)
            elif number % DECIDED == 1:
                cancelled = mails.cancel(id)
                settled = ENDS[how](mails, job)
            else:
                settled, cancelled = canceller.beside(id, lambda: ENDS[how](mails, job))
            judge(how, settled, cancelled, job.state, mails.job(id))
            won[how, settled] += 1
    finally:
        canceller.close()
    assert mails.get("ben", 0) is None
    stats = mails.stats()
    assert (stats.depth, stats.dead) == (0, won["fail", True])
    assert stats.scheduled == won["done_and", True]
    assert len({settled for _, settled in won}) == 2, won


@pytest.mark.parametrize("races", some_and_all(100, 2_000))
def test_one_outcome_for_jobs_of_batches(mails: Any, races: int) -> None:
    """They are done when the batch is written. Until then a cancel comes first, and the job says so."""
    batch, chance, won = 20, random.Random(SEED), Counter[str]()
    for _ in range(races // batch):
        ids = [mails.put("v") for _ in range(batch)]
        asked = chance.sample(ids, batch // 2)
        said: dict[str, bool] = {asked[0]: mails.cancel(asked[0])}  # surely before the worker
        start = threading.Barrier(2)

        def cancel() -> None:
            start.wait(PATIENCE_S)
            for id in asked[1:]:
                said[id] = mails.cancel(id)

        thread = threading.Thread(target=cancel)
        thread.start()
        jobs = list[Any]()
        with mails.consume("anna", batch=batch, block=0) as some:
            start.wait(PATIENCE_S)
            for job in some:
                jobs.append(job)
                with job:
                    idle(chance.randrange(TURNS))
        thread.join(PATIENCE_S)
        states = {job.id: job.state for job in jobs}
        for id in ids:
            told = mails.job(id)
            cancelled = said.get(id, False)
            assert cancelled == (told is not None and told.state == "cancelled")
            if id in states:
                assert states[id] == ("cancelled" if cancelled else "acked")
            else:
                assert cancelled, "it was not handed out"
            won["cancelled" if cancelled else "acked"] += 1
    assert mails.get("ben", 0) is None and mails.stats().depth == 0
    assert won["acked"] >= races // 2 and won["cancelled"], won


@pytest.mark.parametrize(
    ("backend", "races"),
    [
        *(pytest.param(backend, 60, id=f"{backend}-some") for backend in ("embedded", "shared")),
        pytest.param("embedded", 5_000, marks=pytest.mark.slow, id="embedded-all"),
        pytest.param("shared", 1_000, marks=pytest.mark.slow, id="shared-all"),
    ],
)
def test_one_outcome_among_tasks(tmp_path: Path, backend: str, races: int) -> None:
    """One call begins turns of the loop after the other. Of a served store, each call is a thread."""

    async def late(call: Awaitable[Any], turns: int) -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await call

    async def race() -> Counter[tuple[str, bool]]:
        chance, won = random.Random(SEED), Counter[tuple[str, bool]]()
        async with aopened(backend, tmp_path / "store") as db:
            mails: Any = db.queue("mails")
            for _ in range(races):
                how = chance.choice(list(ENDS))
                id = await mails.put("v")
                job = await mails.get("anna", 0)
                assert job.id == id, "no job comes again"
                calls = [ENDS[how](mails, job), mails.cancel(id)]
                settled, cancelled = await asyncio.gather(
                    *(late(call, chance.choice((0, 0, 1, 2, 5))) for call in calls)
                )
                judge(how, settled, cancelled, job.state, await mails.job(id))
                won[how, settled] += 1
            assert await mails.get("ben", 0) is None
            stats = await mails.stats()
            assert (stats.depth, stats.dead) == (0, won["fail", True])
            assert stats.scheduled == won["done_and", True]
        return won

    won = asyncio.run(race())
    assert len({settled for _, settled in won}) == 2, f"no race at all: {won}"
