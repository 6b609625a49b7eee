"""Reads: how a store that takes no writes decides commands: a follower, and a store opened read-only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.engine.api import Context, Queued, decide, resolve, words_of
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply


def reads_only(refusal: bytes) -> Callable[[Context, list[bytes]], Reply]:
    """The engine's `decide` for reads. The returned function raises CommandError with `refusal` for a write."""

    def decide_read(ctx: Context, args: list[bytes]) -> Reply:
        if "write" in resolve(args).flags:
            raise CommandError(refusal)
        reply = decide(ctx, args)
        # the effects of a read only delete expired keys, and the store whose log this is logs these deletions itself
        ctx.effects.clear()
        return reply

    return decide_read


def first_write(commands: Sequence[Queued]) -> int | None:
    """The index of the first command that writes; None if all of them only read."""
    for position, command in enumerate(commands):
        try:
            if command.__class__ is tuple or "write" in resolve(words_of(command)).flags:
                return position
        except CommandError:
            pass  # an unknown command; queuing it says so
    return None
