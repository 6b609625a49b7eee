"""Celery on a shared store: its own worker command, with a process pool, one of whose processes is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import celery
import pytest
from celery.exceptions import ImproperlyConfigured
from tests.client.owners import ended_owner
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment
from tidelog.integrations.celery import TidelogBackend

APP = """
import os
from celery import Celery
import tidelog.integrations.celery

app = Celery("app", broker="tidelog:///s", backend="tidelog:///s")
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, worker_enable_remote_control=False,
                broker_transport_options={"retry_after": 1})

@app.task(name="square")
def square(n):
    with open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return n * n

@app.task(name="total")
def total(numbers):
    return sum(numbers)
"""


def test_a_backend_needs_a_path() -> None:
    for url in (None, "tidelog://", "tidelog://host/path", "redis:///s"):
        with pytest.raises(ImproperlyConfigured):
            TidelogBackend(url, app=celery.Celery("app", set_as_current=False))


@pytest.mark.slow
def test_a_celery_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = [sys.executable, "-m", "celery", "-A", "app", "worker", "-c", "2", "-l", "info"]
    with ended_owner(tmp_path / "s"):
        with (tmp_path / "log").open("wb") as log:
            worker = subprocess.Popen(
                command, cwd=tmp_path, env=environment(), stdout=log, stderr=log
            )
        try:
            from app import app, square, total  # type: ignore[import-not-found]

            results: list[Any] = [square.delay(n) for n in range(20)]
            assert [result.get(timeout=PATIENCE_S) for result in results] == [
                n * n for n in range(20)
            ]
            chord = celery.chord([square.s(n) for n in range(5)], total.s())
            assert chord.apply_async().get(timeout=PATIENCE_S) == 30

            # the whole worker is killed while it has tasks; another one does them
            results = [square.delay(n) for n in range(10)]
            worker.kill()
            worker.wait()
            for pid in set((tmp_path / "pids").read_text().split()):
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            with (tmp_path / "log").open("ab") as log:
                worker = subprocess.Popen(
                    command, cwd=tmp_path, env=environment(), stdout=log, stderr=log
                )
            assert [result.get(timeout=PATIENCE_S) for result in results] == [
                n * n for n in range(10)
            ]
            with tidelog.connect(tmp_path / "s") as db:
                until(lambda: len(db.queue("celery")) == 0)
            app.close()
        finally:
            worker.terminate()
            worker.wait(PATIENCE_S)
            sys.modules.pop("app", None)
