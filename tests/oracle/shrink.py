"""A failing sequence made short, and printed so that it can be played again."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.oracle.driver import shown_command
from tests.oracle.grammar import Turn

SECONDS_MAX = 20.0

Fails = Callable[[list[Turn]], bool]


def shortest(turns: list[Turn], fails: Fails) -> list[Turn]:
    """Fewer commands that still fail: ever smaller runs of turns are left out, then single commands."""
    deadline = time.monotonic() + SECONDS_MAX
    size = len(turns) // 2
    while size and time.monotonic() < deadline:
        at = 0
        while at < len(turns) and time.monotonic() < deadline:
            candidate = turns[:at] + turns[at + size :]
            if candidate and fails(candidate):
                turns = candidate
            else:
                at += size
        size //= 2
    for at in reversed(range(len(turns))):
        commands = turns[at].commands
        for drop in reversed(range(len(commands))):
            if time.monotonic() > deadline:
                return turns
            fewer = turns[at].commands[:drop] + turns[at].commands[drop + 1 :]
            candidate = [*turns[:at], turns[at]._replace(commands=fewer), *turns[at + 1 :]]
            if fails(candidate):
                turns = candidate
    return [turn for turn in turns if turn.commands]


def script(turns: list[Turn]) -> str:
    """One command a line, in the quoting of redis-cli; `@ms` sets the clock."""
    lines: list[str] = []
    for turn in turns:
        lines.append(f"@{turn.now}")
        lines += [f"  {shown_command(args)}" for args in turn.commands]
    return "\n".join(lines)
