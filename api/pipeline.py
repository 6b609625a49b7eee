"""Pipelines: the methods of `PipelineMethods` queue commands, and `execute` runs them together.

With `transaction=True` (the default, as in redis-py) the commands are one unit, as between MULTI and EXEC. Otherwise
each is its own unit, and units share frames. Between `watch` and `multi`, methods run at once and return their reply.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tidelog.api import shapes
from tidelog.api.aclearing import AsyncClearing
from tidelog.api.clearing import Clearing
from tidelog.api.encode import encode, encode_all
from tidelog.api.face import Face
from tidelog.api.missing import answers_missing
from tidelog.api.pipeline_methods import PipelineMethods
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT
from tidelog.engine.api import PlainAdd, Queued, Transaction, words_of
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import NULL_ARRAY, Reply
from tidelog.store.commit.batch import run_pipeline, run_transaction
from tidelog.store.commit.core import Answer
from tidelog.store.errors import DataError, TidelogError, WatchError, from_command

T = TypeVar("T")
Staged = tuple[Shape[Any], list[bytes]] | PlainAdd
_SESSION = (b"MULTI", b"EXEC", b"DISCARD", b"WATCH")
_ERROR_CHARS = 100  # of the command text, in an error message


class _Queue(PipelineMethods):
    """The common part of both pipelines: the queued commands and the state of a transaction."""

    def __init__(self, store: Face, transaction: bool) -> None:
        self._face = store
        self._core = store._core
        self._staged: list[Staged] = []
        self._stage = self._staged.append
        self._session = Transaction(self._core.watches)
        self._explicit = False
        self._at_once = False  # between WATCH and MULTI, methods run at once
        self.transaction = transaction
        """Whether `execute` runs the commands as one unit."""

    def __len__(self) -> int:
        return len(self._staged)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        raise TypeError(
            "a pipeline cannot be pickled: it belongs to its open store; create a new pipeline in the other process"
        )

    @property
    def watching(self) -> bool:
        """Whether a key is watched."""
        return bool(self._session.watched)

    def _call(self, shape: Shape[T], words: list[Any]) -> Any:
        if self._at_once:
            return self._face._call(shape, words)
        self._stage((shape, encode_all(words)))
        return self

    def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> Any:
        if self._at_once:
            return self._face._add(name, fields)
        row: list[bytes] = []  # inlined encode_row, saves a call
        add = row.append
        for f, v in fields.items():
            add(f.encode() if f.__class__ is str else f if f.__class__ is bytes else encode(f))
            add(v.encode() if v.__class__ is str else v if v.__class__ is bytes else encode(v))
        key = name.encode() if name.__class__ is str else encode(name)
        self._stage((key, tuple(row)))
        return self

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue any command, given as words. Between `watch` and `multi`, run it.

        Returns:
            The pipeline; between `watch` and `multi` the reply.

        Raises:
            DataError: There are no words, or the command is MULTI, EXEC, DISCARD or WATCH.
        """
        words = command_words(args)
        if not words:
            raise DataError("execute_command needs a command")
        if words[0].upper() in _SESSION:
            raise DataError(
                f"a pipeline does not take the command {words[0].decode().upper()}; call its methods multi(), "
                "execute(), discard() and watch() instead"
            )
        if self._at_once:
            return self._face.execute_command(*args, **options)
        self._stage((shapes.shape_of(encode(args[0]), options), words))
        return self

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
        self._at_once = False

    def _watch(self, names: Sequence[KeyT]) -> Answer:
        if self._explicit:
            raise TidelogError("Cannot issue a WATCH after a MULTI")
        args = [b"WATCH", *encode_all(names)]
        try:
            answer = self._core.session(self._face._db, self._session, args)
        except CommandError as error:
            raise from_command(error) from None
        self._at_once = self.watching
        return answer

    def _clear(self) -> None:
        self._staged = []
        self._stage = self._staged.append
        self._explicit = self._at_once = False
        self._core.forget(self._session)

    def _run(self) -> Answer:
        """Run the queued commands."""
        core, db = self._core, self._face._db
        queued: list[Queued] = [s if s[1].__class__ is tuple else s[1] for s in self._staged]  # type: ignore[misc]
        if self.transaction or self._explicit:
            return run_transaction(core, db, self._session, queued)
        return run_pipeline(core, db, queued)

    def _finish(self, reply: Reply, staged: list[Staged], raise_on_error: bool) -> list[Any]:
        """Shape the reply of `_run` as redis-py does."""
        if reply is NULL_ARRAY:
            raise WatchError("Watched variable changed.")
        if isinstance(reply, CommandError):
            raise from_command(reply)
        if isinstance(reply, tuple):
            position, refusal = reply
            raise _annotated(from_command(refusal), position, staged[position])
        decode: bool = self._face._decode
        results: list[Any] = []
        for position, (one, command) in enumerate(zip(reply, staged, strict=True)):
            if one.__class__ is bytes and not decode and command[1].__class__ is tuple:
                results.append(one)
            elif isinstance(one, Exception):
                error = from_command(one) if isinstance(one, CommandError) else one
                if raise_on_error:
                    raise _annotated(error, position, command)
                results.append(error)
            else:
                shape: Any = shapes.text if command[1].__class__ is tuple else command[0]
                results.append(shape(one, decode))
        return results


@answers_missing
class Pipeline(_Queue, Clearing):
    """A pipeline of a `Store`. `Store.pipeline` makes it; one thread at a time may use it.

    It has the commands of `Store`. Each queues itself and returns the pipeline, so calls can be chained; `execute` runs
    them. Between `watch` and `multi` commands run at once and return their reply. Leaving the context drops what is
    queued.
    """

    def watch(self, *names: KeyT) -> bool:
        """Watch keys: `execute` raises WatchError if one of them has changed since.

        Commands run at once until `multi`.

        Returns:
            True.

        Raises:
            TidelogError: `multi` was called before.
        """
        _, promise = self._watch(names)
        self._face._fulfil(promise)
        return True

    def unwatch(self) -> bool:
        """Stop watching all keys. Returns True."""
        self._core.forget(self._session)
        self._at_once = False
        return True

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the queued commands, and empty the pipeline.

        Args:
            raise_on_error: True: raise the first command's error, with its position in the text. False: put errors in
                the list.

        Returns:
            One result per command, of the shape that the method of `Store` returns.

        Raises:
            WatchError: A watched key changed; nothing was done.
            ResponseError: A command was refused. In a transaction the others have run all the same.
            ExecAbortError: A command of the transaction is malformed; nothing was done.
        """
        staged = self._staged
        try:
            if not staged and not self.watching:
                return []
            reply, promise = self._run()
            self._face._fulfil(promise)
            return self._finish(reply, staged, raise_on_error)
        finally:
            self._clear()


@answers_missing
class AsyncPipeline(_Queue, AsyncClearing):
    """A pipeline of an `AsyncStore`. `AsyncStore.pipeline` makes it; one task at a time may use it.

    As `Pipeline`. Methods that queue are not awaited; `watch`, `unwatch`, `execute`, `reset` and, between `watch` and
    `multi`, commands are.
    """

    async def watch(self, *names: KeyT) -> bool:
        """Watch keys. As `Pipeline.watch`."""
        _, promise = self._watch(names)
        await self._face._fulfil(promise)
        return True

    async def unwatch(self) -> bool:
        """Stop watching all keys. Returns True."""
        self._core.forget(self._session)
        self._at_once = False
        return True

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the queued commands, and empty the pipeline. As `Pipeline.execute`."""
        staged = self._staged
        try:
            if not staged and not self.watching:
                return []
            reply, promise = self._run()
            await self._face._fulfil(promise)
            return self._finish(reply, staged, raise_on_error)
        finally:
            self._clear()


def command_words(args: Sequence[Any]) -> list[bytes]:
    """The words of `execute_command`. A name with a blank in it is a command and its subcommand."""
    words = encode_all(args)
    return [*words[0].split(), *words[1:]] if words else words


def call_words(args: Sequence[Any]) -> list[bytes]:
    """`command_words` for a command that runs at once. Raises DataError if there are no words, and for SELECT."""
    words = command_words(args)
    if not words:
        raise DataError("execute_command needs a command")
    if words[0].upper() == b"SELECT":
        raise DataError(
            "execute_command does not take SELECT, because a store has no session; use db(n) to choose a database"
        )
    return words


def _words(staged: Staged) -> list[bytes]:
    return words_of(staged) if isinstance(staged[1], tuple) else staged[1]


def _annotated(error: Exception, position: int, staged: Staged) -> Exception:
    words = b" ".join(_words(staged)).decode(errors="replace")
    quoted = textwrap.shorten(words, _ERROR_CHARS, placeholder="...", break_long_words=True)
    text = f"Command # {position + 1} ({quoted}) of pipeline caused error: {error.args[0]}"
    error.args = (text, *error.args[1:])
    return error
