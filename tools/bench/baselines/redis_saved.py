"""redis-server's counterpart of a checkpoint: BGSAVE while a client writes, and loading at a restart."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tidelog.tools.bench.baselines.redis_server import CONSUMER, GROUP, RedisServer
from tidelog.tools.bench.bench import EVERYSEC
from tidelog.tools.bench.messages import BATCH, SENSOR
from tidelog.tools.bench.processes.pauses import Gaps
from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.wire import STREAM, connected, packed

POLLED_S = 0.02
QUIET_S_MIN = 0.5


def feed(server: Served, batches: Iterable[bytes]) -> None:
    """Send packed commands and wait until all are done. The server sends no replies."""
    with closing(connected(server.port)) as line:
        line.sendall(packed("CLIENT", "REPLY", "OFF"))
        for batch in batches:
            line.sendall(batch)
        line.sendall(packed("CLIENT", "REPLY", "ON"))
        if line.recv(64) != b"+OK\r\n":
            raise RuntimeError(f"{server.name} did not confirm the commands")


def adding(count: int, keys: Iterable[str]) -> Iterator[bytes]:
    """XADDs of `count` sensor readings in batches; the keys take turns."""
    key = iter(keys)
    for at in range(0, count, BATCH):
        some = SENSOR.some(min(BATCH, count - at))
        yield b"".join(
            packed("XADD", next(key), "*", *(w for pair in fields.items() for w in pair))
            for fields in some
        )


def adding_to_one(count: int) -> Iterator[bytes]:
    """As `adding`, to one stream; the commands are packed once."""
    batch = b"".join(adding(BATCH, iter(lambda: STREAM, None)))
    for _ in range(count // BATCH):
        yield batch


def restarts(directory: Path, entries: int) -> dict[str, float]:
    """Milliseconds until a server that holds `entries` answers after a restart, from its RDB and its AOF.

    Raises FileNotFoundError without redis-server.
    """
    _fill_and_save(directory, entries)
    found = {}
    for name, aof in (("RDB", False), ("AOF", True)):
        with closing(RedisServer(directory, EVERYSEC, aof=aof)) as server:
            if server.client.xlen(STREAM) != entries:
                raise RuntimeError(f"redis-server did not restore all entries from its {name}")
            found[name] = server.ready_s * 1_000
    return found


def loading_and_saving(directory: Path, entries: int) -> float:
    """Seconds until a server has loaded the dump.rdb in the directory. It then writes its own in place of it.

    Raises FileNotFoundError without redis-server.
    """
    with closing(RedisServer(directory, EVERYSEC, aof=False)) as server:
        if server.client.xlen(STREAM) != entries:
            raise RuntimeError("redis-server did not load all entries of the dump file")
        server.client.save()
        return server.ready_s


@contextmanager
def with_the_file(directory: Path) -> Iterator[str]:
    """The URL of a server that has loaded the dump.rdb in the directory. Raises FileNotFoundError."""
    with closing(RedisServer(directory, EVERYSEC, aof=False)) as server:
        yield f"redis://127.0.0.1:{server.port}"


def piped(directory: Path, commands: Path, key: str, entries: int) -> float:
    """Seconds in which redis-cli sends a file of commands to a new server, which runs them.

    Raises FileNotFoundError without redis-server or redis-cli, RuntimeError if the stream at `key` has not so many
    entries afterwards.
    """
    with closing(RedisServer(directory, EVERYSEC)) as server, commands.open("rb") as source:
        start = time.perf_counter()
        subprocess.run(
            ["redis-cli", "-p", str(server.port), "--pipe"],
            stdin=source,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        seconds = time.perf_counter() - start
        if server.client.xlen(key) != entries:
            raise RuntimeError("redis-server did not run all commands of the file")
        return seconds


def file_bytes(directory: Path, entries: int) -> float:
    """Bytes per entry of the RDB file. Raises FileNotFoundError without redis-server."""
    _fill_and_save(directory, entries)
    return (directory / "dump.rdb").stat().st_size / entries


def _fill_and_save(directory: Path, entries: int) -> None:
    with closing(RedisServer(directory, EVERYSEC)) as server:
        feed(server, adding_to_one(entries))
        server.client.save()


def saving(directory: Path, what: str, count: int) -> dict[str, Any]:
    """The pauses of a client that adds one entry at a time beside a BGSAVE of so many entries, pending entries or
    streams.

    As `Pauses.beside`; `memory` is the memory that the server had to copy meanwhile. Raises FileNotFoundError.
    """
    with closing(RedisServer(directory, EVERYSEC)) as server:
        if what == "streams":
            feed(server, adding(count, (f"streams:{number}" for number in range(count))))
        else:
            feed(server, adding_to_one(count))
        if what == "pending":
            read = packed(
                *("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", str(BATCH), "STREAMS", STREAM),
                ">",
            )
            server.client.xgroup_create(STREAM, GROUP, "0")
            feed(server, (read for _ in range(count // BATCH)))
        return _beside_a_save(server)


def _beside_a_save(server: RedisServer) -> dict[str, Any]:
    gaps = Gaps()
    over = threading.Event()
    spent: list[float] = []

    def watch() -> None:
        start = time.perf_counter()
        with closing(server.connect()) as client:
            client.bgsave()
            while client.info("persistence")["rdb_bgsave_in_progress"]:
                time.sleep(POLLED_S)
        spent.append(time.perf_counter() - start)
        over.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    during = gaps.run(server.client.xadd, over.is_set)
    watcher.join()
    over.clear()
    timer = threading.Timer(max(spent[0], QUIET_S_MIN), over.set)
    timer.start()
    quiet = gaps.run(server.client.xadd, over.is_set)
    timer.join()
    copied = server.client.info("persistence")["rdb_last_cow_size"]
    return {"seconds": spent[0], "during": during, "quiet": quiet, "memory": copied}
