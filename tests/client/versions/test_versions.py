"""Clients and owners of this version and of 0.1 work on one store, through upgrades in both orders.

Putters and workers of both versions go on while the server of one version ends, or is killed, and one of the other
version goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import pytest
from tests.client.owners import ended_owner, is_running, owner_of
from tests.client.versions.earlier import earlier
from tests.server.ports import free_port
from tests.until import until

import tidelog

PROGRAM: Final = str(Path(__file__).with_name("party.py"))
JOBS: Final = 150  # of each putter
ORDERS: Final = [("0.1", "this"), ("this", "0.1")]


class Process:
    """One of either version, and the lines that it printed."""

    def __init__(self, python: Path, stack: ExitStack, said: Path, *words: str) -> None:
        self.said: list[str] = []
        self._errors = said
        env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        with said.open("w") as errors:
            self.process = subprocess.Popen(
                [str(python), *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=env,
            )
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        stack.callback(self.kill)

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self.said.append(line.strip())

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reader.join()

    def ended(self) -> list[str]:
        """Its lines, once it has ended without an error."""
        until(lambda: self.process.poll() is not None, f"process {self.process.pid} does not end")
        self._reader.join()
        assert self.process.returncode == 0, self._errors.read_text()
        return self.said


def version_of(root: Path, pythons: dict[str, Path]) -> str:
    """The version of the process that has the store open."""
    words = Path(f"/proc/{owner_of(root)}/cmdline").read_bytes().split(b"\0")
    found = [name for name, python in pythons.items() if os.fsencode(python) == words[0]]
    assert found, words
    return found[0]


class Party:
    """Putters and workers of both versions on one store, and what they did.

    where    what they connect to: a path or a URL
    """

    def __init__(self, where: str, folder: Path, stack: ExitStack) -> None:
        self.pythons = {"0.1": earlier(), "this": Path(sys.executable)}
        self._where, self._folder, self._stack = where, folder, stack
        self.workers: dict[str, list[Process]] = {}
        self.putters: dict[str, Process] = {}

    def start(self, version: str, role: str, *words: str) -> Process:
        """A process of a version."""
        said = self._folder / "-".join((version, role, *words, "errors"))
        return Process(self.pythons[version], self._stack, said, PROGRAM, role, self._where, *words)

    def join(self, version: str) -> None:
        """A putter and two workers of a version begin."""
        self.workers[version] = [self.start(version, role) for role in ("work", "awork")]
        until(lambda: all(each.said for each in self.workers[version]), "the workers do not begin")
        self.putters[version] = self.start(version, "put", version, str(JOBS))

    def all_workers(self) -> list[Process]:
        """Those of both versions."""
        return [each for some in self.workers.values() for each in some]

    def go_on(self) -> None:
        """Return once the workers that are not stopped have done some more."""
        before = self._done()
        until(lambda: self._done() > before + 20, "the workers do nothing")

    def _done(self) -> int:
        return sum(len(each.said) for each in self.all_workers())

    def signal(self, version: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a version."""
        for each in (*self.workers[version], self.putters[version]):
            each.process.send_signal(number)

    def check(self) -> None:
        """Wait until all is done. No job is lost or dead, and no process has seen an error."""
        stored = [value for each in self.putters.values() for value in each.ended()]
        # A put whose server was killed may be unknown.
        assert len(stored) >= 2 * JOBS - 8
        lost = set(stored)

        def missing() -> set[str]:
            for each in self.all_workers():
                lost.difference_update(each.said)
            return lost

        until(lambda: not missing(), "jobs are lost")
        for each in self.all_workers():
            each.process.send_signal(signal.SIGTERM)
        counts = Counter(value for each in self.all_workers() for value in each.ended())
        with tidelog.connect(self._where) as db:
            queue = db.queue("q")
            assert (len(queue), queue.dead.count()) == (0, 0)
        # A worker prints a value before its acknowledgement, so a kill in between has the job done again.
        again = {value: count for value, count in counts.items() if count > 1 and value != "ready"}
        assert len(again) <= 8, again


def end(pid: int, number: signal.Signals) -> None:
    """End the process that has the store open."""
    os.kill(pid, number)
    until(lambda: not is_running(pid), "the server does not end")


@pytest.mark.soak
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("order", ORDERS, ids=["up", "down"])
def test_a_path(order: tuple[str, str], ending: signal.Signals, tmp_path: Path) -> None:
    """The owner is the process that the first client has started, and one that others use goes on."""
    root = tmp_path / "store"
    with ended_owner(root), ExitStack() as stack:
        party = Party(str(root), tmp_path, stack)
        for version in order:
            party.join(version)
        for before, after in (order, order[::-1]):
            assert version_of(root, party.pythons) == before
            party.go_on()
            # The others are stopped, so a client of this version starts the next owner.
            party.signal(before, signal.SIGSTOP)
            end(owner_of(root), ending)
            party.start(after, "open").ended()
            assert version_of(root, party.pythons) == after
            party.signal(before, signal.SIGCONT)
        party.go_on()
        party.check()


@pytest.mark.soak
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("order", ORDERS, ids=["up", "down"])
def test_a_server(order: tuple[str, str], ending: signal.Signals, tmp_path: Path) -> None:
    """It is ended, and one of the other version serves the store: twice, so that it is served by either after other."""
    port = free_port()
    with ExitStack() as stack:
        party = Party(f"redis://127.0.0.1:{port}", tmp_path, stack)
        for number, version in enumerate((*order, *order)):
            server = Process(
                party.pythons[version],
                stack,
                tmp_path / f"server-{number}.err",
                *("-m", "tidelog", "serve", str(tmp_path / "store"), "--port", str(port)),
            )
            if number == 0:
                for each in order:
                    party.join(each)
            party.go_on()
            if number < 3:
                end(server.process.pid, ending)
        party.check()
