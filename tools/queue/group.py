"""`tidelog queue`: the durable queues of a store.

Commands that only read a queue read the log as all tools do, so the writer may be running. The commands that change a
queue (`dead redrive`, `dead purge`, `purge`) open the store for writing; if another process has it open, the error
says what to do.
"""

from __future__ import annotations

import click

from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples

# fmt: off
QUEUE = {
    "ls":       ("tidelog.tools.queue.ls", "List the queues of a store."),
    "stats":    ("tidelog.tools.queue.stats", "Show the counts of a queue, and measure its rates."),
    "peek":     ("tidelog.tools.queue.peek", "Show the next waiting jobs without delivering them."),
    "failures": ("tidelog.tools.queue.failures", "Show the latest failures of jobs, newest first."),
    "dead":     ("tidelog.tools.queue.dead.group", "Inspect dead jobs, and put them back."),
    "purge":    ("tidelog.tools.queue.purge", "Delete every job that is not in flight."),
}
# fmt: on


@click.group(
    cls=LazyGroup,
    table=QUEUE,
    epilog=examples(
        "tidelog queue ls orders-data",
        "tidelog queue stats orders-data mails --over 10",
        "tidelog queue dead redrive orders-data mails --error Timeout",
    ),
)
def command() -> None:
    """Inspect the queues of a store, and put dead jobs back."""
