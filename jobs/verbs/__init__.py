"""The verbs of a queue, a file for each: request, decision, words and reply, and what the tables of commands tell.

verb.py says what a verb is. VERBS has all, by name: a class in a file of this folder is one if it says its facts. Those
that decide are asked and answered at once; an Ending is about one delivery. The others wait, or belong to a connection
that takes jobs (server/commands/queue).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from tidelog.jobs.verbs.verb import Verb


def _verbs() -> dict[bytes, type[Verb]]:
    found: dict[bytes, type[Verb]] = {}
    for module in iter_modules(__path__):
        for kind in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Verb) and "facts" in vars(kind):
                found[kind.name] = kind
    return dict(sorted(found.items()))


VERBS: Final = tuple(_verbs().values())
