"""The guide "Web app and workers", followed as written: gunicorn with several processes, workers, a systemd unit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from tests.client.owners import ended_owner, owner_of
from tests.server.ports import free_port
from tests.until import until

import tidelog
from tidelog.disk.process import environment

PAGE = Path(__file__).parents[2] / "docs/guides/web-app-and-workers.md"
JOBS = 60
ENDS = (signal.SIGTERM, signal.SIGKILL) * 4


def program(name: str) -> str:
    """The first Python block behind the first place where the page names the file."""
    text = PAGE.read_text().split(f"`{name}`", 1)[1]
    found = re.search(r"```python\n(.*?)```", text, re.S)
    assert found
    return found[1]


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--preload",)], ids=["as-written", "preload"])
def test_a_web_app_and_two_workers(more: tuple[str, ...], tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    for name in ("web.py", "worker.py"):
        (tmp_path / name).write_text(program(name))
    words = re.search(r"^gunicorn (.*)$", PAGE.read_text(), re.M)
    assert words
    web = [sys.executable, "-m", "gunicorn", "-b", f"127.0.0.1:{port}", *more, *words[1].split()]
    outputs = [tmp_path / f"worker{n}.txt" for n in range(2)]
    with ended_owner(tmp_path / "mail-data"):
        processes = [subprocess.Popen(web, cwd=tmp_path, stderr=subprocess.DEVNULL)]
        try:
            for output in outputs:
                with output.open("wb") as file:
                    processes.append(
                        subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, stdout=file)
                    )
            until(lambda: answers(url), "gunicorn does not answer")
            for n in range(JOBS):
                if n == JOBS // 3:
                    os.kill(owner_of(tmp_path / "mail-data"), signal.SIGKILL)
                body = f"user-{n}@example.org".encode()
                with urllib.request.urlopen(url, body, timeout=60) as reply:
                    assert re.fullmatch(rb"\d+-\d+", reply.read())
            until(lambda: len(done(outputs)) >= JOBS, "the workers do not do all jobs")
            assert set(done(outputs)) == {f"user-{n}@example.org" for n in range(JOBS)}
            with urllib.request.urlopen(url, timeout=60) as reply:
                assert reply.read() == b'{"waiting": 0}'
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)


WORK = """
import os


def send(job):
    os.write(1, f"sent {job.value['to']}\\n".encode())
"""


@pytest.mark.slow
def test_a_web_app_and_two_worker_commands_are_restarted_under_load(tmp_path: Path) -> None:
    """`tidelog worker` as the guide calls it, twice, while clients post. SIGTERM and SIGKILL come to each in turn."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    (tmp_path / "web.py").write_text(program("web.py"))
    (tmp_path / "work.py").write_text(WORK)
    words = re.search(r"^gunicorn (.*)$", PAGE.read_text(), re.M)
    called = re.search(r"`tidelog (worker [^`]*)`", PAGE.read_text())
    assert words and called
    # The guide's queue keeps jobs of a killed worker for 30 seconds.
    worker = [sys.executable, "-m", "tidelog", *called[1].split(), "--retry-after", "1"]
    accepted: list[str] = []
    outputs: list[Path] = []

    def start() -> tuple[subprocess.Popen[bytes], Path]:
        output = tmp_path / f"sent{len(outputs)}.txt"
        outputs.append(output)
        with output.open("wb") as file:
            made = subprocess.Popen(
                worker, cwd=tmp_path, stdout=file, stderr=subprocess.DEVNULL, env=environment()
            )
        return made, output

    def post() -> None:
        to = f"user-{len(accepted)}@example.org"
        with urllib.request.urlopen(url, to.encode(), timeout=60) as reply:
            assert re.fullmatch(rb"\d+-\d+", reply.read())
        accepted.append(to)

    web = [sys.executable, "-m", "gunicorn", "-b", f"127.0.0.1:{port}", *words[1].split()]
    with ended_owner(tmp_path / "mail-data"):
        server = subprocess.Popen(web, cwd=tmp_path, stderr=subprocess.DEVNULL)
        workers = [start(), start()]
        try:
            until(lambda: answers(url), "gunicorn does not answer")
            for how in ENDS:
                ended, output = workers.pop(0)

                def has_worked(output: Path = output) -> bool:
                    post()
                    return len(done([output])) > 2

                until(has_worked, "a worker gets no job")
                ended.send_signal(how)
                assert ended.wait(60) == (0 if how == signal.SIGTERM else -signal.SIGKILL)
                workers.append(start())
            until(lambda: set(accepted) <= set(done(outputs)), "the workers do not do all jobs")
            assert set(done(outputs)) == set(accepted)
        finally:
            processes = [server, *(process for process, _ in workers)]
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
    until(lambda: not those_in(tmp_path), "processes are left")


def those_in(directory: Path) -> list[str]:
    """Processes whose current directory this is."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if os.readlink(folder / "cwd") == str(directory):
                    found.append(folder.name)
    return found


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """`systemd-analyze verify` reads it. To start it needs systemd as process 1, which containers do not have."""
    (unit,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.S)
    command = re.search(r"^ExecStart=(\S+) (.*)$", unit, re.M)
    assert command and command[1].endswith("/tidelog")
    script = Path(sys.executable).with_name("tidelog")
    (tmp_path / "mail.service").write_text(
        unit.replace(command[1], str(script)).replace("/srv/mail", str(tmp_path))
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "mail.service")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # --- and the command that it starts is one
    (tmp_path / "work.py").write_text("def send(job): print(job.value)\n")
    with ended_owner(tmp_path / "mail-data"):
        words = [str(script), *command[2].split(), "--until-idle", "0.1"]
        with tidelog.queue(tmp_path / "mail-data", "mails", shared=True) as mails:
            mails.put("ann")
            found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert (found.returncode, found.stdout) == (0, "ann\n"), found.stderr
            assert len(mails) == 0


def test_a_program_that_starts_processes(tmp_path: Path) -> None:
    (running,) = (block for block in python_blocks() if "mails.run(" in block)
    (tmp_path / "main.py").write_text(running)
    output = tmp_path / "sent.txt"
    names = {f"user-{n}@example.org" for n in range(10)}
    root = tmp_path / "mail-data"
    with ended_owner(root), tidelog.queue(root, "mails", shared=True) as mails:
        mails.put_many([{"to": name} for name in names])
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "main.py"], cwd=tmp_path, stdout=file, env=environment()
            )
        try:
            until(lambda: len(mails) == 0, "the processes do not do all jobs")
        finally:
            process.terminate()
            assert process.wait(60) == 0
        # A process that ends in order writes out its texts. Those of its threads may lie between each other.
        found = re.findall(r"user-\d+@example\.org", output.read_text())
        assert sorted(found) == sorted(names)
    until(lambda: not those_in(tmp_path), "processes are left")


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def test_the_other_python_blocks(tmp_path: Path) -> None:
    """Those that are no program of their own run as they stand, one after the other."""
    programs = [block for block in python_blocks() if "mails.run(" in block]
    files = {*programs, *map(program, ("web.py", "worker.py"))}
    blocks = python_blocks()
    rest = [block for block in blocks if block not in files]
    assert len(rest) + len(files) == len(blocks) and rest
    with ended_owner(tmp_path / "mail-data"):
        for block in rest:
            done = subprocess.run(
                [sys.executable, "-c", block],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert (done.returncode, done.stderr) == (0, ""), block
        assert done.stdout == "1 1\n"  # one visit, one mail


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60):
            return True
    except OSError:
        return False


def done(outputs: list[Path]) -> list[str]:
    """The addresses that the workers printed."""
    lines = [line for output in outputs for line in output.read_text().splitlines()]
    return [line.removeprefix("sent ") for line in lines]
