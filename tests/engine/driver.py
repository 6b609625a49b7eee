"""An engine in memory, driven by commands, with replies as plain Python and a log that can be replayed."""

from __future__ import annotations

from typing import Any

import msgpack

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import OPCODE, VOLATILE, Effect
from tidelog.engine.errors import CommandError
from tidelog.engine.groups.group import Group
from tidelog.engine.ids import text
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.reply import NULL_ARRAY, Map, Park
from tidelog.engine.streams.entries import ClaimedEntries, Entries
from tidelog.engine.streams.stream import Stream


class Engine:
    """`now` is set by the test. `effects` are those of the last command, `log` the packed records of all."""

    def __init__(self) -> None:
        self.state = State()
        self.ctx = Context(self.state, Settings())
        self.now = 1_000_000
        self.effects: list[Effect] = []
        self.log: list[bytes] = []

    def raw(self, *words: bytes | str | int) -> Any:
        """The reply as the engine gives it. Raises CommandError."""
        args = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.ctx.now = self.now
        self.ctx.effects = []
        reply = decide(self.ctx, args)
        self.effects = self.ctx.effects
        for effect in self.effects:
            apply(self.state, effect)
            if effect[0] & OPCODE < VOLATILE:
                self.log.append(msgpack.packb(effect))
        return reply

    def __call__(self, line: str, *more: bytes | str | int) -> Any:
        """Run a command written with blanks: the reply as str, int, None, lists and dicts, or `-ERROR`."""
        try:
            return plain(self.raw(*line.split(), *more))
        except CommandError as refused:
            return f"-{refused}"

    def group(self, key: str = "s", group: str = "g") -> Group:
        """A group's state."""
        stream = self.state.databases[0].keys[key.encode()]
        assert isinstance(stream, Stream)
        return stream.groups[group.encode()]

    def check(self) -> None:
        """The structures are sound, and the log replays to the same state."""
        for database in self.state.databases:
            for value in database.keys.values():
                if isinstance(value, Stream):
                    value.check()
                    for group in value.groups.values():
                        group.pending.check()
        other = State()
        for record in self.log:
            apply(other, msgpack.unpackb(record, use_list=False))
        assert digest(other) == digest(self.state)


def plain(reply: Any) -> Any:
    """A reply as str, int, None, lists and dicts; "PARKED" for one that waits."""
    if isinstance(reply, bytes):
        return reply.decode()
    if reply is NULL_ARRAY:
        return None
    if isinstance(reply, Park):
        return "PARKED"
    if isinstance(reply, ClaimedEntries):
        return [
            [text(id).decode(), plain(row and list(row)), idle, deliveries]
            for (id, row), idle, deliveries in zip(reply, reply.idle, reply.deliveries, strict=True)
        ]
    if isinstance(reply, Entries):
        return [[text(id).decode(), plain(row and list(row))] for id, row in reply]
    if isinstance(reply, Map):
        return {plain(key): plain(value) for key, value in zip(reply[::2], reply[1::2])}
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return reply
