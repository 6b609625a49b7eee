"""SharedPipeline: commands that a shared store runs together, sent in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from tidelog.api import shapes
from tidelog.api.clearing import Clearing
from tidelog.api.encode import encode, encode_all
from tidelog.api.missing import answers_missing
from tidelog.api.pipeline import command_words
from tidelog.api.pipeline_methods import PipelineMethods
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT
from tidelog.client.base import Base
from tidelog.client.errors import error_of
from tidelog.client.pooled import Pooled
from tidelog.client.replies import as_engine
from tidelog.client.wire import Wire, session_free
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs.verbs.verb import Safe
from tidelog.store.errors import DataError, TidelogError, WatchError

T = TypeVar("T")
_SESSION = (b"MULTI", b"EXEC", b"DISCARD", b"WATCH")


@answers_missing
class SharedPipeline(PipelineMethods, Clearing):
    """A pipeline of a `SharedStore`. `SharedStore.pipeline` makes it; one thread at a time may use it.

    As `Pipeline`. It is never repeated: if the connection breaks during `execute`, that raises OutcomeUnknown.
    """

    def __init__(self, store: Base, transaction: bool) -> None:
        self._store = store
        self.transaction = transaction
        """Whether `execute` runs the commands as one unit."""
        self._staged: list[tuple[Shape[Any], list[bytes]]] = []
        self._pooled: Pooled | None = None  # while keys are watched
        self._watches: Wire | None = None  # the connection of the first watch
        self._explicit = False

    def __len__(self) -> int:
        return len(self._staged)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        raise TypeError(
            "a pipeline cannot be pickled: it belongs to its connection; create a new pipeline in the other process"
        )

    @property
    def watching(self) -> bool:
        """Whether a key is watched."""
        return self._pooled is not None

    @property
    def _at_once(self) -> bool:
        return self._pooled is not None and not self._explicit

    def _call(self, shape: Shape[T], words: list[Any]) -> Any:
        args = encode_all(words)
        if not self._at_once:
            self._staged.append((shape, args))
            return self
        store = self._store
        reply = store._link.call(args, Safe.NEVER, store._db, pooled=self._pooled)
        return shape(as_engine(args, reply), store._decode)

    def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> Any:
        return self._call(*self._adding(name, fields))

    def _adding(self, name: KeyT, fields: Mapping[Any, Any]) -> tuple[Shape[Any], list[Any]]:
        words: list[Any] = [b"XADD", name, b"*"]
        for pair in fields.items():
            words += pair
        return shapes.text, words

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue any command, given as words. As `Pipeline.execute_command`.

        Returns:
            The pipeline; between `watch` and `multi` the reply.

        Raises:
            DataError: There are no words, or the command is MULTI, EXEC, DISCARD or WATCH.
        """
        return self._call(*self._given(args, options))

    def _given(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Shape[Any], list[Any]]:
        words: list[Any] = command_words(args)
        if not words or words[0].upper() in _SESSION:
            raise DataError(
                "a pipeline takes commands; call its methods multi(), execute() and watch()"
            )
        return shapes.shape_of(encode(args[0]), options), session_free(words)

    def watch(self, *names: KeyT) -> bool:
        """Watch keys: `execute` raises WatchError if one of them has changed since. As `Pipeline.watch`.

        Returns:
            True.

        Raises:
            TidelogError: `multi` was called before.
        """
        if self._explicit:
            raise TidelogError("Cannot issue a WATCH after a MULTI")
        store = self._store
        if self._pooled is None:
            self._pooled = store._link.take()
        store._link.call([b"WATCH", *encode_all(names)], Safe.NEVER, store._db, pooled=self._pooled)
        if self._watches is None:
            self._watches = self._pooled.wire
        return True

    def unwatch(self) -> bool:
        """Stop watching all keys. Returns True."""
        self._let_go()
        return True

    def multi(self) -> None:
        """After `watch`: queue commands again, until `execute`.

        Raises:
            TidelogError: It was called twice, or after a command was queued.
        """
        if self._explicit:
            raise TidelogError("Cannot issue nested calls to MULTI")
        if self._staged:
            raise TidelogError("Commands without an initial WATCH have already been issued")
        self._explicit = True

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the queued commands, and empty the pipeline. As `Pipeline.execute`.

        Args:
            raise_on_error: True: raise the first command's error. False: put errors in the list.

        Returns:
            One result per command.

        Raises:
            WatchError: A watched key changed, or the server has ended meanwhile; nothing was done.
            ResponseError: A command was refused. In a transaction the others have run all the same.
            ExecAbortError: A command of the transaction is malformed; nothing was done.
            OutcomeUnknown: The connection broke meanwhile.
        """
        staged = self._staged
        try:
            if not staged and not self.watching:
                return []
            return self._shaped(self._replies(), staged, raise_on_error)
        finally:
            self._clear()

    def _replies(self) -> list[Reply]:
        store = self._store
        link, db = store._link, store._db
        commands = [words for _, words in self._staged]
        if not (self.transaction or self._explicit):
            return link.calls(commands, Safe.NEVER, db, pooled=self._pooled)
        watches = self._watches

        def multi(wire: Wire) -> list[bytes]:
            if watches not in (None, wire):
                raise WatchError("The connection on which the keys were watched has ended.")
            return [b"MULTI"]

        found = link.calls([multi, *commands, [b"EXEC"]], Safe.NEVER, db, pooled=self._pooled)
        last = found[-1]
        if isinstance(last, CommandError):
            first = next((each for each in found if isinstance(each, CommandError)), last)
            raise error_of(last if first is last else first)
        if last is None:
            raise WatchError("Watched variable changed.")
        replies: list[Reply] = last
        return replies

    def _shaped(
        self, replies: list[Reply], staged: list[tuple[Shape[Any], list[bytes]]], raising: bool
    ) -> list[Any]:
        decode = self._store._decode
        results: list[Any] = []
        for reply, (shape, words) in zip(replies, staged, strict=True):
            if isinstance(reply, CommandError):
                error = error_of(reply)
                if raising:
                    raise error
                results.append(error)
            else:
                results.append(shape(as_engine(words, reply), decode))
        return results

    def _let_go(self) -> None:
        pooled, self._pooled, self._watches = self._pooled, None, None
        if pooled is not None:
            pooled.drop()  # ends the watches, too
            self._store._link.give_back(pooled)

    def _clear(self) -> None:
        self._staged = []
        self._explicit = False
        self._let_go()
