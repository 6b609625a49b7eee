"""A job that kills its process takes no other job along. Processes are really killed here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.client.owners import kill
from tests.client.poisoned import OPTIONS
from tests.until import until

import tidelog
from tidelog.disk.process import environment

HERE = Path(__file__).parent
MOST = OPTIONS["max_deliveries"]
LIVES_MAX = 20


def store_of(backend: str, root: Path) -> Any:
    return tidelog.open(root) if backend == "embedded" else tidelog.connect(root)


def worker(backend: str, face: str, batch: int, root: Path, done: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, str(HERE / "poisoned.py"), backend, face, str(batch), str(root)]
    return subprocess.Popen(words, env={**environment(), "DONE": str(done)})


def check(queue: Any, poisons: list[str], honest: list[str], done: Path, most: int = MOST) -> None:
    """Only the poisons are dead, and each other job was done."""
    dead = sorted((job.value, job.deliveries, job.reason) for job in queue.dead)
    reason = f"given up after {most} deliveries: never finished"
    assert dead == [(poison, most, reason) for poison in poisons]
    assert queue.stats().depth == 0
    assert sorted(set(done.read_text().split())) == honest


@pytest.mark.parametrize(
    ("backend", "face", "poisons", "batch"),
    [
        ("embedded", "tasks", 1, 1),
        pytest.param("shared", "threads", 1, 5, marks=pytest.mark.slow),
        pytest.param("embedded", "threads", 2, 1, marks=pytest.mark.slow),
        pytest.param("embedded", "threads", 1, 5, marks=pytest.mark.slow),
        pytest.param("shared", "threads", 2, 1, marks=pytest.mark.slow),
        pytest.param("shared", "tasks", 1, 1, marks=pytest.mark.slow),
    ],
)
def test_a_poison_dies_alone(
    backend: str, face: str, poisons: int, batch: int, root: Path, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    killers = [f"poison{number}" for number in range(poisons)]
    honest = [f"honest{number}" for number in range(6)]
    with store_of(backend, root) as db:
        queue = db.queue("q", **OPTIONS)
        for name in (killers[0], *honest[:4], *killers[1:], *honest[4:]):
            queue.put(name)
    for _ in range(LIVES_MAX):
        code = worker(backend, face, batch, root, done).wait(120)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    with store_of(backend, root) as db:
        check(db.queue("q", **OPTIONS), killers, honest, done)


@pytest.mark.slow
def test_a_poison_dies_alone_though_the_owner_is_killed_too(root: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    honest = [f"honest{number}" for number in range(3)]
    with store_of("shared", root) as db:
        queue = db.queue("q", **OPTIONS)
        for name in ("poison", *honest):
            queue.put(name)
        for _ in range(LIVES_MAX):
            code = worker("shared", "threads", 1, root, done).wait(120)
            kill(root)
            if code == 0:
                break
        # An owner does not know whether a handler began with a job that an earlier one gave out: one delivery more.
        check(queue, ["poison"], honest, done, MOST + 1)


def test_processes_of_tidelog_worker(root: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    honest = [f"honest{number}" for number in range(6)]
    with store_of("shared", root) as db:
        queue = db.queue("q", **OPTIONS)
        for name in ("poison", *honest):
            queue.put(name)
        words = ["-m", "tidelog", "worker", str(root), "q", "poisoned:handle", "--workers", "4"]
        words += ["--processes", "2", "--retry-after", "1", "--max-deliveries", str(MOST)]
        workers = subprocess.Popen(
            [sys.executable, *words],
            cwd=HERE,
            env={**environment(), "DONE": str(done), "PYTHONPATH": str(HERE)},
        )
        try:
            until(lambda: queue.stats().depth == 0, "the jobs do not end")
        finally:
            workers.send_signal(signal.SIGTERM)
            assert workers.wait(60) == 0
        check(queue, ["poison"], honest, done)


def test_run_with_processes(root: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    program = tmp_path / "program.py"
    program.write_text(
        f"""import sys
sys.path.insert(0, {str(HERE)!r})
import poisoned, tidelog

if __name__ == "__main__":
    with tidelog.connect({str(root)!r}) as db:
        db.queue("q", **poisoned.OPTIONS).run(poisoned.handle, workers=4, processes=2)
"""
    )
    honest = [f"honest{number}" for number in range(6)]
    with store_of("shared", root) as db:
        queue = db.queue("q", **OPTIONS)
        for name in ("poison", *honest):
            queue.put(name)
        workers = subprocess.Popen(
            [sys.executable, str(program)], env={**os.environ, "DONE": str(done)}
        )
        try:
            until(lambda: queue.stats().depth == 0, "the jobs do not end")
        finally:
            workers.send_signal(signal.SIGTERM)
            assert workers.wait(60) == 0
        check(queue, ["poison"], honest, done)
