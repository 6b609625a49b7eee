"""One side of a comparison of two checkouts: a process that runs slices for `compare` and reports their cost.

    python side.py DIRECTORY

The `src` of the checkout is on PYTHONPATH. This file runs as a script, so both sides run the same program, each over
its own tidelog. A request is a line of JSON, [row, operations, counting]. The answer is a line of JSON, too: seconds of
processor time of all threads, or with `counting` the number of instructions that the interpreter ran. Only the public
interface is used.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import tidelog

FIELDS = {"user": "100042", "qty": "7"}
BATCH = 1_000
REPLAYED = 20_000  # records of the log that `replay` reads
STORED = 200_000  # entries in the checkpoint that `open` opens
UNASKED: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
START_S = 30.0

Run = Callable[[int], object]


class Meter:
    """Seconds of processor time, or instructions of the interpreter, within its block."""

    def __init__(self, counting: bool) -> None:
        self._counting = counting
        self._instructions = 0
        self._started = 0.0
        self.spent = 0.0

    def __enter__(self) -> None:
        if self._counting:
            threading.settrace(self._call)
            sys.settrace(self._call)
        self._started = time.process_time()

    def __exit__(self, *error: object) -> None:
        self.spent += time.process_time() - self._started
        if self._counting:
            sys.settrace(None)
            threading.settrace(None)
            self.spent = float(self._instructions)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self._instructions += 1
        return self._step


class Side:
    """The rows, each a method that does so many operations within the meter."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.db: Any = None
        self.jobs: Any = None
        self._row = ""
        self._server: Server | None = None

    def do(self, row: str, count: int, meter: Meter) -> None:
        """Run one slice. Every row begins with an empty store, because nothing frees the log of the row before."""
        if row != self._row:
            self.close()
            self.db = tidelog.open(self.place / row, **UNASKED)
            self.jobs = self.db.queue("jobs")
            self._row = row
        getattr(self, row)(count, meter)

    def close(self) -> None:
        """Close the store and the server of the row, and remove what they wrote."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self.db is not None:
            self.db.close()
        for path in self.place.iterdir():
            shutil.rmtree(path)

    @contextmanager
    def _stream(self) -> Iterator[Any]:
        self.db.xgroup_create("s", "g", id="0", mkstream=True)
        yield self.db
        self.db.delete("s")

    def xadd(self, count: int, meter: Meter) -> None:
        with self._stream() as db, meter:
            for _ in range(count):
                db.xadd("s", FIELDS)

    def _pipelines(self, count: int, meter: Meter, transaction: bool) -> None:
        with self._stream() as db, meter:
            for _ in range(max(1, count // BATCH)):
                pipe = db.pipeline(transaction=transaction)
                for _ in range(min(count, BATCH)):
                    pipe.xadd("s", FIELDS)
                pipe.execute()

    def pipeline(self, count: int, meter: Meter) -> None:
        self._pipelines(count, meter, False)

    def transaction(self, count: int, meter: Meter) -> None:
        self._pipelines(count, meter, True)

    def xadd_many(self, count: int, meter: Meter) -> None:
        rows = [FIELDS] * min(count, BATCH)
        with self._stream() as db, meter:
            for _ in range(max(1, count // BATCH)):
                db.xadd_many("s", rows)

    def _read(self, count: int, meter: Meter, at_once: int) -> None:
        with self._stream() as db:
            db.xadd_many("s", [FIELDS] * max(count, at_once))
            with meter:
                for _ in range(max(1, count // at_once)):
                    reply = db.xreadgroup("g", "c", {"s": ">"}, count=at_once)
                    db.xack("s", "g", *[id for id, _ in reply[0][1]])

    def read_1(self, count: int, meter: Meter) -> None:
        self._read(count, meter, 1)

    def read_100(self, count: int, meter: Meter) -> None:
        self._read(count, meter, 100)

    def put_1(self, count: int, meter: Meter) -> None:
        with meter:
            for _ in range(count):
                self.jobs.put(FIELDS)
        self.jobs.purge()

    def put_100(self, count: int, meter: Meter) -> None:
        values = [FIELDS] * 100
        with meter:
            for _ in range(max(1, count // 100)):
                self.jobs.put_many(values)
        self.jobs.purge()

    def _consume(self, count: int, meter: Meter, batch: int) -> None:
        self.jobs.put_many([FIELDS] * count)
        with meter:
            for job in self.jobs.consume("worker", batch=batch, block=0):
                with job:
                    pass

    def consume_1(self, count: int, meter: Meter) -> None:
        self._consume(count, meter, 1)

    def consume_100(self, count: int, meter: Meter) -> None:
        self._consume(count, meter, 100)

    def replay(self, count: int, meter: Meter) -> None:
        """Open a store that is a log alone, as a killed process leaves it."""
        kept, root = self.place / "log", self.place / "replayed"
        if not kept.exists():
            written = self.place / "written"
            with tidelog.open(written, **UNASKED) as db:
                for _ in range(REPLAYED):
                    db.xadd("s", FIELDS)
                shutil.copytree(written, kept)
            shutil.rmtree(written)
        for _ in range(count):
            shutil.copytree(kept, root)
            with meter:
                opened = tidelog.open(root, **UNASKED)
            opened.close()
            shutil.rmtree(root)

    def open(self, count: int, meter: Meter) -> None:
        """Open a store with a checkpoint, read an entry and a length, close it."""
        root = self.place / "large"
        if not root.exists():
            with tidelog.open(root, **UNASKED) as db:
                for _ in range(STORED // 10_000):
                    db.xadd_many("s", [FIELDS] * 10_000)
                db.checkpoint()
        with meter:
            for _ in range(count):
                with tidelog.open(root, **UNASKED) as db:
                    assert db.xlen("s") == STORED and db.xrange("s", count=1)

    def imported(self, count: int, meter: Meter) -> None:
        """Each import runs in a fresh interpreter, which measures it itself."""
        program = (
            "import time; s = time.process_time(); import tidelog; print(time.process_time() - s)"
        )
        for _ in range(count):
            done = subprocess.run(
                [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True
            )
            meter.spent += float(done.stdout)

    def _served(self, count: int, meter: Meter, pipeline: int) -> None:
        if self._server is None:
            self._server = Server(self.place / "served")
        meter.spent += self._server.benchmark(count, pipeline)

    def served_1(self, count: int, meter: Meter) -> None:
        self._served(count, meter, 1)

    def served_16(self, count: int, meter: Meter) -> None:
        self._served(count, meter, 16)

    def served_100(self, count: int, meter: Meter) -> None:
        self._served(count, meter, 100)


class Server:
    """`tidelog serve` in a separate process on a Unix socket, with redis-benchmark as its only client."""

    def __init__(self, root: Path) -> None:
        self._socket = root.parent / "socket"
        # fmt: off
        command = [
            sys.executable, "-m", "tidelog", "serve", str(root),
            "--port", "0", "--fsync", "no", "--loglevel", "warning",
            "--option", f"unixsocket={self._socket}", "--option", "save=", "--option", "auto-aof-rewrite-percentage=0",
        ]
        # fmt: on
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)

    def _answers(self) -> bool:
        """Whether the server accepts connections. Its socket exists a moment earlier."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self._socket)) == 0

    def _cpu_s(self) -> float:
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def benchmark(self, count: int, pipeline: int) -> float:
        """Seconds of the server's processor time for so many XADDs of 50 clients."""
        # fmt: off
        command = [
            "redis-benchmark", "-s", str(self._socket), "-n", str(count), "-P", str(pipeline), "-q",
            "XADD", "s", "*", *[word for pair in FIELDS.items() for word in pair],
        ]
        # fmt: on
        before = self._cpu_s()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        spent = self._cpu_s() - before
        client = ["redis-cli", "-s", str(self._socket), "del", "s"]
        subprocess.run(client, stdout=subprocess.DEVNULL, check=True)
        return spent

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def main(place: Path) -> None:
    side = Side(place)
    print(json.dumps(os.path.realpath(tidelog.__file__)), flush=True)
    try:
        for request in sys.stdin:
            row, count, counting = json.loads(request)
            meter = Meter(counting)
            side.do(row, count, meter)
            print(json.dumps(meter.spent), flush=True)
    finally:
        side.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
