"""Task queues beside each other, as their users run them: their own workers, started by their own command.

Every peer has an environment of its own below CACHE, made by pip at the first run. A job does nothing but write down
when it was put and when it began, so all figures come from that file:

    puts       jobs per second that one process puts, one by one
    jobs       jobs per second of a backlog, by one worker process and by four: those between the first and the last
               tenth, so the start of the workers does not count
    latency    from before a put to the start of the job, at RATE jobs per second, with one worker process
    memory     of an idle worker after that

The servers, and the process that owns a store of tidelog, are not in the memory of a worker.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from bench.baselines.task_queues import PEERS, POSTGRES, REDIS, RELAXED, SYNCED, TIDELOG, TaskQueue
from bench.figure import OURS, Figure
from bench.postgres import Postgres
from bench.run import ALWAYS, EVERYSEC, Run
from bench.servers import Served
from bench.subjects.shared import end_owner
from bench.worker import ROOT

CACHE: Path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog-bench"
TURNS: Final = 3
RATE: Final = 100
# Jobs of a backlog, seconds to put them, seconds to work on them, seconds of jobs at RATE
WHOLE, QUICK = (20_000, 5.0, 10.0, 10.0), (50, 5.0, 10.0, 0.5)
PATIENCE_S: Final = 60.0
POLLED_S: Final = 0.01
LEAST: Final = 20  # jobs of which a rate can be told
IMPORTS: Final = 5
FOUR: Final = 4
FIGURES: Final = {
    "puts of one process": "/s",
    "jobs, 1 worker process": "/s",
    f"jobs, {FOUR} worker processes": "/s",
    f"put to start at {RATE} jobs/s, median": "ms",
    f"put to start at {RATE} jobs/s, p99": "ms",
    "memory of an idle worker": "MiB",
    "import": "ms",
}

RECORD: Final = """
import os, time
_file = os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def record(ns):
    os.write(_file, b"%d %d\\n" % (ns, time.monotonic_ns()))
"""
PUTTER: Final = """
import asyncio, inspect, sys, time, peer_jobs
most, seconds, rate = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
loop = asyncio.new_event_loop()

def done(told):
    if inspect.isawaitable(told):
        loop.run_until_complete(told)

done(getattr(peer_jobs, "begin", lambda: None)())
done(peer_jobs.put(time.monotonic_ns()))  # which connects
start, count = time.monotonic(), 1
while count < most and time.monotonic() - start < seconds:
    if rate:
        time.sleep(max(0, start + count / rate - time.monotonic()))
    done(peer_jobs.put(time.monotonic_ns()))
    count += 1
print(count, time.monotonic() - start)
"""
IMPORT: Final = (
    "import time; a = time.perf_counter(); import peer_jobs; print(time.perf_counter() - a)"
)


@dataclass(frozen=True)
class System:
    """A peer in one durability, or a version of tidelog, whose `src` is `source`."""

    peer: TaskQueue
    kind: int
    python: Path
    version: int = 0
    source: Path = ROOT / "src"
    server: Served | Postgres | None = None

    @property
    def name(self) -> str:
        if self.peer is TIDELOG:
            return OURS
        return f"{self.peer.name} ({self.peer.fsync[self.kind]})"


def rows(run: Run) -> Iterator[Figure]:
    notes = [f"{peer.name}: {peer.note}" for peer in PEERS if peer.note != TIDELOG.note]
    for kind, promise in ((SYNCED, "synced"), (RELAXED, "relaxed")):
        with ExitStack() as closing:
            systems = _systems(run, kind, closing)
            turns = 1 if run.quick else TURNS
            found = run.by_turns(systems, turns, lambda system: _figures(run, system))
        note = "; ".join([f"{OURS} {TIDELOG.fsync[kind]}", *notes])
        for name, values in found.items():
            if OURS in values:
                yield Figure.of(f"{promise}: {name}", FIGURES[name], values, note=note)


def _systems(run: Run, kind: int, closing: ExitStack) -> list[System]:
    """Those that can run here, with their servers."""
    found = [
        System(TIDELOG, kind, Path(sys.executable), number, version.source)
        for number, version in enumerate(run.versions)
    ]
    for peer in () if run.compares else PEERS:
        try:
            server: Served | Postgres | None = None
            if peer.server == REDIS:
                server = run.redis_server(EVERYSEC if kind == RELAXED else ALWAYS)
            elif peer.server == POSTGRES:
                server = Postgres(run.fresh("postgres"))
                closing.callback(server.close)
            found.append(System(peer, kind, interpreter(peer), server=server))
        except (OSError, subprocess.CalledProcessError) as error:
            run.missing[peer.name] = str(error)
    return found


def interpreter(peer: TaskQueue) -> Path:
    """The Python of the peer's environment, which is made if it is not there. Raises CalledProcessError, OSError."""
    words = "\n".join((sys.version, *peer.requirements))
    project = re.split(r"\W", peer.requirements[0])[0]
    made = CACHE / f"{project}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"
    python, whole = made / "bin" / "python", made / "whole"
    if not whole.exists():
        venv.create(made, clear=True)
        pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
        subprocess.run([*pip, "install", "-qq", *peer.requirements], check=True)
        whole.touch()
    return python


def _figures(run: Run, system: System) -> dict[str, float]:
    """All figures of a system, measured once. It has none if it fails, which the report says."""
    most, put_s, work_s, late_s = QUICK if run.quick else WHOLE
    figures = []
    try:
        for processes in (1, FOUR):
            with Stand(run, system) as stand:
                puts = stand.put(most, put_s)
                with stand.workers(processes):
                    figures.append(stand.rate(work_s))
        with Stand(run, system) as stand:
            stand.put(1, put_s)  # a worker may need what the first put makes
            with stand.workers(1) as worker:
                stand.wait(1)
                stand.put(int(RATE * late_s), late_s * 2, RATE)
                figures = [puts, *figures, *stand.latencies(), memory(worker), stand.imports()]
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        run.missing[system.name] = str(error)
        return {}
    return dict(zip(FIGURES, figures, strict=True))


class Stand(AbstractContextManager["Stand"]):
    """An empty queue of one system: a directory with its module, and its server without data."""

    def __init__(self, run: Run, system: System) -> None:
        self._run, self._system, self._place = run, system, run.fresh("peer")
        self._put = 0
        self._record, self._log = self._place / "record", self._place / "log"
        port = 0
        if isinstance(system.server, Postgres):
            system.server.fresh()
            port = system.server.port
        elif system.server is not None:
            system.server.client.flushall()
            port = system.server.port
        peer = system.peer
        self._names = {"place": self._place, "port": port, "fsync": peer.fsync[system.kind]}
        for name, text in {"peer_jobs": peer.module, "record": RECORD}.items():
            (self._place / f"{name}.py").write_text(Template(text).substitute(self._names))
        path = [self._place, *([system.source] if peer is TIDELOG else [])]
        self._env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "BENCH_RECORD": str(self._record),
        }

    def put(self, most: int, seconds: float, rate: float = 0) -> float:
        """Put `most` jobs, or fewer if `seconds` are over first. Returns how many a second after the first."""
        count, spent = self._python(PUTTER, str(most), str(seconds), str(rate)).split()
        self._put += int(count)
        return (int(count) - 1) / float(spent)

    def imports(self) -> float:
        """Milliseconds of the import of a module of jobs: the median of some processes."""
        return statistics.median(float(self._python(IMPORT)) for _ in range(IMPORTS)) * 1000

    def _python(self, *words: str) -> str:
        with self._log.open("a") as log:
            done = subprocess.run(
                [self._system.python, "-c", *words],
                cwd=self._place,
                env=self._env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=PATIENCE_S,
            )
        if done.returncode:
            raise RuntimeError(f"its program failed: {self._last_words()}")
        return done.stdout

    @contextmanager
    def workers(self, processes: int) -> Iterator[int]:
        """Run the worker with this number of processes, until the block ends. Yields the session of the last one."""
        text = self._system.peer.worker
        words = shlex.split(Template(text).substitute({**self._names, "n": processes}))
        times = 1 if "$n" in text else processes
        with self._log.open("a") as log, ExitStack() as closing:
            for _ in range(times):
                worker = subprocess.Popen(
                    [self._system.python, "-m", *words],
                    cwd=self._place,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                closing.callback(end, worker)
            yield worker.pid

    def rate(self, seconds: float) -> float:
        """Jobs per second of those that begin in the next seconds, after the first. Raises RuntimeError if few do."""
        self.wait(1)
        until(lambda: self._begun() >= self._put, seconds)
        starts = sorted(start for _, start in self._records())
        middle = starts[len(starts) // 10 : -len(starts) // 10]
        if len(middle) < LEAST:
            raise RuntimeError(f"only {len(starts)} jobs began: {self._last_words()}")
        return (len(middle) - 1) / max((middle[-1] - middle[0]) / 1e9, 1e-9)

    def wait(self, count: int) -> None:
        """Wait until that number of jobs has begun. Raises RuntimeError if none begins for long."""
        while (begun := self._begun()) < count:
            if not until(lambda: self._begun() > begun, PATIENCE_S):
                raise RuntimeError(f"{begun} jobs of {count} began: {self._last_words()}")

    def latencies(self) -> tuple[float, float]:
        """Milliseconds from the put to the start of all jobs but the first: median and p99."""
        self.wait(self._put)
        late = sorted((start - put) / 1e6 for put, start in self._records()[1:])
        return statistics.median(late), late[int(0.99 * len(late))]

    def _begun(self) -> int:
        return self._record.read_bytes().count(b"\n") if self._record.exists() else 0

    def _records(self) -> list[tuple[int, int]]:
        lines = self._record.read_text().splitlines()
        return [(int(put), int(start)) for put, start in map(str.split, lines)]

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")

    def __exit__(self, *error: object) -> None:
        if self._system.peer is TIDELOG and (self._place / "store" / "LOCK").exists():
            end_owner(self._place / "store")
        self._run.forget(self._place)


def until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until it is true, for at most so long. Returns whether it is."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(POLLED_S)
    return True


def members(session: int) -> list[int]:
    """The processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            found.append(int(stat.parent.name))
    return found


def memory(session: int) -> float:
    """MiB of private memory of a session's processes; of pages that some share each has its share."""
    total = 0
    for pid in members(session):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                total += int(line.split()[1])
    return total / 1024


def end(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker with all its processes."""
    while left := members(worker.pid):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait()
        time.sleep(POLLED_S)
