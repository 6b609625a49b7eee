"""The faces are one: generated files are up to date, and signatures are redis-py's."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from tidelog.api.aio import AsyncStore
from tidelog.api.async_methods import AsyncMethods
from tidelog.api.methods import Methods
from tidelog.api.pipeline import AsyncPipeline, Pipeline
from tidelog.api.pipeline_methods import PipelineMethods
from tidelog.api.sync import Store

ROOT = Path(__file__).parents[2]
COMMANDS = [name for name in vars(Methods) if not name.startswith("_")]


def program(name: str) -> Any:
    """A program of tools/dev."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/dev/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code(source: str) -> str:
    """A module without its layout and its imports, which the formatter sorts and prunes."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return ast.dump(tree)


@pytest.mark.parametrize("name", ["make_faces", "make_sync", "make_threaded"])
def test_generated_faces_are_up_to_date(name: str) -> None:
    for path, wanted in program(name).faces().items():
        assert code(path.read_text()) == code(wanted), "run `make generate`"


SOURCE = '''"""AsyncThing: a thing for asyncio."""

from tidelog.store.commit.tasks import this_task  # asyncio
# threads: from threading import get_ident


class AsyncThing:
    """Use it as `async with thing:`, and `await` it (see `AsyncThing.aclose`)."""

    async def __aenter__(self) -> AsyncIterator[str]:
        # another task has it
        found = [one async for one in await self.all(  # of await
            "await this")]
        await asyncio.sleep(0)  # asyncio: others run
        # threads: self.count += 1
        return found, this_task()
'''
MADE = '''"""Thing: a thing for threads.

Generated from athing.py by tools/dev/make_sync.py: change that file.
"""

from threading import get_ident


class Thing:
    """Use it as `with thing:`, and `await` it (see `Thing.close`)."""

    def __enter__(self) -> Iterator[str]:
        # another thread has it
        found = [one for one in self.all(  # of await
            "await this")]
        self.count += 1
        return found, get_ident()
'''


def test_a_face_for_threads_is_made_from_the_one_for_asyncio() -> None:
    assert program("make_sync").made(SOURCE, "athing.py") == MADE


THREADS = '''
class SharedJob(Base, Generic[T]):
    """A job."""

    @property
    def id(self) -> str:
        """Its ID."""
        return self._id

    def new(self, value: T = NONE) -> Put:
        """A job as `SharedJob`."""
        return Put(value)

    def ack(self, first: int, *more: T, ttl: Duration = 5, **options: str) -> bool:
        """Done.

        Raises:
            DataError: `ttl` is invalid.
        """
        return self._settle(first)

    def close(self) -> None:
        """Written by hand."""

    def beat(self) -> None:
        """Renew."""

    def _settle(self) -> bool:
        return True
'''
CALLS = '''class JobCalls(Generic[T]):
    """The calls of a `SharedJob` that wait in a thread."""

    _job: SharedJob[T]

    @property
    def id(self) -> str:
        """Its ID."""
        return self._job.id

    async def new(self, value: T=NONE) -> Put:
        """A job as `AsyncSharedJob`."""
        return await threaded(partial(self._job.new, value))

    async def ack(self, first: int, *more: T, ttl: Duration=5, **options: str) -> bool:
        """Done.

        Raises:
            DataError: `ttl` is invalid.
        """
        return await threaded(partial(self._job.ack, first, *more, ttl=ttl, **options))

    async def beat(self) -> None:
        """Renew."""
        await threaded(self._job.beat)
'''


def test_calls_for_asyncio_are_made_from_the_methods_for_threads() -> None:
    text, names = program("make_threaded").made(THREADS, "SharedJob", "_job", {"close"})
    assert text == CALLS
    assert names >= {"SharedJob", "T", "NONE", "Put", "Duration"}


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    """Parameters by name, kind and default. redis-py's **kwargs go to its connection; there is none here."""
    return [
        (name, parameter.kind, parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_signatures_are_those_of_redis_py(name: str) -> None:
    assert shape(getattr(Store, name)) == shape(getattr(redis.Redis, name))
    assert shape(getattr(AsyncStore, name)) == shape(getattr(redis.asyncio.Redis, name))


OWN = ["pipeline", "ping", "time", "info", "scan_iter", "config_get", "config_set"]


@pytest.mark.parametrize("name", OWN)
def test_what_is_written_by_hand_has_redis_pys_parameters_too(name: str) -> None:
    wanted = [
        part for part in shape(getattr(redis.Redis, name)) if part[0] not in ("kwargs", "self")
    ]
    for face in (Store, AsyncStore):
        assert [part for part in shape(getattr(face, name)) if part[0] != "self"] == wanted


def test_every_face_has_every_method() -> None:
    for face in (Methods, AsyncMethods, PipelineMethods):
        assert [name for name in vars(face) if not name.startswith("_")] == COMMANDS
    for name in COMMANDS:
        assert inspect.iscoroutinefunction(getattr(AsyncStore, name))
        assert not inspect.iscoroutinefunction(getattr(Pipeline, name))
        assert not inspect.iscoroutinefunction(getattr(AsyncPipeline, name))


def test_every_stream_command_of_redis_py_is_here() -> None:
    theirs = {name for name in dir(redis.Redis) if name.startswith("x") and name[1:2].isalpha()}
    assert theirs <= set(COMMANDS), theirs - set(COMMANDS)
