"""One run of the bench: its directory, its pace, the versions that it measures, and the baselines it has started."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bench.figure import OURS
from bench.race import CPU, WALL, Contender, Value, medians, race
from bench.worker import ROOT, Worker, environment

if TYPE_CHECKING:
    from bench.servers import Served

EVERYSEC, ALWAYS = "everysec", "always"
REDIS: Final = "redis-server"
S = TypeVar("S", bound=Any)
Kind = tuple[str, str]  # a module of baselines/, and the class in it

# fmt: off
STORES: Final[dict[str, Kind]] = {
    "redis-py":      ("redis_peer", "RedisPeer"),
    "sqlite3":       ("sqlite_queue", "SqliteQueue"),
    "lmdb":          ("lmdb_queue", "LmdbQueue"),
    "queuelib":      ("queuelib_queue", "QueuelibQueue"),
    "persist-queue": ("persist_queue", "PersistQueue"),
}
QUEUES: Final[dict[str, Kind]] = {
    "litequeue":     ("lite_queue", "LiteQueuePeer"),
    "persist-queue": ("persist_queue", "PersistQueue"),
    "sqlite3":       ("sqlite_queue", "SqliteQueue"),
    "huey":          ("huey_queue", "HueyQueue"),
    "redis-py":      ("redis_peer", "RedisQueue"),
}
# fmt: on
NEVER_SYNCED: Final = {"queuelib"}
WHERE: Final = (
    "import json, tidelog; print(json.dumps([tidelog.__file__, tidelog.__version__]))"  # public
)


@dataclass(frozen=True)
class Version:
    """A clone whose tidelog is measured. `source`: its `src`."""

    source: Path
    number: str

    @classmethod
    def of(cls, clone: Path) -> Version:
        """Raises UsageError if the directory is no clone of tidelog, or a process there imports another tidelog."""
        source = (clone / "src").resolve()
        if not (source / "tidelog" / "__init__.py").is_file():
            raise click.UsageError(f"{clone} is no clone of tidelog: it has no src/tidelog")
        asked = subprocess.run(
            [sys.executable, "-P", "-c", WHERE],
            env=environment(source),
            stdout=subprocess.PIPE,
            text=True,
        )
        if asked.returncode:
            raise click.UsageError(f"{clone}: its tidelog cannot be imported; see the error above")
        file, number = json.loads(asked.stdout)
        if source not in Path(os.path.realpath(file)).parents:
            raise click.UsageError(f"{clone}: a process started there imported {file}")
        return cls(source, number)


@dataclass
class Run(AbstractContextManager["Run"]):
    """Passed to every subject. Closing it stops every server it started.

    directory   fresh, on the file system to be measured
    versions    this clone's, and the one that it is compared with; then no baseline of another project runs
    missing     baseline -> why it could not be measured; the report shows it
    """

    directory: Path
    rounds: int
    slice_s: float
    quick: bool = False
    versions: Sequence[Version] = ()
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.versions = self.versions or (Version.of(ROOT),)
        self._numbers = itertools.count()
        self._servers: dict[str, Served] = {}
        self._exit = ExitStack()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit.close()

    @property
    def compares(self) -> bool:
        """Whether two versions are compared."""
        return len(self.versions) > 1

    def fresh(self, name: str) -> Path:
        """A new directory for one contender."""
        path = self.directory / f"{next(self._numbers):03d}-{name}"
        path.mkdir()
        return path

    def forget(self, path: Path) -> None:
        """Free the disk of what is measured no more."""
        shutil.rmtree(path, ignore_errors=True)

    def scaled(self, count: int) -> int:
        """The size for this run: `count`, or a fifth of it if the run is quick."""
        return count // 5 if self.quick else count

    # --- contenders

    @contextmanager
    def sides(
        self, kind: type[Any], *arguments: object, name: str = OURS, **options: object
    ) -> Iterator[list[Worker]]:
        """A worker of every version, each in a directory of its own, which is its first argument."""
        with ExitStack() as closing:
            yield [
                closing.enter_context(
                    Worker(
                        name,
                        kind,
                        self.fresh(name.replace(" ", "-")),
                        *arguments,
                        source=version.source,
                        version=number,
                        **options,
                    )
                )
                for number, version in enumerate(self.versions)
            ]

    @contextmanager
    def beside(self, kinds: dict[str, type[Any]]) -> Iterator[list[Worker]]:
        """Baselines that only need a directory. None if versions are compared."""
        with ExitStack() as closing:
            yield [
                closing.enter_context(Worker(name, kind, self.fresh("beside")))
                for name, kind in ({} if self.compares else kinds).items()
            ]

    @contextmanager
    def peers(
        self, kinds: dict[str, Kind], messages: str, *, durable: bool
    ) -> Iterator[list[Worker]]:
        """Every peer that can run here with that durability, open and empty. None if versions are compared."""
        with ExitStack() as closing:
            opened: list[Worker] = []
            for name, kind in ({} if self.compares else kinds).items():
                if durable and name in NEVER_SYNCED:
                    continue
                try:
                    opened.append(closing.enter_context(self._peer(name, kind, messages, durable)))
                except (ImportError, FileNotFoundError) as error:
                    self.missing[name] = str(error)
            yield opened

    def _peer(self, name: str, kind: Kind, messages: str, durable: bool) -> Worker:
        module, made = kind
        found = getattr(importlib.import_module(f"bench.baselines.{module}"), made)
        if module == "redis_peer":
            server = self.redis_server(ALWAYS if durable else EVERYSEC)
            return Worker(name, found, server.port, messages)
        return Worker(name, found, self.fresh(name), messages, durable=durable)

    # --- servers

    def redis_server(self, appendfsync: str) -> Served:
        """The run's redis-server of that policy, started on first use. Raises FileNotFoundError."""
        # here: redis-py may be missing
        from bench.servers import RedisServer

        if appendfsync not in self._servers:
            server = RedisServer(self.fresh(f"redis-{appendfsync}"), appendfsync)
            self._servers[appendfsync] = server
            self._exit.callback(server.close)
        return self._servers[appendfsync]

    @contextmanager
    def servers(self, make: Callable[..., S]) -> Iterator[list[S]]:
        """What `make` makes with a starter of servers: one for every version, and one for redis-server if there is one.

        A starter takes a directory and appendfsync. All that was made is closed.
        """
        # here: redis-py may be missing
        from bench.servers import RedisServer, TidelogServer

        starters: list[Callable[[Path, str], Served]] = [
            TidelogServer.starter(version.source, number)
            for number, version in enumerate(self.versions)
        ]
        starters += [] if self.compares else [RedisServer]
        with ExitStack() as closing:
            made: list[S] = []
            for starter in starters:
                try:
                    one = make(starter)
                except FileNotFoundError as error:
                    self.missing[REDIS] = str(error)
                    continue
                closing.callback(one.close)
                made.append(one)
            yield made

    # --- measuring

    def race(
        self,
        contenders: Iterable[Contender],
        *,
        more_rounds: int = 1,
        slice_times: float = 1.0,
        clock: int | None = None,
    ) -> dict[str, Value]:
        """Name -> median operations per second. Versions are compared by processor time, unless a clock is given."""
        return race(
            contenders,
            rounds=self.rounds * more_rounds,
            slice_s=self.slice_s * slice_times,
            clock=clock if clock is not None else CPU if self.compares else WALL,
        )

    def by_turns(
        self, sides: Sequence[S], times: int, measure: Callable[[S], dict[str, float]]
    ) -> dict[str, dict[str, Value]]:
        """Figure -> name of the side -> median. The sides take turns, in another order every other time."""
        found: dict[str, dict[tuple[str, int], list[float]]] = {}
        for turn in range(times):
            for side in reversed(sides) if turn % 2 else sides:
                for figure, value in measure(side).items():
                    of = found.setdefault(figure, {})
                    of.setdefault((side.name, side.version), []).append(value)
        return {figure: medians(of) for figure, of in found.items()}
