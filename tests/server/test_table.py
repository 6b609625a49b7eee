"""The server's table of commands: what a command's words name, however they are spelled and however often."""

from __future__ import annotations

import pytest

from tidelog.engine.errors import CommandError
from tidelog.server.handlers import COMMANDS


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("QUEUE LEN q", b"queue|len"),
        ("queue len q", b"queue|len"),
        ("Queue Len q GROUP g", b"queue|len"),
        ("CLIENT ID", b"client|id"),
        ("XINFO STREAM s", b"xinfo|stream"),
        ("COMMAND", b"command"),
        ("COMMAND COUNT", b"command|count"),
        ("GET k", b"get"),
        ("get len", b"get"),
    ],
)
def test_the_same_words_name_the_same_command(words: str, name: bytes) -> None:
    args = [word.encode() for word in words.split()]
    for _ in range(3):
        command, handler = COMMANDS.resolve(args)
        assert command.name == name and handler is COMMANDS.handlers.get(name)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("QUEUE LEN", "wrong number of arguments for 'queue|len'"),
        ("QUEUE", "wrong number of arguments for 'queue'"),
        ("CLIENT ID x", "wrong number of arguments for 'client|id'"),
        ("QUEUE LENGTH q", "unknown subcommand 'LENGTH'"),
        ("QUEUE|LEN q", "unknown command"),
    ],
)
def test_words_that_name_none(words: str, error: str) -> None:
    args = [word.encode() for word in words.split()]
    for known in ("QUEUE LEN q", "CLIENT ID", "GET k"):
        COMMANDS.resolve([word.encode() for word in known.split()])
    for _ in range(2):
        with pytest.raises(CommandError) as caught:
            COMMANDS.resolve(args)
        assert error in str(caught.value)
