"""A process that holds one object: a store of one version of tidelog, or a baseline.

    with Worker("tidelog", Streams, path, "SMALL", source=clone / "src") as worker:
        worker.call("add", 1000)                    runs a method there
        wall_s, cpu_s = worker.slice("add", 1000)   the same, timed there
        worker.begin("add", 1000); worker.answer()  the same, while others work, too
        worker.peak()                               the most anonymous memory since it was asked last

`source` is the `src` of the clone whose tidelog the process imports, and all processes that it starts. A method
`before_add` prepares a slice of `add`, and `after_add` cleans up; neither is timed. Arguments and results are JSON, one
line each. Memory is sampled from outside, which costs the process nothing: RssAnon of /proc/PID/status, in which
mapped files are not counted.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SAMPLED_S: Final = 0.005
# The bench comes last on the path: no folder of the clone hides a module of another name.
PROGRAM: Final = "import sys; sys.path.append(sys.argv[1]); from bench.worker import main; main()"


def environment(source: Path) -> dict[str, str]:
    """The environment of a process that imports the tidelog of this `src`."""
    return {**os.environ, "PYTHONPATH": str(source)}


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process. Raises OSError when there is no such process (any more)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")


class Worker(AbstractContextManager["Worker"]):
    """The process, seen from the one that started it.

    name       of the contender that it is
    version    0 for this clone and for baselines, 1 for the clone that it is compared with
    """

    def __init__(
        self,
        name: str,
        kind: type[Any],
        *arguments: object,
        source: Path = ROOT / "src",
        version: int = 0,
        **options: object,
    ) -> None:
        self.name, self.version = name, version
        place = f"{kind.__module__}:{kind.__qualname__}"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, str(ROOT), place],
            env=environment(source),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._asked = "the start"
        self._peak = 0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        try:
            self._send({"arguments": arguments, "options": options})
            self.answer()
        except BaseException:
            self.close()
            raise
        self._sampler.start()

    def call(self, method: str, *arguments: object, **options: object) -> Any:
        """Run a method there. Raises RuntimeError if it fails; the reason is on stderr."""
        self.begin(method, *arguments, **options)
        return self.answer()

    def begin(self, method: str, *arguments: object, **options: object) -> None:
        """Let a method run there, whose result `answer` waits for."""
        self._asked = method
        self._send({"method": method, "arguments": arguments, "options": options})

    def slice(self, method: str, count: int, **options: object) -> tuple[float, float]:
        """Seconds, and seconds of processor time, of a call of the method with this count."""
        self._asked = method
        self._send({"method": method, "arguments": [count], "options": options, "slice": True})
        wall, cpu = self.answer()
        return wall, cpu

    def anonymous(self) -> int:
        """Anonymous memory now, in bytes."""
        return anonymous_bytes(self._process.pid)

    def peak(self) -> int:
        """The highest anonymous memory since the last call, in bytes."""
        peak = max(self._peak, self.anonymous())
        self._peak = 0
        return peak

    def answer(self) -> Any:
        """The result of what was begun. Raises RuntimeError if it failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: {self._asked} failed in its process")
        return json.loads(line)

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request, default=str) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says that it has ended

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLED_S):
            try:
                self._peak = max(self._peak, self.anonymous())
            except OSError:
                return

    def close(self) -> None:
        """Close the object there, and wait until the process has ended."""
        self._ended.set()
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._process.wait()
        self._process.stdout.close()
        if self._sampler.ident is not None:
            self._sampler.join()

    def __exit__(self, *error: object) -> None:
        self.close()


# --- in the process


def main() -> None:
    """Make the object that the second argument names, and do what standard input asks of it."""
    module, _, name = sys.argv[2].partition(":")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not look like an answer
    begin = json.loads(sys.stdin.readline())
    held = getattr(importlib.import_module(module), name)(*begin["arguments"], **begin["options"])
    gc.collect()
    print("null", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        run = _sliced if asked.get("slice") else _called
        result = run(held, asked["method"], asked["arguments"], asked["options"])
        print(json.dumps(result), file=answers, flush=True)
    held.close()


def _called(held: Any, method: str, arguments: list[Any], options: dict[str, Any]) -> Any:
    return getattr(held, method)(*arguments, **options)


def _sliced(held: Any, method: str, arguments: list[Any], options: dict[str, Any]) -> list[float]:
    getattr(held, f"before_{method}", _nothing)(*arguments, **options)
    run = getattr(held, method)
    wall, cpu = time.perf_counter(), time.process_time()
    run(*arguments, **options)
    spent = [time.perf_counter() - wall, time.process_time() - cpu]
    getattr(held, f"after_{method}", _nothing)(*arguments, **options)
    return spent


def _nothing(*arguments: object, **options: object) -> None: ...
