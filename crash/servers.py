"""Servers: a whole server is killed under the load of several clients, started again, and killed again.

The server is a fork of this process, on real files. It kills itself with SIGKILL at one operation of its disk, before,
after or inside it. The next one recovers by itself and serves new clients, until it is killed before one of its
operations, or at the end of its load. Then the store is opened here: of each client, everything that was answered must
be there, and nothing else but what it had sent. One more client is a worker of a queue, which lives on over both
servers and repeats a write to which it got no reply (crash/worker.py).

Threads of the server take turns as they like, so two runs of a trouble are not the same.
"""

from __future__ import annotations

import multiprocessing
import random
import selectors
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Final

from tidelog.crash.afterwards import PROBE
from tidelog.crash.client import BadReply, Client
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Finding, Report
from tidelog.crash.hooked import HookedDisk, commits_hooked
from tidelog.crash.injector import BEFORE, KILLS, Trouble
from tidelog.crash.killed import Killer
from tidelog.crash.oracle import Fault, Kind, Oracle, Served
from tidelog.crash.served import contents_of, open_on
from tidelog.crash.trace import Promised, Trace, pack, versions
from tidelog.crash.worker import Worker
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.server.serving import serve

SERVERS: Final = "servers"
PLACE: Final = "served"  # in the scratch directory
CLIENTS: Final = 4
PIPELINES: Final = 25  # of all clients together, in one life of the server
PIPELINE_MAX: Final = 6
HUNG_S: Final = 60.0
DRAWN: Final = 8  # runs of a task, with two servers each
AGAIN: Final = 10  # so often a finding is tried again, since two runs are not the same


class _Server:
    """A forked process that serves the store in a directory, until it is killed."""

    def __init__(self, root: Path, policy: str, killer: Killer) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process: ForkProcess = context.Process(
            target=_child,
            args=(root, policy, killer, self._pipe, theirs),
            name="tidelog-crash-server",
        )
        self._process.start()
        theirs.close()

    def port(self) -> int | None:
        """Its port; None if it was killed before it listened. Raises BenchError if it hangs."""
        if not self._pipe.poll(HUNG_S):
            raise BenchError(f"the server did not listen for {HUNG_S:.0f} s")
        try:
            return int(self._pipe.recv())
        except EOFError:
            return None

    def kill(self) -> int:
        """End it, if it lives. Returns its exit code."""
        self._process.kill()
        return self.ended()

    def seen(self) -> dict[str, int]:
        """Close the store, end, and say how many moments of each kind there were."""
        self._pipe.send(None)
        found: dict[str, int] = self._pipe.recv()
        self.ended()
        return found

    def ended(self) -> int:
        """Wait for its end. Returns the exit code."""
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        self._pipe.close()
        return code


def _child(root: Path, policy: str, killer: Killer, ours: Connection, pipe: Connection) -> None:
    ours.close()
    # Ctrl-C ends the asker, which waits for this process first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with commits_hooked(), open_on(HookedDisk(RealDisk(), killer), root, policy) as db:
        with serve(db, port=0) as server:
            pipe.send(server.port)
            try:
                pipe.recv()
            except EOFError:
                return  # the asker is gone
    pipe.send(killer.seen)


class Runs:
    """The runs of one load.

    seen     how many moments of each kind there are for a kill, in a run without one
    kills    how many servers were killed
    """

    def __init__(self, policy: str, seed: str, scratch: Path) -> None:
        self.kills = 0
        self._policy = policy
        self._seed = seed
        self._disk = RealDisk()
        self._root = scratch / PLACE
        self._begin()
        server = _Server(self._root, policy, Killer(None))
        clients = self._clients(1)
        try:
            port = server.port()
            if port is None:
                raise BenchError("without any kill, the server did not start")
            self._load([*clients, self._worker], port)
            self.seen = server.seen()
        except BaseException:
            server.kill()  # or it would wait for this process, which would wait for it
            self.end()
            raise
        fault = self._judge(clients)
        if fault is not None:
            raise BenchError(f"without any kill: {fault.words}")

    def about(self) -> dict[str, Any]:
        """For the trace of a finding."""
        return {"seed": self._seed, "policy": self._policy, **versions()}

    def trouble(self, rng: random.Random) -> Trouble:
        """A random kill of the first server, and of the next one."""
        how = rng.choice(KILLS)
        again = rng.randint(1, self.seen[BEFORE])
        return Trouble(True, how, rng.randint(1, self.seen[how]), again=again)

    def kill(self, trouble: Trouble) -> Fault | None:
        """One run: a load, a kill, a second server with its load, a kill. Returns its fault."""
        self._begin()
        clients: list[Client] = []
        lives = (trouble._replace(again=0), Trouble(True, BEFORE, trouble.again))
        for life, each in enumerate(lives, 1):
            # In each life there are new clients, so they need not ask what is there.
            clients += self._clients(life)
            fault = self._life(clients[-CLIENTS:], each)
            if fault is not None:
                return fault
        return self._judge(clients)

    def _life(self, clients: list[Client], trouble: Trouble) -> Fault | None:
        server = _Server(self._root, self._policy, Killer(trouble))
        try:
            port = server.port()
            if port is not None:
                self._load([*clients, self._worker], port)
        except BadReply as error:
            return Fault(Kind.WRONG, str(error))
        except BenchError as error:
            return Fault(Kind.DIED, str(error))
        finally:
            code = server.kill()
        self.kills += 1
        if code != -signal.SIGKILL:
            return Fault(Kind.DIED, f"the server ended by itself with exit code {code}")
        return None

    def _begin(self) -> None:
        self.end()
        self._disk.mkdir(self._root)
        self._worker = Worker("jobs", random.Random(f"{self._seed}/worker"))

    def end(self) -> None:
        """Remove the files of the last run."""
        if self._disk.exists(self._root):
            recipe.remove_tree(self._disk, self._root)

    def _clients(self, life: int) -> list[Client]:
        return [
            Client(f"client{n}:{life}", random.Random(f"{self._seed}/{life}/{n}"), saves=n == 0)
            for n in range(CLIENTS)
        ]

    def _load(self, clients: Sequence[Client | Worker], port: int) -> None:
        """Send pipelines and read replies, until all is answered or the server is gone. Raises BenchError."""
        rng = random.Random(f"{self._seed}/{clients[0].name}")
        left = PIPELINES
        with selectors.DefaultSelector() as selector:
            try:
                for client in clients:
                    client.connect(port, HUNG_S)
                    selector.register(client, selectors.EVENT_READ, client)
                    client.send(rng.randint(1, PIPELINE_MAX))
                while any(client.waits for client in clients):
                    ready = selector.select(HUNG_S)
                    if not ready:
                        raise BenchError(f"the server did not answer for {HUNG_S:.0f} s")
                    for key, _ in ready:
                        client = key.data
                        if not client.receive():
                            return
                        if left and not client.waits:
                            left -= 1
                            client.send(rng.randint(1, PIPELINE_MAX))
            except ConnectionError:
                pass  # it was killed
            except TimeoutError as error:
                raise BenchError(f"the server did not read for {HUNG_S:.0f} s") from error
            finally:
                for client in clients:
                    client.disconnect()

    def _judge(self, clients: list[Client]) -> Fault | None:
        try:
            with open_on(self._disk, self._root, "always") as db:
                contents = contents_of(db)
                db.xadd(PROBE, {b"taken": b"1"})
            with open_on(self._disk, self._root, "always") as db:
                second = contents_of(db)
        except Exception as error:
            return Fault(Kind.REFUSED, f"{type(error).__name__}: {error}")
        if second.pop(PROBE, None) is None or second != contents:
            return Fault(Kind.LOST, "a write after the kill was lost, or took others with it")
        strange = contents.keys() - {key for client in clients for key in client.keys}
        strange = {key for key in strange if not self._worker.owns(key)}
        if strange:
            return Fault(Kind.WRONG, f"nobody wrote the keys {sorted(strange)}")
        for client in clients:
            promised = Promised(client.synced, client.answered, len(client.units))
            served = Served(client.own(contents))
            fault = Oracle(client.units).judge(served, promised, power=False)
            if fault is not None:
                return fault._replace(words=f"{client.name}: {fault.words}")
        return self._worker.judge(contents)


def kill_servers(
    policy: str,
    seed: str,
    scratch: Path,
    rng: random.Random,
    drawn: int = DRAWN,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Kill servers under one load, again and again. Ends with the first finding. Raises BenchError."""
    report = Report()
    counts = report.of(SERVERS)
    runs = Runs(policy, seed, scratch)
    counts.there = sum(runs.seen.values())
    try:
        for _ in range(drawn):
            if stopping():
                break
            trouble = runs.trouble(rng)
            fault = runs.kill(trouble)
            counts.tried = counts.distinct = runs.kills
            if fault is not None:
                counts.count(fault.kind)
                trace = Trace(runs.about(), {}, [], [Promised(0, 0, 0)])
                report.findings.append(
                    Finding(
                        layer=SERVERS,
                        trace=pack(trace),
                        time=1,
                        state=(),
                        power=False,
                        kind=fault.kind.value,
                        words=fault.words,
                        trouble=trouble,
                    )
                )
                break
    finally:
        runs.end()
    return report


def try_again(scratch: Path, trace: Trace, finding: Finding) -> Fault | None:
    """The fault of one kill again. Raises BenchError."""
    assert finding.trouble is not None
    runs = Runs(trace.about["policy"], trace.about["seed"], scratch)
    try:
        for _ in range(AGAIN):
            fault = runs.kill(finding.trouble)
            if fault is not None:
                return fault
        return None
    finally:
        runs.end()
