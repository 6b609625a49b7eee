"""redis-py in every way it can be used: sync or asyncio, protocol, decoding, shapes of replies."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple, Self

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

import tidelog


class Mode(NamedTuple):
    """How a client is made. `legacy`: the shapes of replies of earlier redis-py, which are still its default."""

    asyncio: bool
    protocol: int
    decode: bool
    legacy: bool

    def __str__(self) -> str:
        words = ("asyncio" if self.asyncio else "sync", f"RESP{self.protocol}")
        return "-".join(
            [*words, "str" if self.decode else "bytes", "legacy" if self.legacy else "unified"]
        )


MODES = [Mode(*each) for each in product((False, True), (2, 3), (False, True), (True, False))]


class Failed(NamedTuple):
    """The error of a call, as far as programs see it."""

    kind: str
    text: str


class Call(NamedTuple):
    """A method of a client, and its arguments."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def __str__(self) -> str:
        words = [repr(arg) for arg in self.args]
        words += [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.name}({', '.join(words)})"


def call(name: str, *args: Any, **options: Any) -> Call:
    return Call(name, args, options)


class Face:
    """A client of one mode. `do` makes a call and gives its value, or what it raised."""

    def __init__(self, mode: Mode, **where: Any) -> None:
        options = {"protocol": mode.protocol, "decode_responses": mode.decode, **where}
        # A refused AUTH counts as a lost connection, and would be tried again for seconds.
        retry: Any = redis.asyncio.retry.Retry if mode.asyncio else redis.retry.Retry
        options["retry"] = retry(NoBackoff(), 0)
        self.mode = mode
        self._runner = asyncio.Runner() if mode.asyncio else None
        make: Any = redis.asyncio.Redis if mode.asyncio else redis.Redis
        self.client = make(legacy_responses=mode.legacy, **options)

    def do(self, name: str, *args: Any, **options: Any) -> Any:
        return self.outcome(lambda: getattr(self.client, name)(*args, **options))

    def pipeline(self, calls: list[Call], transaction: bool, raising: bool = False) -> Any:
        """The values of several calls that are sent at once."""

        def run() -> Any:
            pipe = self.client.pipeline(transaction=transaction)
            for each in calls:
                getattr(pipe, each.name)(*each.args, **each.options)
            return pipe.execute(raise_on_error=raising)

        return self.outcome(run)

    def outcome(self, work: Callable[[], Any]) -> Any:
        """The value of a function, or of the coroutine it returns, or what it raised."""
        try:
            return plain(self.result(work()))
        except redis.RedisError as error:
            return Failed(type(error).__name__, str(error))

    def result(self, value: Any) -> Any:
        """The value itself, or what it is the promise of."""
        if self._runner is None or not inspect.isawaitable(value):
            return value

        async def wait() -> Any:
            return await value

        return self._runner.run(wait())

    def close(self) -> None:
        if self._runner is None:
            self.client.close()
        else:
            self._runner.run(self.client.aclose())
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Embedded:
    """A store without a server, called in the same way."""

    def __init__(self, store: tidelog.Store) -> None:
        self.store = store

    def do(self, name: str, *args: Any, **options: Any) -> Any:
        return self._outcome(lambda: getattr(self.store, name)(*args, **options))

    def pipeline(self, calls: list[Call], transaction: bool, raising: bool = False) -> Any:
        """As a client's."""

        def run() -> Any:
            pipe = self.store.pipeline(transaction=transaction)
            for each in calls:
                getattr(pipe, each.name)(*each.args, **each.options)
            return pipe.execute(raise_on_error=raising)

        return self._outcome(run)

    def _outcome(self, work: Callable[[], Any]) -> Any:
        try:
            return plain(work())
        except tidelog.TidelogError as error:
            return Failed(type(error).__name__, str(error))


def plain(value: Any) -> Any:
    """A value with the errors in it as values too."""
    if isinstance(value, Exception):
        return Failed(type(value).__name__, str(value))
    if type(value) is list:
        return [plain(item) for item in value]
    return value


def typed(value: Any) -> Any:
    """A value with its types spelled out, since True == 1 and [] is not ()."""
    if isinstance(value, Failed):
        # Wrong arguments are refused before anything is sent, in words for people.
        return ("refused",) if value.kind == "DataError" else value
    if isinstance(value, dict):
        return "dict", tuple((typed(key), typed(item)) for key, item in value.items())
    if isinstance(value, list):
        return "list", tuple(typed(item) for item in value)
    if isinstance(value, tuple):
        return "tuple", tuple(typed(item) for item in value)
    return type(value).__name__, value
