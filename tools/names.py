"""Names for shell completion: the queues, groups and keys of the store whose PATH is on the command line.

A completion never fails: without a store that can be read there are no names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from tidelog.aof.errors import AofError
from tidelog.engine import ids
from tidelog.engine.api import reading
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.jobs.rules import SCHEDULES, rule_of
from tidelog.snapshot.errors import CheckpointError, SnapshotError
from tidelog.store.errors import TidelogError
from tidelog.tools.completion import typed
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.replay import contents

NAMES_MAX: Final = 1000


Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def completing(find: Callable[[State, click.Context], Iterator[bytes]]) -> Complete:
    """Make a function that finds names in a state give those that begin with what was typed."""
    return lambda ctx, param, incomplete: _names(ctx, incomplete, find)


def _streams(state: State) -> Iterator[tuple[bytes, Stream]]:
    for database in state.databases:
        for key, value, _ in database.keys.walk():
            if isinstance(value, Stream):
                yield key, value


@completing
def keys(state: State, ctx: click.Context) -> Iterator[bytes]:
    """The keys."""
    for database in state.databases:
        yield from database.keys


@completing
def queues(state: State, ctx: click.Context) -> Iterator[bytes]:
    """The streams."""
    return (key for key, _ in _streams(state))


@completing
def groups(state: State, ctx: click.Context) -> Iterator[bytes]:
    """The groups of the stream on the line, or of all."""
    wanted = ctx.params.get("name") or ctx.params.get("key")
    for key, stream in _streams(state):
        if wanted in (None, (), _shown(key)):
            yield from stream.groups


@completing
def consumers(state: State, ctx: click.Context) -> Iterator[bytes]:
    """The consumers of all groups."""
    for _, stream in _streams(state):
        for group in stream.groups.values():
            yield from group.consumers


@completing
def schedules(state: State, ctx: click.Context) -> Iterator[bytes]:
    """The schedules."""
    for database in state.databases:
        stream = database.keys.get(SCHEDULES)
        if isinstance(stream, Stream):
            for _, row in reading.between(stream, 0, ids.MAX):
                rule = None if row is None else rule_of(row)
                if rule is not None:
                    yield rule.name


def _names(
    ctx: click.Context, incomplete: str, find: Callable[[State, click.Context], Iterator[bytes]]
) -> list[str]:
    names: set[str] = set()
    for path in _paths(ctx):
        try:
            with contents(LogFiles(path, snapshots=True)) as held:
                for name in find(held.state, ctx):
                    shown = _shown(name)
                    if shown.startswith(incomplete) and shown.isprintable():
                        names.add(shown)
                    if len(names) == NAMES_MAX:
                        break
        except (AofError, TidelogError, CheckpointError, SnapshotError, CorruptBlock, OSError):
            continue
        return sorted(names)
    return []


def _paths(ctx: click.Context) -> list[Path]:
    """The words that may be the store: the PATH, or all words if click could not parse the line.

    It cannot if the line ends with an option whose value is being completed.
    """
    named = [ctx.params.get(name) for name in ("path", "paths", "a", "b")]
    found = [
        each for value in named if value for each in (value if type(value) is tuple else (value,))
    ]
    if found:
        # A and B of `tidelog diff` are a path with an LSN; a path that may be a URL is a text.
        return [Path(getattr(each, "path", each)) for each in found]
    return [Path(word.value) for word in typed() if not word.value.startswith("-")]


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
