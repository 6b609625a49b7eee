"""`tidelog queue status`: what became of a job, by the ID that `put` returned."""

from __future__ import annotations

from typing import Any, Final

import click

from tidelog.jobs.status import DEAD, JobStatus
from tidelog.tools import console
from tidelog.tools.queue.failures import as_object as failure_object
from tidelog.tools.queue.store import AnyQueue, reads_queue, refusals
from tidelog.tools.queue.value import codec_option, decoded, one_line, progress_text
from tidelog.tools.text import milliseconds, time_text

GONE: Final = "gone"  # the state of a job of which nothing is stored


@reads_queue(
    "tidelog queue status orders-data mails 1700000000001-0",
    "tidelog queue status redis://127.0.0.1:6379 mails 1700000000001-0 --json | jq -r .state",
)
@click.argument("job_id", metavar="ID")
@codec_option("Codec for the result.")
def command(queue: AnyQueue, job_id: str, codec: str, as_json: bool) -> None:
    with refusals():
        found = queue.job(job_id)
    gone: dict[str, Any] = {"id": job_id, "state": GONE}
    facts = gone if found is None else facts_of(found, codec)
    if as_json:
        console.json_object(facts)
        return
    for label, fact in facts.items():
        told = time_text(fact) if label.endswith("_ms") else fact
        if label == "failure":
            told = f"{time_text(fact['at_ms'])} {fact['error']}"
        click.echo(f"{label.removesuffix('_ms'):<12} {one_line(str(told))}")


def facts_of(found: JobStatus, codec: str) -> dict[str, Any]:
    """The facts about a job, by their names; those that it has not are left out."""
    result = None if found.result_raw is None else decoded(found.result_raw, codec)
    come = found.progress
    moved = found.state == DEAD or found.present_id != found.id
    told: dict[str, Any] = {
        **{"id": found.id, "state": found.state, "worker": found.worker},
        "now": found.present_id if moved else None,  # of a dead job, its ID among the dead jobs
        "due_ms": None if found.due_at is None else milliseconds(found.due_at),
        **{"deliveries": found.deliveries or None, "reason": found.reason},
        "progress": None if come is None else progress_text(come),
        "failure": failure_object(found.failures[-1]) if found.failures else None,
        "result": None if result is None else result.plain,
        "undecodable": None if result is None else result.problem,
    }
    return {label: fact for label, fact in told.items() if fact is not None}
