"""tidelog queue watch: looks at a store or a server, with rates; drawn in place on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tools.conftest import Run
from tests.tools.terminal import on_a_terminal

import tidelog
from tidelog.tools import exits
from tidelog.tools.queue import watch


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Sets what happens between two looks."""

    def give(work: Callable[[], object]) -> None:
        monkeypatch.setattr(watch, "_SLEEP", lambda seconds: work())

    return give


@pytest.mark.parametrize("served", [False, True])
def test_rates(
    run: Run, tmp_path: Path, between: Callable[[Callable[[], object]], None], served: bool
) -> None:
    with tidelog.open(tmp_path / "data", fsync="no") as db, tidelog.serve(db, port=0) as serving:
        queue = db.queue("mails")
        queue.put_many([1, 2, 3])

        def work() -> None:
            queue.put_many([4, 5])
            with queue.get("worker-1") as job:  # type: ignore[union-attr]
                assert job.value

        between(work)
        place = f"redis://127.0.0.1:{serving.port}" if served else tmp_path / "data"
        done = run("queue", "watch", place, "--looks", 2, "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert (first["depth"], first["put_per_second"], first["done_per_second"]) == (3, None, None)
    assert second["depth"] == 4 and second["v"] == 1
    assert second["put_per_second"] == 2 * second["done_per_second"] > 0


def test_tables(run: Run, tmp_path: Path, between: Callable[[Callable[[], object]], None]) -> None:
    with tidelog.open(tmp_path / "data") as db:
        queue = db.queue("mails")
        queue.put_many([1, 2])
        db.queue("orders").put(1)
        job = queue.get("worker-1")
        held = queue.get("worker-2")
        assert job is not None and job.fail("no mailbox") and held is not None
        between(lambda: None)
        done = run("queue", "watch", tmp_path / "data", "--looks", 2)
        assert done.out.count("QUEUE ") == 2 and done.out.count("orders") == 2
        one = run("queue", "watch", tmp_path / "data", "mails", "--looks", 1).out
    assert "orders" not in one and "no mailbox" in one and "worker-2" in one


def test_a_queue_that_comes_and_goes(
    run: Run, tmp_path: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    with tidelog.open(tmp_path / "data") as db:
        steps = iter((lambda: db.queue("late").put(1), lambda: db.delete("late")))
        between(lambda: next(steps)())
        done = run("queue", "watch", tmp_path / "data", "--looks", 3, "--json")
    (row,) = map(json.loads, done.out.splitlines())
    assert row["name"] == "late"


def test_the_end_by_an_interrupt(
    run: Run, tmp_path: Path, between: Callable[[Callable[[], object]], None]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with tidelog.queue(tmp_path / "data", "mails") as queue:
        queue.put(1)
    between(interrupt)
    done = run("queue", "watch", tmp_path / "data")
    assert (done.code, done.err) == (0, "") and done.out.count("mails") == 1


@pytest.mark.slow
def test_a_terminal(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "data", "mails") as queue:
        queue.put_many(range(3))
    out, err = on_a_terminal("queue", "watch", tmp_path / "data", "--looks", 2, "--every", 0.1)
    assert err == "" and "│ mails" in out and "\x1b[" in out


def test_errors(run: Run, tmp_path: Path) -> None:
    tidelog.open(tmp_path / "data").close()
    assert run("queue", "watch", tmp_path / "data", "mails").code == exits.NOT_A_STORE
    assert run("queue", "watch", tmp_path / "data", "--group", "g").code == exits.USAGE
    assert run("queue", "watch", tmp_path / "nothing").code == exits.NOT_A_STORE
