"""`tidelog worker`: it calls a function with each job, ends in order, and its processes are replaced."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.client.owners import ended_owner, is_running
from tests.tools.conftest import Run
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.disk.process import environment
from tidelog.tools import exits
from tidelog.tools.worker.command import command, words_of
from tidelog.tools.worker.sources import Sources

WORK = r"""
import asyncio, os, time

# Each line is one write: other threads print too.
def send(job):
    print(f"sent {job.value} {os.getpid()}\n", end="", flush=True)

async def asend(job):
    print(f"async {job.value}\n", end="", flush=True)

def fail(job):
    raise LookupError("no such address")

class Panic(BaseException):
    pass

def panic(job):
    if job.value.startswith("bad"):
        raise Panic("broken")
    send(job)

async def cancelled(job):
    if job.value.startswith("bad"):
        inner = asyncio.ensure_future(asyncio.sleep(10))
        await asyncio.sleep(0)
        inner.cancel()
        await inner
    await asend(job)

def note(job):
    print(f"dead {job.queue} {job.value} {job.reason}\n", end="", flush=True)

def done(job, result):
    print(f"done {job.value} {result}\n", end="", flush=True)

def again(job, error, delay):
    print(f"again {job.value} {error!r} {delay}\n", end="", flush=True)

def outer(job, next):
    return f"outer {next(job)}"

def inner(job, next):
    return f"inner {next(job)}"

async def awaited(job, next):
    return f"awaited {await next(job)}"

class Mailer:
    def send(self, job):
        print(f"mailer {job.value}\n", end="", flush=True)

def nothing_taken():
    pass

mailer = Mailer()
number = 7
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a module `work`, which is the working directory; logging is put back."""
    (tmp_path / "work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    yield tmp_path
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    for name in ("work", "broken", "lacking"):
        sys.modules.pop(name, None)


def put(path: Path, values: Any) -> None:
    with tidelog.queue(path, "mails", fsync="no") as mails:
        mails.put_many(values)


def depth(path: Path) -> int:
    with tidelog.open(path, read_only=True) as db:
        return len(db.queue("mails"))


EMBEDDED = ("--embedded", "--until-idle", 0)


def test_a_function_is_called_with_each_job(run: Run, place: Path) -> None:
    put(place / "s", ["ann", "ben"])
    done = run("worker", place / "s", "mails", "work:send", *EMBEDDED)
    assert done.code == exits.OK, done.err
    assert sorted(line.split()[1] for line in done.out.splitlines()) == ["ann", "ben"]
    assert "takes jobs with 4 threads" in done.err and "ended after 2 jobs" in done.err
    assert depth(place / "s") == 0


def test_a_mistyped_queue_is_refused(run: Run, place: Path) -> None:
    put(place / "s", ["ann"])
    with tidelog.open(place / "s") as db, tidelog.serve(db, port=0) as serving:
        for path in (place / "s", f"redis://127.0.0.1:{serving.port}"):
            for more in ((), ("--processes", 2)):
                done = run("worker", path, "mials", "work:send", "--until-idle", 0, *more)
                assert (done.code, done.out) == (exits.NOT_A_STORE, "")
                assert (
                    f"no queue mials in {path}: it holds mails; to begin it, add --create"
                    in done.err
                )
        assert db.keys() == [b"mails"]
        done = run(
            "worker",
            f"redis://127.0.0.1:{serving.port}",
            "new",
            "work:send",
            "--until-idle",
            0,
            "--create",
        )
        assert done.code == exits.OK
        assert {
            row["name"]
            for row in map(json.loads, run("queue", "ls", place / "s", "--json").out.splitlines())
        } == {"mails", "new"}


def test_a_queue_whose_jobs_are_done_exists(run: Run, place: Path) -> None:
    put(place / "s", ["ann"])
    for _ in range(2):
        assert run("worker", place / "s", "mails", "work:send", *EMBEDDED).code == exits.OK


def test_a_new_store(run: Run, place: Path) -> None:
    (place / "empty").mkdir()
    for path in (place / "s", place / "empty"):
        done = run("worker", path, "mails", "work:send", *EMBEDDED)
        assert (
            done.code == exits.NOT_A_STORE
            and "To begin a new store and its queue, give a missing" in done.err
        )
    assert not (place / "s").exists() and not list((place / "empty").iterdir())
    done = run("worker", place / "s", "mails", "work:send", "--create", *EMBEDDED)
    assert done.code == exits.OK and f"new store {place / 's'}" in done.err
    done = run("worker", place / "s", "mails", "work:send", *EMBEDDED)
    assert done.code == exits.OK and "new store" not in done.err


@pytest.mark.parametrize("name, said", [("work:asend", "async"), ("work:mailer.send", "mailer")])
def test_other_kinds_of_functions(name: str, said: str, run: Run, place: Path) -> None:
    put(place / "s", ["ann"])
    done = run("worker", place / "s", "mails", name, *EMBEDDED)
    assert (done.code, done.out) == (exits.OK, f"{said} ann\n"), done.err


def test_json_lines_have_the_fields_of_the_worker(run: Run, place: Path) -> None:
    put(place / "s", ["ann"])
    words = ("--log-format", "json", "--loglevel", "debug", "--name", "anna", "--workers", "1")
    done = run("worker", place / "s", "mails", "work:send", *EMBEDDED, *words)
    lines = [json.loads(line) for line in done.err.splitlines()]
    mine = [line for line in lines if line["logger"] == "tidelog.worker"]
    assert all((line["queue"], line["worker"]) == ("mails", "anna") for line in mine)
    (job,) = [line for line in mine if "job" in line]
    assert job["seconds"] >= 0 and job["level"] == "debug"
    assert mine[-1]["done"] == 1 and mine[-1]["given_back"] == 0


def test_a_function_is_called_with_each_job_that_dies(run: Run, place: Path) -> None:
    put(place / "s", [1])
    words = ("--max-deliveries", 1, "--on-dead", "work:note", *EMBEDDED)
    done = run("worker", place / "s", "mails", "work:fail", *words)
    reason = "given up after 1 delivery; the last one failed: LookupError: no such address"
    assert (done.code, done.out) == (exits.OK, f"dead mails 1 {reason}\n"), done.err


def test_a_function_for_dead_jobs_must_exist(run: Run, place: Path) -> None:
    done = run("worker", place / "s", "mails", "work:send", "--on-dead", "work:no", *EMBEDDED)
    assert done.code == exits.USAGE and "module 'work' has no 'no'" in done.err


def test_functions_around_the_one_and_for_each_end(run: Run, place: Path) -> None:
    put(place / "s", ["ann"])
    words = ["--on-done", "work:done", "--on-retry", "work:again", "--retry", "base=60 jitter=no"]
    around = ["--middleware", "work:outer", "--middleware", "work:inner"]
    done = run("worker", place / "s", "mails", "work:send", *words, *around, *EMBEDDED)
    assert done.code == exits.OK and done.out.endswith("\ndone ann outer inner None\n"), done.err
    put(place / "s", ["ben"])
    done = run("worker", place / "s", "mails", "work:fail", *words, *around, *EMBEDDED)
    assert done.out == "again ben LookupError('no such address') 60.0\n", done.err
    put(place / "s", ["cid"])
    around = ["--middleware", "work:awaited"]
    done = run("worker", place / "s", "mails", "work:asend", *words, *around, *EMBEDDED)
    assert done.out == "async cid\ndone cid awaited None\n", done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on-done", "work:note"), "'work:note' must take two arguments: the job and its result"),
        (("--on-retry", "work:done"), "'work:done' must take three arguments: the job, the error"),
        (("--middleware", "work:send"), "'work:send' must take two arguments: the job and next"),
        (("--middleware", "work:awaited"), "a middleware must be a plain function"),
        (("--middleware", "work:inner", "--middleware", "work:no"), "'work' has no 'no'"),
        (("--on-done", "work:done", "--batch", "2"), "on_done needs batch=1"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_functions_that_do_not_fit(
    words: tuple[str, ...], said: str, run: Run, place: Path
) -> None:
    put(place / "s", ["ann"])
    done = run("worker", place / "s", "mails", "work:send", *words, *EMBEDDED)
    assert done.code == exits.USAGE and said in done.err, done.err
    with tidelog.open(place / "s", read_only=True) as db:
        assert len(db.queue("mails")) == 1


@pytest.mark.parametrize("policy", ["max=1", "max=9 never=LookupError"])
def test_a_retry_policy(run: Run, place: Path, policy: str) -> None:
    put(place / "s", [1])
    words = ("--retry", policy, "--lease", "1m", *EMBEDDED)
    assert run("worker", place / "s", "mails", "work:fail", *words).code == exits.OK
    with tidelog.open(place / "s", read_only=True) as db:
        assert [dead.deliveries for dead in db.queue("mails").dead] == [1]
    wrong = run("worker", place / "s", "mails", "work:fail", "--retry", "max", *EMBEDDED)
    assert wrong.code == exits.USAGE and "retry has no valid max in 'max'" in wrong.err


def test_a_failure_is_logged_with_its_traceback(run: Run, place: Path) -> None:
    put(place / "s", ["ann"])
    words = ("--max-deliveries", 1, "--log-format", "json")
    done = run("worker", place / "s", "mails", "work:fail", *EMBEDDED, *words)
    lines = [json.loads(line) for line in done.err.splitlines()]
    dead, failed = [line for line in lines if line["level"] == "error"]
    assert "LookupError: no such address" in failed["error"]
    assert (dead["queue"], dead["attempts"]) == ("mails", 1) and dead["reason"] in dead["message"]
    with tidelog.open(place / "s", read_only=True) as db:
        assert db.queue("mails").dead.count() == 1


@pytest.mark.parametrize(
    "name, said",
    [
        ("work", "'work' must be MODULE:FUNCTION"),
        ("work:", "'work:' must be MODULE:FUNCTION"),
        ("nothing:send", "there is no module 'nothing' in"),
        ("work.deeper:send", "there is no module 'work.deeper' in"),
        ("work:nothing", "module 'work' has no 'nothing'"),
        ("work:number", "'work:number' is no function, but 'int'"),
        ("work:nothing_taken", "'work:nothing_taken' must take one argument, the job"),
        ("broken:send", "module 'broken' cannot be imported: ZeroDivisionError"),
        ("lacking:send", "module 'lacking' cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_function_that_is_not_there(name: str, said: str, run: Run, place: Path) -> None:
    (place / "broken.py").write_text("1 / 0\n")
    (place / "lacking.py").write_text("import no_such_library\n")
    done = run("worker", place / "s", "mails", name, *EMBEDDED)
    assert done.code == exits.USAGE
    assert done.err.splitlines()[-1].startswith(f"tidelog: {said}")
    assert not (place / "s").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--workers", "0"),
        ("--processes", "0"),
        ("--drain", "nan"),
        ("--drain", "-1"),
        ("--retry-after", "0"),
        ("--codec", "pickle"),
        ("--embedded", "--processes", "2"),
    ],
    ids=" ".join,
)
def test_wrong_options(words: tuple[str, ...], run: Run, place: Path) -> None:
    done = run("worker", place / "s", "mails", "work:send", *words)
    assert done.code == exits.USAGE
    assert not (place / "s").exists()


def test_it_says_at_once_that_no_server_answers(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}"
        words = [sys.executable, "-m", "tidelog", "worker", url, "mails", "work:send"]
        worker = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True)
        assert worker.stderr is not None
        with worker, worker.stderr:
            line = worker.stderr.readline()
            worker.kill()
    assert "WARNING no server of" in line and "connection refused" in line, line
    assert line.endswith("; waits for a server for 30 s\n")


def test_an_embedded_worker_keeps_to_the_lock(run: Run, place: Path) -> None:
    with tidelog.open(place / "s", fsync="no"):
        done = run("worker", place / "s", "mails", "work:send", "--create", *EMBEDDED)
    assert done.code == exits.LOCKED


def test_a_child_gets_the_same_options() -> None:
    words = [
        *("s", "mails", "work:send", "--workers", "3", "--drain", "5.5", "--name", "-anna", "--group", "g"),
        *("--codec", "bytes", "--batch", "7", "--retry-after", "2", "--max-deliveries", "9"),
        *("--lease", "1m", "--retry", "max=8 base=2 never=ValueError"),
        *("--time-limit", "4", "--until-idle", "1", "--loglevel", "debug", "--log-format", "json"),
        *("--processes", "3", "--reload", "--create", "--on-dead", "work:note"),
        *("--on-done", "work:done", "--on-retry", "work:again"),
        *("--middleware", "work:outer", "--middleware", "work:inner"),
    ]  # fmt: skip
    given = click.Context(command)
    params = command.make_context("worker", words, parent=given).params
    place, name, function = (params.pop(key) for key in ("path", "name", "function"))
    again = command.make_context("worker", words_of(place, name, function, params), parent=given)
    expected = {**params, "processes": 1, "reload": False, "create": False, "child": True}
    assert again.params == {"path": place, "name": name, "function": function, **expected}


def test_sources_that_change(tmp_path: Path) -> None:
    for name in ("a.py", "deep/b.py", ".venv/c.py", "d.txt", "node_modules/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    sources = Sources(tmp_path)
    assert sources.changed() is None
    for name in (".venv/c.py", "d.txt", "node_modules/e.py"):
        (tmp_path / name).write_text("changed\n")
    assert sources.changed() is None
    (tmp_path / "deep/b.py").write_text("changed\n")
    assert sources.changed() == "deep/b.py"
    assert sources.changed() is None
    (tmp_path / "a.py").unlink()
    assert sources.changed() == "a.py"
    (tmp_path / "new.py").write_text("")
    assert sources.changed() == "new.py"


# --- whole processes


class Worker:
    """A `tidelog worker` process on the store `s` in a directory. Its output goes to files there."""

    def __init__(self, place: Path, *words: object, function: str = "work:send") -> None:
        self.out, self.err = place / "out", place / "err"
        command = [sys.executable, "-m", "tidelog", "worker", "s", "mails", function, "--create"]
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [*command, *map(str, words)], cwd=place, stdout=out, stderr=err, env=environment()
            )

    def said(self, text: str, count: int = 1) -> None:
        """Until its log has the text so often."""
        until(
            lambda: self.err.read_text().count(text) >= count or self.process.poll() is not None,
            f"it never logs {text!r}",
        )
        assert self.err.read_text().count(text) >= count, self.err.read_text()

    def sent(self) -> list[str]:
        return [line.split()[1] for line in self.out.read_text().splitlines()]

    def ends(self) -> int:
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


def test_sigterm_ends_it_with_success(place: Path) -> None:
    with Worker(place, "--embedded") as worker:
        worker.said("takes jobs with")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ends() == exits.OK
        assert "SIGTERM: takes no more jobs" in worker.err.read_text()


@pytest.mark.slow
def test_processes_are_replaced_and_end_in_order(place: Path) -> None:
    with ended_owner(place / "s"), tidelog.queue(place / "s", "mails", shared=True) as mails:
        with Worker(place, "--processes", 2, "--workers", 1) as worker:
            worker.said("takes jobs with", 2)
            mails.put_many(map(str, range(20)))
            until(lambda: len(set(worker.sent())) == 20, "not all jobs are done")
            pid = int(worker.out.read_text().split()[2])
            os.kill(pid, signal.SIGKILL)
            worker.said("takes jobs with", 3)
            assert f"process {pid} ended with signal 9" in worker.err.read_text()
            worker.process.send_signal(signal.SIGINT)
            assert worker.ends() == exits.OK
            assert worker.err.read_text().count("SIGTERM: takes no more jobs") == 2
        assert len(mails) == 0


@pytest.mark.slow
def test_the_processes_end_when_their_parent_is_killed(place: Path) -> None:
    with ended_owner(place / "s"), tidelog.queue(place / "s", "mails", shared=True) as mails:
        with Worker(place, "--processes", 2) as worker:
            worker.said("takes jobs with", 2)
            mails.put("one")
            until(lambda: worker.sent() == ["one"])
            pid = int(worker.out.read_text().split()[2])
            worker.process.kill()
            worker.ends()
            worker_said = worker.err.read_text
            until(lambda: worker_said().count("ended after") == 2, "the children do not end")
            until(lambda: not is_running(pid))


@pytest.mark.slow
def test_a_changed_source_starts_the_processes_again(place: Path) -> None:
    with ended_owner(place / "s"), tidelog.queue(place / "s", "mails", shared=True) as mails:
        with Worker(place, "--reload") as worker:
            worker.said("takes jobs with")
            (place / "work.py").write_text("this is no Python")
            worker.said("waits for a change")
            (place / "work.py").write_text(WORK.replace('"sent {', '"resent {'))
            worker.said("takes jobs with", 2)
            mails.put("one")
            until(lambda: worker.out.read_text().startswith("resent one"))
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ends() == exits.OK


@pytest.mark.slow
def test_processes_that_cannot_work_end_all(place: Path) -> None:
    with Worker(place, "--processes", 2, function="work:nothing") as worker:
        assert worker.ends() == exits.USAGE
    assert "module 'work' has no 'nothing'" in worker.err.read_text()


@pytest.mark.slow
def test_idle_processes_end(place: Path) -> None:
    with ended_owner(place / "s"), tidelog.queue(place / "s", "mails", shared=True) as mails:
        mails.put_many(map(str, range(10)))
        with Worker(place, "--processes", 2, "--until-idle", 0.5) as worker:
            assert worker.ends() == exits.OK
            assert sorted(worker.sent()) == sorted(map(str, range(10)))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("function", ["work:send", "work:asend"])
def test_a_job_that_no_function_saw_is_not_counted(
    function: str, processes: int, place: Path
) -> None:
    """The worker is ended again and again while it takes jobs. One that was counted for nothing is dead."""
    options: Any = {"max_deliveries": 1, "retry_after": 600}
    with (
        ended_owner(place / "s"),
        tidelog.queue(place / "s", "mails", shared=True, **options) as mails,
    ):
        words = ("--processes", processes, "--workers", 8, "--max-deliveries", 1)
        for round in range(4):
            mails.put_many([f"{round}.{number}" for number in range(100)])
            with Worker(place, *words, "--retry-after", 600, function=function) as worker:
                seen = len(worker.out.read_text())
                until(lambda: len(worker.out.read_text()) > seen, "it does nothing")
                worker.process.send_signal(signal.SIGTERM)
                assert worker.ends() == exits.OK
            stats = mails.stats()
            assert (stats.in_flight, stats.dead) == ({}, 0)
        left = [job.value for job in mails.consume(block=0) if job.ack()]
        assert len(left) + len(worker.sent()) == 400 == len({*left, *worker.sent()})


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("function", "error"), [("panic", "Panic: broken"), ("cancelled", "CancelledError")]
)
def test_a_worker_goes_on_whatever_its_function_raises(
    function: str, error: str, processes: int, place: Path
) -> None:
    with ended_owner(place / "s"), tidelog.queue(place / "s", "mails", shared=True) as mails:
        mails.put_many(["bad0", "bad1", *map(str, range(20))])
        words = ("--processes", processes, "--workers", 2, "--max-deliveries", 1)
        with Worker(place, *words, "--until-idle", 0.5, function=f"work:{function}") as worker:
            assert worker.ends() == exits.OK
        assert sorted(worker.sent()) == sorted(map(str, range(20)))
        dead = {job.value: [failure.error for failure in job.errors] for job in mails.dead}
        assert dead == {"bad0": [error], "bad1": [error]}
        assert "ended with" not in worker.err.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("function", ["work:send", "work:asend"])
def test_a_job_that_no_function_saw_is_not_counted_when_sources_change(
    function: str, place: Path
) -> None:
    """The processes are started again and again while they take jobs."""
    options: Any = {"max_deliveries": 1, "retry_after": 600}
    with (
        ended_owner(place / "s"),
        tidelog.queue(place / "s", "mails", shared=True, **options) as mails,
    ):
        words = ("--reload", "--workers", 8, "--max-deliveries", 1, "--retry-after", 600)
        with Worker(place, *words, function=function) as worker:
            for round in range(3):
                worker.said("takes jobs with", round + 1)
                seen = len(worker.out.read_text())
                mails.put_many([f"{round}.{number}" for number in range(300)])
                until(lambda: len(worker.out.read_text()) > seen, "it does nothing")  # noqa: B023
                (place / "work.py").write_text(WORK + f"# {round}\n")
            worker.said("takes jobs with", 4)
            until(lambda: mails.stats().depth == 0, "jobs are left")
            worker.process.send_signal(signal.SIGTERM)
            assert worker.ends() == exits.OK
        assert mails.stats().dead == 0
        assert len(worker.sent()) == 900 == len(set(worker.sent()))
