"""One run of the benchmark: its directory, its pace, and the baselines it has started."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.tools.bench.contenders.peer import Peer
from tidelog.tools.bench.messages import Messages
from tidelog.tools.bench.race import Contender, race

if TYPE_CHECKING:
    from tidelog.tools.bench.baselines.redis_server import RedisServer

T = TypeVar("T")

EVERYSEC, ALWAYS = "everysec", "always"

Kind = tuple[str, str]  # a module of baselines/, and the class in it

# fmt: off
STORES: dict[str, Kind] = {
    "redis-py":      ("redis_server", "RedisPeer"),
    "sqlite3":       ("sqlite_queue", "SqliteQueue"),
    "lmdb":          ("lmdb_queue", "LmdbQueue"),
    "queuelib":      ("queuelib_queue", "QueuelibQueue"),
    "persist-queue": ("persist_queue", "PersistQueue"),
}
QUEUES: dict[str, Kind] = {
    "litequeue":     ("lite_queue", "LiteQueuePeer"),
    "persist-queue": ("persist_queue", "PersistQueue"),
    "sqlite3":       ("sqlite_queue", "SqliteQueue"),
    "huey":          ("huey_queue", "HueyQueue"),
    "redis-py":      ("redis_server", "RedisQueue"),
}
NEVER_SYNCED = {"queuelib"}
# fmt: on


@dataclass
class Bench(AbstractContextManager["Bench"]):
    """Passed to every subject. Closing it stops every server it started.

    directory   fresh, on the file system to be measured
    missing     baseline -> why it could not be measured; the report shows it
    """

    directory: Path
    rounds: int
    slice_s: float
    quick: bool = False
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._servers: dict[str, RedisServer] = {}
        self._made: dict[str, Any] = {}
        self._exit = ExitStack()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit.close()

    def fresh(self, name: str) -> Path:
        """A new directory for one contender."""
        path = self.directory / f"{next(self._numbers):03d}-{name}"
        path.mkdir()
        return path

    def once(self, name: str, make: Callable[[Path], T]) -> T:
        """The result of `make` in a directory of that name. Made at the first call, for several subjects."""
        if name not in self._made:
            self._made[name] = make(self.fresh(name))
        made: T = self._made[name]
        return made

    def scaled(self, count: int) -> int:
        """The size for this run: `size`, or a fifth of it if the run is quick."""
        return count // 5 if self.quick else count

    def race(
        self, contenders: Iterable[Contender], *, more_rounds: int = 1, slice_times: float = 1.0
    ) -> dict[str, float]:
        """Name -> median operations per second."""
        return race(
            contenders, rounds=self.rounds * more_rounds, slice_s=self.slice_s * slice_times
        )

    def redis_server(self, appendfsync: str) -> RedisServer:
        """The run's redis-server of that policy, started on first use."""
        # here: redis-py may be missing
        from tidelog.tools.bench.baselines.redis_server import RedisServer

        server = self._servers.get(appendfsync)
        if server is None:
            server = RedisServer(self.fresh(f"redis-{appendfsync}"), appendfsync)
            self._servers[appendfsync] = server
            self._exit.callback(server.close)
        return server

    def redis(self, messages: Messages, *, durable: bool) -> Peer:
        """redis-py, on an emptied server."""
        return self._start("redis-py", STORES["redis-py"], messages, durable)

    def peers(self, messages: Messages, *, durable: bool) -> AbstractContextManager[list[Peer]]:
        """Every store of messages that can run here with that durability, open and empty."""
        return self._opened(STORES, messages, durable)

    def queues(self, messages: Messages, *, durable: bool) -> AbstractContextManager[list[Peer]]:
        """The same for work queues, in which finished messages are deleted or can be cleared."""
        return self._opened(QUEUES, messages, durable)

    @contextmanager
    def _opened(
        self, kinds: Mapping[str, Kind], messages: Messages, durable: bool
    ) -> Iterator[list[Peer]]:
        with ExitStack() as closing:
            opened: list[Peer] = []
            for name, kind in kinds.items():
                if durable and name in NEVER_SYNCED:
                    continue
                try:
                    peer = self._start(name, kind, messages, durable)
                except (ImportError, FileNotFoundError) as error:
                    self.missing[name] = str(error)
                    continue
                closing.callback(peer.close)
                opened.append(peer)
            yield opened

    def _start(self, name: str, kind: Kind, messages: Messages, durable: bool) -> Peer:
        module, made = kind
        found = importlib.import_module(f"tidelog.tools.bench.baselines.{module}")
        make: Callable[..., Peer] = getattr(found, made)
        if module == "redis_server":
            return make(self.redis_server(ALWAYS if durable else EVERYSEC), messages)
        return make(self.fresh(name), messages, durable=durable)
