"""Pooled: the connections of a link, each with the numbers of its writes; and whether a command may be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.client.wire import Wire
from tidelog.engine.api import TABLE
from tidelog.jobs.verbs.verb import Safe

# Commands of the server that change nothing.
_READS: Final = frozenset((b"ping", b"time", b"info", b"role", b"config|get", b"tidelog|digest"))
_COMMANDS: Final = TABLE.commands


class Pooled:
    """A connection, and the series of the writes that were made through it and its predecessors.

    ended    another thread has ended the call that is under way, or is about to
    """

    __slots__ = ("name", "number", "wire", "ended", "__weakref__")

    def __init__(self, name: bytes) -> None:
        self.name, self.number, self.ended = name, 0, False
        self.wire: Wire | None = None

    def hang_up(self) -> None:
        """End the connection and the call that uses it, from another thread."""
        self.ended = True
        wire = self.wire
        if wire is not None:
            wire.hang_up()

    def can(self, capability: bytes) -> bool:
        """Whether there is a connection, to a server with this capability."""
        wire = self.wire
        return wire is not None and capability in wire.can

    def drop(self) -> None:
        """Close the connection."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()

    def __del__(self) -> None:
        try:
            self.drop()  # an interrupt, or a pipeline that was dropped, has left it
        except AttributeError:
            pass  # an interrupt struck during __init__


def numbered(words: Sequence[bytes], pooled: Pooled) -> list[bytes]:
    """The words of a write with the name of its series and its number."""
    number = b"%d" % pooled.number
    if words[0] == b"QUEUE":
        return [*words, b"ONCE", pooled.name, number]
    return [b"TIDELOG", b"ONCE", pooled.name, number, *words]


def safety(words: Sequence[bytes]) -> Safe:
    """Whether a command may be repeated."""
    name = words[0].lower()
    command = _COMMANDS.get(name)
    if command is None and len(words) > 1:
        name += b"|" + words[1].lower()
        command = _COMMANDS.get(name)
    if command is None:
        return Safe.READ if name in _READS or words[0].lower() in _READS else Safe.NEVER
    if "write" not in command.flags:
        return Safe.READ
    return Safe.NEVER if "blocking" in command.flags else Safe.ONCE


def block_ms(args: list[bytes]) -> tuple[int, int] | None:
    """Where the milliseconds of BLOCK are, and their number; None if the command does not block."""
    if args[0].upper() not in (b"XREAD", b"XREADGROUP"):
        return None
    for at, word in enumerate(args[1:-1], 2):
        upper = word.upper()
        if upper == b"STREAMS":
            return None
        if upper == b"BLOCK":
            return (at, int(args[at])) if args[at].isdigit() else None
    return None
