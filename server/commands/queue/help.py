"""QUEUE HELP."""

from __future__ import annotations

from tidelog.engine.reply import Reply, Status
from tidelog.jobs.verbs import VERBS
from tidelog.jobs.verbs.help_ import Help
from tidelog.server.session import Session

_ALL = (
    "Every subcommand but LIST, DEAD, SCHEDULE and SCHEDULES takes the queue's options at its end: GROUP,",
    "RETRYAFTER (ms), MAXDELIVERIES, MAXDEPTH, MAXFAILURES, CONCURRENCY, CONCURRENCYPERKEY, RATE (<jobs>/s, m, h or",
    "d), KEEP (jobs), KEEPMS, CODEC (its name is kept with dead jobs).",
)


def help_(session: Session, args: list[bytes]) -> Reply:
    """QUEUE HELP"""
    lines = ["QUEUE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for verb in VERBS:
        if verb is Help:
            lines += _ALL
        name = verb.name.decode()
        lines += (line if line.startswith(name) else f"    {line}" for line in verb.facts.usage)
    return [Status(line.encode()) for line in lines]
