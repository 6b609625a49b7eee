"""All verbs of a queue, for the tables of commands. A program that has no server does not import them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from tidelog.jobs import verbs
from tidelog.jobs.verbs.verb import Verb


def _found() -> dict[bytes, type[Verb]]:
    """By name: each class in a file of this folder that says its facts."""
    found: dict[bytes, type[Verb]] = {}
    for module in iter_modules(verbs.__path__):
        if f"{verbs.__name__}.{module.name}" != __name__:
            for kind in vars(import_module(f"{verbs.__name__}.{module.name}")).values():
                if isinstance(kind, type) and issubclass(kind, Verb) and "facts" in vars(kind):
                    found[kind.name] = kind
    return dict(sorted(found.items()))


VERBS: Final = tuple(_found().values())
