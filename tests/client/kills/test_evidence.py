"""Evidence of calls that are cancelled or closed, and the account that a failed check gives of a job."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.client.kills.account import account
from tests.client.kills.apeer import came
from tests.client.kills.checks import nothing_done_is_seen_again
from tests.client.kills.crowd import slowness
from tests.client.kills.evidence import CUT, Call, Evidence, Reader
from tests.client.kills.peer import Peer, shown
from tests.client.kills.queues import BY_NAME, TIMEOUT_S
from tests.client.kills.remains import held_here, left_behind
from tests.client.kills.test_checks import ID, S, Told, seen_again
from tests.client.kills.ticks import has_looked
from tests.client.owners import ended_owner, owner_of
from tests.until import until

import tidelog


def told_in(path: Path) -> list[Call]:
    reader = Reader(path)
    reader.read()
    return list(reader.calls.values())


def test_a_cancellation_that_comes_as_the_call_ends_is_not_lost(tmp_path: Path) -> None:
    """Otherwise the tasks of a worker that is asked to end go on now and then."""
    evidence = Evidence(tmp_path / "told")

    async def run() -> None:
        answer = asyncio.get_running_loop().create_future()
        ended = asyncio.Event()

        async def work() -> str:
            try:
                return str(await answer)
            finally:
                ended.set()

        task = asyncio.create_task(evidence.acall("put", work, str, patience=60.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        answer.set_result("1-0")
        await ended.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    (call,) = told_in(tmp_path / "told")
    assert call.end is not None


def test_a_wait_that_was_cancelled_has_asked_nobody(tmp_path: Path) -> None:
    """The owner is stopped, so it cannot have looked for jobs, and made no ticks of schedules."""
    root, evidence = tmp_path / "store", Evidence(tmp_path / "told")

    async def run() -> None:
        async with await tidelog.aconnect(root, timeout=TIMEOUT_S) as db:
            queue = db.queue("plain", **BY_NAME["plain"].options_of())
            consumer = queue.consume("w", block=0)
            facts: dict[str, Any] = {"queue": "plain", "worker": "w"}
            take = partial(evidence.acall, "take", partial(anext, consumer, None), shown, **facts)
            await take()
            os.kill(owner_of(root), signal.SIGSTOP)
            try:
                again = partial(anext, queue.consume("w", block=0), None)
                await evidence.acall("take", again, shown, patience=0.05, cancelled=CUT, **facts)
            finally:
                os.kill(owner_of(root), signal.SIGCONT)

    with ended_owner(root):
        asyncio.run(run())
    looked, cut = told_in(tmp_path / "told")
    assert has_looked(looked)
    assert (cut.outcome, has_looked(cut)) == (CUT, False)


def test_a_wait_behind_one_that_was_cancelled_may_have_asked_nobody() -> None:
    assert (came(False, None), came(True, None)) == (None, CUT)


def test_a_wait_of_a_process_that_ends_may_have_asked_nobody(tmp_path: Path) -> None:
    """Its consumers are closed meanwhile."""
    root = tmp_path / "store"
    before = held_here(root)
    with ended_owner(root):
        peer = Peer(root, "w", 1, "no", tmp_path / "told")
        assert peer.came(None) is None
        peer.stop.set()
        assert peer.came(None) == CUT
        peer.end()
    assert set(told_in(tmp_path / "told")[-1].outcome) <= set(before)
    assert not left_behind(before, root=root)


def test_what_is_left_of_a_process_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.client.kills.remains.LEFT_S", 0.0)
    root = tmp_path / "store"
    before = held_here(root)
    with ended_owner(root):
        with tidelog.connect(root, timeout=TIMEOUT_S) as db:
            db.queue("q").put(1)
            job = db.queue("q").get()
            found = left_behind(before, root=root)
            assert any(each.startswith("tidelog-shared ") for each in found)
            assert any(each.startswith("socket:") for each in found)
            assert job is not None and job.ack()
    until(lambda: not left_behind(before, root=root), "something is left")


def test_a_machine_that_is_too_slow_to_be_measured_is_slow() -> None:
    assert slowness(0.001) >= 1.0


def test_a_check_that_fails_tells_what_happened_to_the_job() -> None:
    told = Told()
    told.put("plain", "another", "999-0")
    told.put()
    seen_again(told)
    told.story.owners_killed.append(told.now - S // 2)
    with pytest.raises(AssertionError) as found:
        nothing_done_is_seen_again(told.story)
    lines = account(told.story, str(found.value)).splitlines()
    assert [line.split(" ", 3)[-1].split(" {")[0] for line in lines if line.startswith("  ")] == [
        "p t put 2",
        "w t take 3",
        "w t ack 4",
        "an owner was killed, or asked to end",
        "v t take 5",
    ]
    assert lines[0] == f"{ID}:"
