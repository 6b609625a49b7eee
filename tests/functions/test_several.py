"""Several queues for one worker: whose turn it is, and that none waits for another."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.functions.conftest import Make
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.functions.order import Order
from tidelog.functions.several import Several

EACH_FACE = pytest.mark.parametrize("face", ["threads", "asyncio"])


# --- the order


def turns(order: Order, count: int, ready: Any = "abc") -> str:
    found = ""
    for _ in range(count):
        name = order.next(ready)
        assert name is not None
        order.took(name, ready)
        found += name
    return found


def test_the_first_named_queue_comes_first() -> None:
    order = Order(None, "abc")
    assert turns(order, 3) == "aaa" and turns(order, 2, "bc") == "bb" and order.next("") is None


def test_turns_are_spread_evenly() -> None:
    assert turns(Order({"a": 3, "b": 1}, "ab"), 8) == "aabaaaba"
    assert turns(Order({"a": 1, "b": 1, "c": 1}, "abc"), 6) == "abcabc"


def test_a_queue_that_had_no_job_saves_no_turns() -> None:
    order = Order({"a": 1, "b": 1}, "ab")
    assert turns(order, 50, "a") == "a" * 50
    assert Counter(turns(order, 10, "ab")) == {"a": 5, "b": 5}


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 50), min_size=2), st.integers(1, 5))
def test_turns_are_in_proportion(weights: dict[str, int], rounds: int) -> None:
    order = Order(weights, weights)
    total = sum(weights.values()) * rounds
    taken = turns(order, total, weights)
    assert Counter(taken) == {name: weight * rounds for name, weight in weights.items()}
    for name, weight in weights.items():  # no queue waits for much longer than its turn
        share = sum(weights.values()) / weight
        assert max(map(len, taken.split(name))) <= share * len(weights)


# --- the workers


class Shop:
    """Tasks with a queue for each of the names, and the order in which their jobs were done."""

    def __init__(self, tasks: tidelog.Tasks, face: str, names: str) -> None:
        self.tasks, self.done = tasks, list[str]()
        self.put: dict[str, Callable[[int], object]] = {}
        self.work: Callable[[str], None] = lambda name: None
        for name in names:
            self.put[name] = self.made(name, face).put

    def made(self, name: str, face: str) -> Any:
        def plain(number: int) -> None:
            self.work(name)
            self.done.append(name)

        async def coroutine(number: int) -> None:
            plain(number)

        function: Any = plain if face == "threads" else coroutine
        return self.tasks.task(queue=name, name=name)(function)

    @contextmanager
    def running(self, queues: Any, workers: int = 1) -> Iterator[threading.Thread]:
        """Run until the end of the block, in a thread."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.tasks.run(queues, workers=workers)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield thread
        finally:
            self.tasks.close(drain=5)
            thread.join(PATIENCE_S)
        assert not thread.is_alive() and not errors


@EACH_FACE
def test_weights_share_one_worker(make: Make, face: str) -> None:
    shop = Shop(make(), face, "ab")
    for name in "ab":
        for number in range(100):
            shop.put[name](number)
    shop.tasks.run({"a": 3, "b": 1}, workers=1, block=0)
    assert Counter(shop.done[:120]) == {"a": 90, "b": 30}
    assert Counter(shop.done) == {"a": 100, "b": 100}


@EACH_FACE
def test_strict_order(make: Make, face: str) -> None:
    shop = Shop(make(), face, "abc")
    for number in range(20):
        for name in "cba":
            shop.put[name](number)
    shop.tasks.run(["b", "a"], workers=1, block=0)
    assert shop.done == ["b"] * 20 + ["a"] * 20
    assert len(shop.tasks.queue("c")) == 20


@EACH_FACE
def test_a_job_of_an_idle_queue_comes_at_once(make: Make, face: str) -> None:
    """All waiters wait, and each job ends one wait; no worker waits for another queue."""
    shop = Shop(make(), face, "abc")
    shop.put["b"](0)
    with shop.running(None, workers=2):
        until(lambda: shop.done == ["b"], "the first job is not done")
        for count, name in enumerate("acbbacab", 2):
            shop.put[name](count)
            until(lambda: len(shop.done) == count, f"job {count} is not done")
    assert "".join(shop.done) == "bacbbacab"


def test_the_first_queue_comes_first_again_after_it_was_empty(make: Make) -> None:
    """Its waiter gets a job while the only worker works, and gives it back for the worker's next look."""
    tasks, done = make(), list[str]()
    several = Several({name: tasks.queue(name) for name in "ab"}, Order(None, "ab"))
    begun, go = threading.Event(), threading.Event()

    def work(job: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert go.wait(PATIENCE_S)
        done.append(job.value)

    tasks.queue("b").put_many(list("bbbbb"))
    thread = threading.Thread(target=several.run, args=(work,), kwargs={"workers": 1})
    thread.start()
    try:
        assert begun.wait(PATIENCE_S)
        tasks.queue("a").put_many(list("aaa"))
        until(lambda: several._feeds["a"].ready, "the waiter gets no job")
        until(lambda: tasks.queue("a").stats().waiting == 3, "the waiter keeps its job")
        go.set()
        until(lambda: len(done) == 8, "not all is done")
    finally:
        go.set()
        tasks.close(drain=5)
        thread.join(PATIENCE_S)
    assert "".join(done) == "baaabbbb"


@EACH_FACE
def test_all_workers_help_where_many_jobs_come_at_once(make: Make, face: str) -> None:
    shop = Shop(make(), "threads", "ab")
    together = threading.Barrier(3)
    waits: Any = together.wait
    shop.work = lambda name: waits(PATIENCE_S)
    if face == "asyncio":

        @shop.tasks.task(queue="b")
        async def another() -> None: ...

    with shop.running(None, workers=3):
        shop.tasks.queue("a").put_many([{"task": "a", "args": {"number": 1}}] * 3)
        until(lambda: len(shop.done) == 3, "a worker slept on")


@EACH_FACE
def test_a_queue_that_cannot_be_fetched_from_stops_no_other(
    make: Make, face: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(make(), face, "ab")
    store = shop.tasks.store
    store.set("a", "no stream")
    with caplog.at_level(logging.WARNING, "tidelog.worker"), shop.running(["a", "b"], workers=2):
        for number in range(3):
            shop.put["b"](number)
            until(lambda: len(shop.done) == number + 1, "the other queue is stopped")
        until(lambda: bool(caplog.messages), "nobody told")
        store.delete("a")
        shop.put["a"](0)
        until(lambda: shop.done[3:] == ["a"], "the mended queue is not tried again")
    assert len(caplog.messages) == 1  # once, however often it failed
    assert caplog.messages[0].startswith("queue a: the others go on") and (
        "WRONGTYPE" in caplog.messages[0]
    )


def test_a_run_of_tasks_that_is_cancelled_gives_jobs_back(make: Make) -> None:
    tasks, begun = make(), asyncio.Event()

    @tasks.task(queue="a")
    async def stuck() -> None:
        begun.set()
        await asyncio.sleep(1000)

    @tasks.task(queue="b")
    async def other() -> None: ...

    async def main() -> None:
        await stuck.aput()
        running = asyncio.create_task(tasks.arun(workers=2))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        job = await (await tasks.aqueue("a")).get(block=PATIENCE_S)
        assert job is not None and job.deliveries == 1
        await job.ack()

    asyncio.run(main())


def test_workers_of_several_queues_take_one_job_at_a_time(make: Make) -> None:
    tasks = make()
    several = Several({name: tasks.queue(name) for name in "ab"}, Order(None, "ab"))
    with pytest.raises(tidelog.DataError, match="one job at a time, not 2"):
        several.run(print, batch=2, block=0)
