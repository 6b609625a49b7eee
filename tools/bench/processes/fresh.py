"""A fresh interpreter with one object, usually a store, for measurements that need a new process.

    with Fresh(Opened, path, "sensors") as fresh:       imports everything there, then makes Opened(path, "sensors")
        seconds = fresh.call("add", 1_000_000)          runs a method there
        fresh.peak()                                    the most anonymous memory since it was asked last

Arguments and results are sent as JSON, one line each. Memory is sampled from outside, so that sampling costs the
measured process nothing: RssAnon of /proc/PID/status, in which mapped files are not counted.
"""

from __future__ import annotations

import gc
import importlib
import json
import pkgutil
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

SAMPLED_S = 0.005
IMPORTED = ("tidelog.engine", "tidelog.aof", "tidelog.snapshot", "tidelog.store")


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process. Raises OSError when there is no such process (any more)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")


class Fresh(AbstractContextManager["Fresh"]):
    """The process, seen from the one that started it."""

    def __init__(self, kind: type[Any], *arguments: object, **options: object) -> None:
        command = [sys.executable, "-m", __name__, f"{kind.__module__}:{kind.__qualname__}"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._peak = 0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        try:
            self._ask({"arguments": list(map(_plain, arguments)), "options": options})
        except BaseException:
            self._end()
            raise
        self._sampler.start()

    def call(self, method: str, *arguments: object) -> Any:
        """Run a method there. Raises RuntimeError if it fails; the reason is on stderr."""
        return self._ask({"method": method, "arguments": list(map(_plain, arguments))})

    def anonymous(self) -> int:
        """Anonymous memory now, in bytes."""
        return anonymous_bytes(self._process.pid)

    def peak(self) -> int:
        """The highest anonymous memory since the last call, in bytes."""
        peak = max(self._peak, self.anonymous())
        self._peak = 0
        return peak

    def __exit__(self, *error: object) -> None:
        self._end()

    def _ask(self, line: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{line.get('method', 'the start')} failed in the fresh process")
        return json.loads(answer)

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLED_S):
            try:
                self._peak = max(self._peak, self.anonymous())
            except OSError:
                return

    def _end(self) -> None:
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


def _plain(argument: object) -> object:
    return str(argument) if isinstance(argument, Path) else argument


# --- in the fresh process


def import_all() -> None:
    """Import everything that an open store may need, so that no first call includes an import."""
    for package in IMPORTED:
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            importlib.import_module(module.name)
    importlib.import_module("lmdb")


def main(kind: str) -> None:
    import_all()
    module, _, name = kind.partition(":")
    begin = json.loads(sys.stdin.readline())
    held = getattr(importlib.import_module(module), name)(*begin["arguments"], **begin["options"])
    gc.collect()
    print("null", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(held, asked["method"])(*asked["arguments"])), flush=True)
    held.close()


def timed(function: Any, *arguments: object) -> float:
    """Seconds that a call took."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(sys.argv[1])
