"""Shared by the commands that change a queue: the dry run, the confirmation, and batches of jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import click

from tidelog.tools import console
from tidelog.tools.queue.dead.filter import Filter, dead_jobs
from tidelog.tools.queue.dead.ls import table
from tidelog.tools.queue.store import AnyQueue
from tidelog.tools.queue.value import jobs_text

# Dead jobs per call. The queue changes this many in one unit, and between two calls the progress is shown.
BATCH: Final = 100


def rehearse(queue: AnyQueue, ids: Iterable[str], wanted: Filter, verb: str, as_json: bool) -> None:
    """Carry out --dry-run: print the dead jobs that would be `verb` (redriven, purged)."""
    jobs = list(dead_jobs(queue.dead, ids, wanted))
    if as_json:
        chosen = [job.id for job in jobs]
        console.json_object({verb: len(chosen), "dry_run": True, "ids": chosen})
        return
    if jobs:
        table(jobs, None)
    click.echo(f"{jobs_text(len(jobs), 'dead ')} would be {verb}; nothing was changed")


def in_batches(label: str, ids: Sequence[str], call: Callable[[Sequence[str]], int]) -> int:
    """Call `call` with all IDs in batches, with a progress bar. Returns the sum of its results.

    After an interrupt or an error, prints how many jobs were done before it.
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
    """Raise UsageError if --yes is missing and there is no terminal to ask."""
    if not yes and not (sys.stdin and sys.stdin.isatty()):
        raise click.UsageError(
            "there is no terminal to ask for confirmation; repeat the command with --yes"
        )


def agreed(question: str, yes: bool) -> bool:
    """Whether the user agrees, by --yes or by answering the question."""
    if yes or click.confirm(question, err=True):
        return True
    click.echo("Nothing was changed.", err=True)
    return False
