"""A served store and clients of it, in one process: the server is in a thread, the clients connect by the path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.client.faces.awaited import Awaited, Loop
from tests.client.owners import ended_owner

import tidelog
from tidelog import testing
from tidelog.client import link
from tidelog.client.starting import Starting
from tidelog.client.store import SharedStore


class Bench:
    """A store whose clock stands still, a server of it, and clients."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root, self._stack = root, stack
        self.clock = testing.Clock()
        self.begin()

    def begin(self) -> None:
        """Open the store and serve it."""
        self.db = tidelog.open(self.root, fsync="everysec", clock=self.clock)
        self._stack.callback(self.db.close)
        self.serving = tidelog.serve(self.db, port=0)
        self._stack.callback(self.serving.close)

    def restart(self) -> None:
        """End the server and the store, and begin both again."""
        self.serving.close()
        self.db.close()
        self.begin()

    def connect(self, **options: Any) -> SharedStore:
        """A client, closed at the end."""
        found = tidelog.connect(self.root, **options)
        self._stack.callback(found.close)
        return found

    def awaited(self, **options: Any) -> Awaited:
        """A client for asyncio, called as if it were for threads, and closed at the end."""
        return awaited(self._stack, tidelog.aconnect(self.root, **options))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """One with its server running."""
    with ExitStack() as stack:
        yield Bench(tmp_path / "store", stack)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The path of a store that is not there yet; its owner is ended after the test."""
    path = tmp_path / "store"
    with ended_owner(path):
        yield path


KINDS: Final = ("embedded", "embedded asyncio", "shared", "shared asyncio")


@contextmanager
def opened(kind: str, root: Path, **options: Any) -> Iterator[Any]:
    """A store through one of its faces, called as if all were for threads. `options` are those of `tidelog.open`."""
    options = {"fsync": "no", **options}
    with ExitStack() as stack:
        if kind == "embedded asyncio":
            yield awaited(stack, tidelog.aopen(root, **options))
            return
        db = stack.enter_context(tidelog.open(root, **options))
        if kind == "embedded":
            yield db
            return
        stack.enter_context(tidelog.serve(db, port=0))
        if kind == "shared":
            yield stack.enter_context(tidelog.connect(root))
        else:
            yield awaited(stack, tidelog.aconnect(root))


def awaited(stack: ExitStack, opening: Any) -> Awaited:
    """A face for asyncio that is being opened, called as if it were for threads. The stack closes it."""
    loop = Loop()
    stack.callback(loop.close)
    found = loop.run(opening)
    stack.callback(lambda: loop.run(found.aclose()))
    return Awaited(loop, found)


@asynccontextmanager
async def aopened(backend: str, root: Path) -> AsyncIterator[Any]:
    """A store for asyncio, of either backend. The clock goes on."""
    if backend == "embedded":
        async with tidelog.aopen(root, fsync="no") as store:
            yield store
    else:
        with tidelog.open(root, fsync="no") as db, tidelog.serve(db, port=0):
            async with tidelog.aconnect(root) as client:
                yield client


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The stores for which this process has started owners."""
    found: list[Path] = []

    class Counted(Starting):
        def __init__(self, root: Path, options: Mapping[str, str]) -> None:
            found.append(root)
            super().__init__(root, options)

    monkeypatch.setattr(link, "Starting", Counted)
    return found
