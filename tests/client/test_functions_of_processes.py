"""Hooks and middleware of `SharedQueue.run(processes=)`: they are imported by name, and called in those processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.client.owners import ended_owner
from tests.until import PATIENCE_S

import tidelog
from tidelog.disk.process import environment
from tidelog.integrations.opentelemetry import instrument

PROGRAM = """
import os
from functools import partial
import tidelog

def note(*told):
    os.write(1, (" ".join(map(str, told)) + chr(10)).encode())

def send(job):
    if job.value == "bad":
        raise tidelog.RetryJob("later", delay=600)
    return job.value.upper()

async def asend(job):
    return send(job)

def done(job, result):
    note("done", result, os.getpid())

def again(job, error, delay):
    note("again", error, delay, os.getpid())

def named(name, job, next):
    return f"{name}({next(job)})"

async def anamed(name, job, next):
    return f"{name}({await next(job)})"

if __name__ == "__main__":
    note("parent", os.getpid())
    with tidelog.queue("s", "mails", shared=True, codec="str") as mails:
        mails.put_many(["ann", "bad"])
        if INSTRUMENTED:
            from tidelog.integrations.opentelemetry import instrument
            instrument(mails)
        around = [partial(NAMED, "a"), partial(NAMED, "b")]
        run = {"workers": 1, "processes": 2, "block": 0.5, "on_done": done, "on_retry": again}
        mails.run(HANDLER, middleware=around, **run)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "tasks", "instrumented"])
def test_they_are_called_there(kind: str, tmp_path: Path) -> None:
    handler, named = ("asend", "anamed") if kind == "tasks" else ("send", "named")
    source = PROGRAM.replace("HANDLER", handler).replace("NAMED", named)
    source = source.replace("INSTRUMENTED", str(kind == "instrumented"))
    (tmp_path / "work.py").write_text(source)
    with ended_owner(tmp_path / "s"):
        words = [sys.executable, "work.py"]
        out = subprocess.check_output(
            words, cwd=tmp_path, text=True, env=environment(), timeout=PATIENCE_S
        )
    told = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    (parent,) = told.pop("parent")
    assert told["done"][:-1] == ["a(b(ANN))"] and told["again"][:-1] == ["later", "600.0"], out
    assert parent not in (told["done"][-1], told["again"][-1])


def handle(job: object) -> None: ...


async def handle_in_task(job: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"on_done": lambda job, result: None}, "cannot import the on_done"),
        ({"on_retry": lambda job, error, delay: None}, "cannot import the on_retry"),
        ({"middleware": [lambda job, next: None]}, "cannot import the middleware"),
        ({"middleware": 3}, "middleware must be a list"),
        ({"on_done": print, "batch": 2}, "on_done needs batch=1"),
        ({"on_retry": handle}, "on_retry must be a function that takes a job, an error"),
        ({"middleware": [print], "handler": handle_in_task}, "must be an async function"),
    ],
)
def test_those_that_another_process_cannot_import_are_refused(
    given: dict[str, Any], says: str, bench: Bench
) -> None:
    mails = bench.connect().queue("mails")
    with pytest.raises(tidelog.DataError, match=says):
        mails.run(given.pop("handler", handle), processes=2, **given)


def test_a_provider_of_spans_of_this_process_is_refused(bench: Bench) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    mails = instrument(bench.connect().queue("mails"), trace.TracerProvider())
    with pytest.raises(tidelog.DataError, match="cannot import the middleware"):
        mails.run(handle, processes=2)
