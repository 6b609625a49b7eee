"""Losses: what an export for a version of Redis leaves out, since that has no place for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import click

from tidelog.engine.commands.rewrite import Kind, Lost
from tidelog.tools.text import columns, json_value, place_text

HEAD: Final = ("COUNT", "WHAT", "KEYS")
KEYS_SHOWN: Final = 3  # of each kind of loss
Words = Mapping[Kind, str]
NO_WORDS: Final[Words] = {}
F = TypeVar("F", bound=Callable[..., Any])


def target_option(every: type[Enum], default: Enum, use: str) -> Callable[[F], F]:
    """The option --target: the version of the Redis that takes the export."""
    return click.option(
        "--target",
        type=click.Choice([target.value for target in every]),
        default=default.value,
        show_default=True,
        help=f"Version of the Redis that will {use}.",
    )


def as_objects(lost: Lost, others: Words = NO_WORDS) -> list[dict[str, object]]:
    """The losses, for JSON. `others`: kinds that are lost in another way than commands lose them, in words."""
    return [
        {
            "kind": kind.value,
            "db": db,
            "key": json_value(key),
            "count": count,
            "what": others.get(kind, kind.told),
        }
        for (kind, db, key), count in lost.counts.items()
    ]


def as_table(lost: Lost, reason: str, others: Words = NO_WORDS) -> str:
    """The losses, for people: a line per kind, with the keys that lose most."""
    found = {kind: lost.of(kind) for kind in Kind}
    rows = [
        (f"{sum(keys.values()):,}", others.get(kind, kind.told), keys_text(keys))
        for kind, keys in found.items()
        if keys
    ]
    return f"Not exported, because {reason}:\n" + columns(HEAD, rows, right="COUNT")


def keys_text(found: dict[tuple[int, bytes], int]) -> str:
    """The keys with the greatest counts, and how many more there are. The database is shown unless it is 0."""
    most = sorted(found, key=lambda at: (-found[at], at))
    shown = [place_text(db, key) for db, key in most[:KEYS_SHOWN]]
    more = len(most) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
