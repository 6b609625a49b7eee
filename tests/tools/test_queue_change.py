"""tidelog queue dead redrive, dead purge, purge: what is changed, asked and refused."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tools.conftest import Done, Run, expect
from tests.tools.queue_made import START, mails
from tests.tools.terminal import on_a_terminal

import tidelog
from tidelog.api.queue.dead import Dead
from tidelog.jobs.stats import Stats
from tidelog.testing import Clock
from tidelog.tools import exits
from tidelog.tools.queue import change as queue_change
from tidelog.tools.queue import store as queue_store

FIRST, SECOND, THIRD = ALL = ["1700000061000-0", "1700000061000-1", "1700003661000-0"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the store and, from then on, of the command line."""
    clock = Clock(START)
    monkeypatch.setattr(queue_store, "CLOCK", clock)
    return clock


@pytest.fixture
def root(tmp_path: Path, clock: Clock) -> Path:
    """The store of tests/tools/queue_made.py."""
    path = tmp_path / "orders-data"
    with mails(path, clock):
        pass
    return path


Answer = Callable[[str], None]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Put a terminal in the place of standard input, at which somebody types this."""

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    return lambda text: monkeypatch.setattr(sys, "stdin", Keyboard(text))


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())


def dead(root: Path) -> list[str]:
    """The IDs of the dead."""
    with tidelog.open(root, read_only=True, clock=queue_store.CLOCK) as db:
        return [job.id for job in db.queue("mails").dead]


def stats(root: Path) -> Stats:
    with tidelog.open(root, read_only=True, clock=queue_store.CLOCK) as db:
        return db.queue("mails").stats()


# --- dead redrive


def test_redrive_puts_all_back(run: Run, root: Path) -> None:
    before = stats(root)
    assert run("queue", "dead", "redrive", root, "mails") == (
        0,
        "3 dead jobs redriven: waiting in mails again\n",
        "",
    )
    assert dead(root) == []
    assert stats(root).waiting == before.waiting + 3
    with tidelog.open(root, clock=queue_store.CLOCK) as db:
        queue = db.queue("mails", codec="bytes")
        found = {job.id: job for job in queue.peek(100)}
        again = [job for job in found.values() if b"anna" in job.value]
        assert [job.headers for job in again] == [{"trace": "4bf92f", "tenant": "a b"}]
    assert run("queue", "dead", "redrive", root, "mails").out == (
        "0 dead jobs redriven: waiting in mails again\n"
    )
    assert run("aof", "verify", root).code == 0


SELECTIONS: list[tuple[list[str], list[str]]] = [
    ([FIRST], [FIRST]),
    ([THIRD, FIRST, FIRST], [FIRST, THIRD]),
    (["--error", "timeout"], [FIRST]),
    (["--reason", "mailbox"], [SECOND]),
    (["--older-than", "1h"], [FIRST, SECOND]),
    ([FIRST, THIRD, "--older-than", "1h"], [FIRST]),
    ([THIRD, "--error", "timeout"], []),
]


@pytest.mark.parametrize(("words", "chosen"), SELECTIONS)
@pytest.mark.parametrize(
    ("command", "verb"), [(["redrive"], "redriven"), (["purge", "--yes"], "purged")]
)
def test_which(
    run: Run, root: Path, command: list[str], verb: str, words: list[str], chosen: list[str]
) -> None:
    """A rehearsal names those that are then changed, and no others are."""
    call = ("queue", "dead", command[0], root, "mails", *command[1:], *words, "--json")
    before = run("digest", root)
    rehearsed = json.loads(run(*call, "--dry-run").out)
    assert run("digest", root) == before
    assert (rehearsed[verb], rehearsed["dry_run"]) == (len(chosen), True)
    done = json.loads(run(*call).out)
    assert done == {**rehearsed, "dry_run": False}
    assert dead(root) == [job for job in ALL if job not in chosen]


@pytest.mark.parametrize(("command", "verb"), [("redrive", "redriven"), ("purge", "purged")])
def test_a_rehearsal_shows_the_jobs(run: Run, root: Path, command: str, verb: str) -> None:
    done = run("queue", "dead", command, root, "mails", "--error", "timeout", "--dry-run")
    assert (done.code, done.err) == (0, "")
    expect(f"queue-dead-{command}-dry-run.txt", done.out, root)
    none = run("queue", "dead", command, root, "mails", "--error", "xyz", "--dry-run")
    assert none.out == f"0 dead jobs would be {verb}; nothing was changed\n"


@pytest.mark.parametrize("command", [["redrive"], ["purge", "--yes"]])
def test_the_id_that_it_had_as_a_job_will_not_do(run: Run, root: Path, command: list[str]) -> None:
    """Another dead job may have it. The error says which one was meant."""
    original = "1700000000000-0"
    done = run("queue", "dead", command[0], root, "mails", SECOND, original, *command[1:])
    assert done == (
        exits.NOT_A_STORE,
        "",
        f"tidelog: there is no dead job {original} ({original} is now {FIRST});"
        " list the dead jobs with: tidelog queue dead ls\n",
    )
    assert dead(root) == ALL


def many(root: Path, clock: Clock, count: int) -> None:
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue("mails")
        queue.put_many({"n": n} for n in range(count))
        for job in queue.consume("worker", batch=100, block=0):
            job.fail("too many")


@pytest.mark.parametrize("command", [["redrive"], ["purge", "--yes"]])
def test_many_behind_a_progress_bar(
    tmp_path: Path, clock: Clock, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * queue_change.BATCH + 7
    many(tmp_path / "data", clock, count)
    assert len(dead(tmp_path / "data")) == count
    out, err = on_a_terminal("queue", "dead", command[0], tmp_path / "data", "mails", *command[1:])
    assert out.startswith(f"{count:,} dead jobs ")
    assert {"redrive": "redriving", "purge": "purging"}[command[0]] in err
    assert dead(tmp_path / "data") == []


def test_an_interrupt_says_how_far_it_came(
    run: Run, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, count = tmp_path / "data", queue_change.BATCH + 7
    many(root, clock, count)
    redrive = Dead.redrive
    batches: list[list[str]] = []

    def interrupted(self: Dead, ids: list[str]) -> int:
        if batches:
            raise KeyboardInterrupt
        batches.append(ids)
        return redrive(self, ids)

    monkeypatch.setattr(Dead, "redrive", interrupted)
    done = run("queue", "dead", "redrive", root, "mails")
    assert (done.code, done.out) == (exits.INTERRUPTED, "")
    assert done.err == (
        f"redriving: {queue_change.BATCH:,} of {count:,} jobs were done before this error:\ninterrupted\n"
    )
    assert len(dead(root)) == 7


# --- purge


PURGES = [("dead", "purge"), ("purge",)]


@pytest.mark.parametrize("command", PURGES, ids=" ".join)
def test_a_purge_that_nobody_can_confirm(run: Run, root: Path, command: tuple[str, ...]) -> None:
    before = run("digest", root)
    done = run("queue", *command, root, "mails")
    assert (done.code, done.out) == (exits.USAGE, "")
    assert (
        "Error: there is no terminal to ask for confirmation; repeat the command with --yes\n"
        in done.err
    )
    assert run("digest", root) == before


@pytest.mark.parametrize("command", PURGES, ids=" ".join)
@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("n\n", 0, "Nothing was changed.\n"),
        ("\n", 0, "Nothing was changed.\n"),
        ("", exits.INTERRUPTED, "interrupted\n"),
    ],
)
def test_a_purge_that_is_not_confirmed(
    run: Run, root: Path, answer: Answer, command: tuple[str, ...], typed: str, code: int, said: str
) -> None:
    before = dead(root), stats(root)
    answer(typed)
    done = run("queue", *command, root, "mails")
    assert (done.code, done.out) == (code, "") and done.err.endswith(said)
    assert (dead(root), stats(root)) == before


def test_a_purge_that_is_confirmed(run: Run, root: Path, answer: Answer) -> None:
    answer("y\n")
    done = run("queue", "dead", "purge", root, "mails")
    assert (done.code, done.out) == (0, "3 dead jobs purged\n")
    assert done.err.startswith("Delete 3 dead jobs of mails permanently? [y/N]:")
    assert dead(root) == []
    answer("y\n")
    done = run("queue", "purge", root, "mails")
    assert (done.code, done.out) == (0, "4 jobs purged (1 in flight left)\n")
    assert done.err.startswith("Delete 3 waiting jobs and 1 paused of mails permanently? [y/N]:")
    assert (stats(root).waiting, stats(root).paused, stats(root).depth) == (0, 0, 1)
    assert run("aof", "verify", root).code == 0


def test_nothing_to_purge_is_nothing_to_ask(run: Run, root: Path, answer: Answer) -> None:
    for command in PURGES:
        assert run("queue", *command, root, "mails", "--yes").code == 0
    answer("")
    assert run("queue", "dead", "purge", root, "mails") == (0, "0 dead jobs purged\n", "")
    done = run("queue", "purge", root, "mails")
    assert done == (0, "0 jobs purged (1 in flight left)\n", "")


def test_purge_rehearsed_and_as_json(run: Run, root: Path) -> None:
    before = run("digest", root)
    done = run("queue", "purge", root, "mails", "--dry-run")
    assert done.out == "4 jobs would be purged; nothing was changed (1 in flight left)\n"
    rehearsed = json.loads(run("queue", "purge", root, "mails", "--dry-run", "--json").out)
    assert rehearsed == {"purged": 4, "dry_run": True, "in_flight": 1}
    assert run("digest", root) == before
    done = run("queue", "purge", root, "mails", "--yes", "--json")
    assert json.loads(done.out) == {**rehearsed, "dry_run": False}
    done = run("queue", "purge", root, "orders", "--yes")
    assert done.out == "1 job purged\n"


# --- beside a running writer


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (["dead", "redrive"], "queue.dead.redrive()"),
        (["dead", "purge", "--yes"], "queue.dead.purge()"),
        (["purge", "--yes"], "queue.purge()"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_writer_is_named(run: Run, root: Path, command: list[str], call: str) -> None:
    before = dead(root), stats(root)
    with tidelog.open(root, clock=queue_store.CLOCK):
        done = run("queue", *command, root, "mails")
    assert done == Done(
        exits.LOCKED,
        "",
        f"tidelog: {root} is open for writing by process {os.getpid()}. Stop that process and try again,"
        f" call {call} in it, or let it serve the store\n",
    )
    assert (dead(root), stats(root)) == before
