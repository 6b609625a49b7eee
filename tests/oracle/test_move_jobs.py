"""A queue moves to a real redis-server, by a dump file and as commands: waiting, held, delayed and dead jobs arrive."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import redis
from tests.oracle.test_import import place
from tests.oracle.test_import_live import served
from tests.rounds import some_and_all
from tests.tools.conftest import Run, run

import tidelog
from tidelog import testing

__all__ = ["place", "run"]  # fixtures

PAGE: Final = (Path(__file__).parents[2] / "docs/guides/one-machine.md").read_text()
QUEUE: Final = "mails"


class Made(NamedTuple):
    root: Path
    waiting: int
    held: int
    delayed: int
    dead: int


def made(root: Path, jobs: int) -> Made:
    """A store of jobs: a tenth delayed, some held, some dead, some done."""
    held = dead = done = jobs // 100
    delayed = jobs // 10
    clock = testing.Clock()
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue(QUEUE)
        queue.put_many([{"to": f"user-{n}"} for n in range(jobs - delayed)])
        queue.put_many([{"to": f"later-{n}"} for n in range(delayed)], delay=3600)
        for number in range(held + dead + done):
            job = queue.get("anna", block=0)
            assert job is not None
            if number < dead:
                job.fail("no such address")
            elif number < dead + done:
                job.ack()
        assert queue.dead.count() == dead
    return Made(root, jobs - delayed - held - dead - done, held, delayed, dead)


def entries(db: Any) -> dict[bytes, Any]:
    """The entries of each stream."""
    return {key: db.xrange(key) for key in db.keys() if db.type(key) in ("stream", b"stream")}


def deliveries(db: Any, stream: str, group: str, count: int) -> list[tuple[bytes, bytes, int]]:
    rows = db.xpending_range(stream, group, "-", "+", count + 1)
    return [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows]


def typed(command: str, root: Path, place: Path) -> list[str]:
    """The words behind `tidelog` of the line of the guide that begins so, with the places of this test."""
    found = re.search(rf"^tidelog ({command} .*)$", PAGE, re.M)
    assert found
    return (
        found[1]
        .replace("mail-data", str(root))
        .replace("dump.rdb", str(place / "dump.rdb"))
        .split()
    )


@contextmanager
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, protocol=2) as found:
        yield found


def arrived(url: str, all: Made) -> None:
    """Each entry and each delivery is there, under the names that the guide says."""
    groups = ((QUEUE, "workers", all.held), (f"{QUEUE}:later", "due", all.delayed))
    with client(url) as there, tidelog.open(all.root, read_only=True) as here:
        assert entries(there) == entries(here)
        for stream, group, count in groups:
            told = deliveries(there, stream, group, count)
            assert told == deliveries(here, stream, group, count) and len(told) == count
        assert there.xlen(QUEUE) == all.waiting + all.held
        assert there.xlen(f"{QUEUE}:later") == all.delayed
        assert there.xlen(f"{QUEUE}:dead") == all.dead
        taken: Any = there.xreadgroup("workers", "ben", {QUEUE: ">"}, count=all.waiting + 1)
        assert len(taken[0][1]) == all.waiting


@pytest.mark.parametrize("jobs", some_and_all(1_000, 100_000))
def test_a_dump_file_has_every_job(run: Run, place: Path, tmp_path: Path, jobs: int) -> None:
    all = made(tmp_path / "store", jobs)
    done = run(*typed("rdb", all.root, place))
    assert done.code == 0, done
    with served(place) as (_, url):
        arrived(url, all)


@pytest.mark.parametrize("jobs", some_and_all(1_000, 100_000))
def test_as_commands_every_job_arrives(place: Path, tmp_path: Path, run: Run, jobs: int) -> None:
    all = made(tmp_path / "store", jobs)
    with served(place) as (_, url):
        words = typed("aof", all.root, place)
        pipe = words.index("|")
        exported = run(*words[:pipe])
        assert exported.code == 0
        piped = subprocess.run(
            [*words[pipe + 1 :], "-p", url.rpartition(":")[2]],
            input=exported.out.encode("utf-8", "surrogateescape"),
            stdout=subprocess.PIPE,
            check=True,
        )
        assert b"errors: 0" in piped.stdout, piped.stdout
        arrived(url, all)


def test_the_figures_of_the_page_are_those_of_the_benchmarks() -> None:
    table = PAGE.split("## How far it goes")[1].split("The machine was")[0]
    figures = re.findall(r"[\d,]+/s|10,000,000", table)
    measured = (Path(__file__).parents[2] / "docs/guides/benchmarks.md").read_text()
    assert len(figures) > 10
    assert [each for each in figures if not re.search(rf"(?<![\d,]){each}", measured)] == []
