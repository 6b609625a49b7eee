"""What the commands that change a queue share: the rehearsal, the question, and many jobs in batches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import click

from tidelog.store.queue.face import Queue
from tidelog.tools import console
from tidelog.tools.queue.dead.filter import Filter, dead_jobs
from tidelog.tools.queue.dead.ls import table
from tidelog.tools.queue.value import jobs_text

BATCH: Final = 100  # dead jobs per call, so that progress can be shown; as many as the queue changes as one unit


def rehearse(queue: Queue, ids: Iterable[str], wanted: Filter, verb: str, as_json: bool) -> None:
    """The end of --dry-run: show which dead jobs would be `verb` (redriven, purged)."""
    jobs = list(dead_jobs(queue.dead, ids, wanted))
    if as_json:
        chosen = [job.id for job in jobs]
        click.echo(json.dumps({verb: len(chosen), "dry_run": True, "ids": chosen}))
        return
    if jobs:
        table(jobs, None)
    click.echo(f"{jobs_text(len(jobs), 'dead ')} would be {verb}; nothing was changed")


def in_batches(label: str, ids: Sequence[str], call: Callable[[Sequence[str]], int]) -> int:
    """Call `call` with all IDs, some at a time, behind a progress bar; the sum of what it returns.

    What was done before an interrupt or an error is done, and is said.
    """
    done = 0
    try:
        with console.progress(label, len(ids)) as advance:
            for start in range(0, len(ids), BATCH):
                batch = ids[start : start + BATCH]
                done += call(batch)
                advance(len(batch))
    except BaseException:
        click.echo(f"{label}: {done:,} of {len(ids):,} jobs were done before this error:", err=True)
        raise
    return done


def must_be_able_to_ask(yes: bool) -> None:
    """Refuse to begin where nobody could answer. Raises UsageError."""
    if not yes and not (sys.stdin and sys.stdin.isatty()):
        raise click.UsageError(
            "there is no terminal to ask for confirmation; repeat the command with --yes"
        )


def agreed(question: str, yes: bool) -> bool:
    """Whether it was said beforehand (`yes`) or is now said that it may be done."""
    if yes or click.confirm(question, err=True):
        return True
    click.echo("Nothing was changed.", err=True)
    return False
