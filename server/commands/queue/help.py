"""QUEUE HELP."""

from __future__ import annotations

from tidelog.engine.reply import Reply, Status
from tidelog.jobs.verbs.found import VERBS
from tidelog.jobs.verbs.help_ import Help
from tidelog.jobs.verbs.verb import Verb
from tidelog.server.session import Session

_FIRST = "QUEUE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
_ALL = (
    "Every subcommand but LIST, DEAD, SCHEDULE and SCHEDULES takes the queue's options at its end: GROUP,",
    "RETRYAFTER (ms), LEASE (ms), RETRYPOLICY (such as 'max=8 base=2 cap=600', in seconds), MAXDELIVERIES, MAXDEPTH,",
    "MAXFAILURES, CONCURRENCY, CONCURRENCYPERKEY, RATE (<jobs>/s, m, h or d), KEEP (jobs), KEEPMS, CODEC (its name is",
    "kept with dead jobs).",
)


def help_(session: Session, args: list[bytes]) -> Reply:
    """QUEUE HELP"""
    others = [verb for verb in VERBS if verb is not Help]
    lines = [_FIRST, *(line for verb in others for line in _usage(verb)), *_ALL, *_usage(Help)]
    return [Status(line.encode()) for line in lines]


def _usage(verb: type[Verb]) -> list[str]:
    """The lines of a verb: its words, and under them, indented, what it does."""
    name = verb.name.decode()
    return [line if line.startswith(name) else f"    {line}" for line in verb.facts.usage]
