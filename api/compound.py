"""Compound: the methods, for threads, that a store and a shared store have in common besides the commands.

Generated from acompound.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import sleep
from typing import Any, Generic, TypeVar

from tidelog.api import shapes
from tidelog.api.methods import Methods
from tidelog.api.types import KeyT, PatternT, TextT
from tidelog.store.errors import WatchError

P = TypeVar("P")


class Compound(Methods[TextT], Generic[P, TextT]):
    """Methods that other methods make up, for threads. P: the class of the store's pipelines."""

    def scan_iter(
        self,
        match: PatternT | None = None,
        count: int | None = None,
        _type: str | None = None,
    ) -> Iterator[TextT]:
        """Iterate over the names of all keys with `scan`, a few at a time.

        A key that exists during the whole iteration is found; a name may come twice if keys change meanwhile.

        Args:
            match: Only names that match this glob pattern.
            count: Hint for the size of one step.
            _type: Only keys of this type, `stream` or `string`.

        Raises:
            ResponseError: `count` or the type is invalid.
        """
        cursor = -1
        while cursor:
            cursor, names = self.scan(max(cursor, 0), match, count, _type)
            for name in names:
                yield name

    def time(self) -> tuple[int, int]:
        """The store's clock: `(Unix seconds, microseconds of the second)`."""
        return self._call(shapes.clock, [b"TIME"])

    def __contains__(self, name: KeyT) -> bool:
        return bool(self.exists(name))

    def __getitem__(self, name: KeyT) -> TextT:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: KeyT, value: Any) -> None:
        self.set(name, value)

    def __delitem__(self, name: KeyT) -> None:
        self.delete(name)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> P:
        """A pipeline of this store."""
        raise NotImplementedError

    def transaction(
        self,
        func: Callable[[P], Any],
        *watches: KeyT,
        shard_hint: str | None = None,
        value_from_callable: bool = False,
        watch_delay: float | None = None,
    ) -> Any:
        """Run a transaction that depends on what it reads; repeat it until no watched key changed in between.

        An error of `func` ends it, and propagates.

        Args:
            func: Called with a pipeline that watches the keys. It reads, calls `pipe.multi()` and queues commands. With
                asyncio it may be a coroutine function.
            *watches: The keys to watch.
            shard_hint: Ignored; redis-py has it.
            value_from_callable: Return what `func` returned.
            watch_delay: Seconds to pause before a repeat.

        Returns:
            The results of the queued commands, or what `func` returned.

        Raises:
            ResponseError: A queued command was refused.
        """
        pipe: Any = self.pipeline(True)
        with pipe:
            while True:
                try:
                    if watches:
                        pipe.watch(*watches)
                    value = func(pipe)
                    results = pipe.execute()
                    return value if value_from_callable else results
                except WatchError:
                    if watch_delay:
                        sleep(watch_delay)
