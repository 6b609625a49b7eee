"""`tidelog queue status`: a job by the ID that `put` returned: where it is now, or what became of it.

A delayed job gets another ID when it is due, and a dead one when it is redriven; its entry then names the first ID.
Such a job is looked for in the entries behind that ID, page by page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import click

import tidelog
from tidelog.engine import ids
from tidelog.figures.names import DUE, HOLDS, QueueStreams, due_ms
from tidelog.jobs import rows
from tidelog.jobs.options import job_number
from tidelog.tools.names import queues
from tidelog.tools.places import PLACE, AtPlace, Place
from tidelog.tools.queue.failures import as_object as failure_object
from tidelog.tools.queue.store import AnyStore, Opened, group_option, now_ns, reading
from tidelog.tools.queue.value import CODECS, decoded, one_line
from tidelog.tools.text import examples, milliseconds, time_text

PAGE: Final = 1000  # entries of one call
PAUSES_READ: Final = 100_000  # of the newest records of pauses, as in figures/queues.py
Facts = dict[str, Any]


@click.command(
    cls=AtPlace,
    help="Say where a job is, or what became of it.",
    epilog=examples(
        "tidelog queue status orders-data mails 1700000000001-0",
        "tidelog queue status redis://127.0.0.1:6379 mails 1700000000001-0 --json | jq -r .state",
    ),
)
@click.argument("path", type=PLACE)
@click.argument("name", shell_complete=queues)
@click.argument("job_id", metavar="ID")
@group_option
@click.option(
    "--codec",
    type=click.Choice(CODECS),
    default="json",
    show_default=True,
    help="Codec for the result.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    path: Place, name: str, job_id: str, group: str | None, codec: str, as_json: bool
) -> None:
    try:
        number = job_number(job_id)
    except tidelog.DataError as error:
        raise click.UsageError(str(error)) from None
    with reading(path, name, group) as opened:
        facts = status(opened, QueueStreams(name.encode()), number, codec)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for label, fact in facts.items():
        told = time_text(fact) if label.endswith("_ms") else fact
        if label == "failure":
            told = f"{time_text(fact['at_ms'])} {fact['error']}"
        click.echo(f"{label.removesuffix('_ms'):<12} {one_line(str(told))}")


def status(opened: Opened, keys: QueueStreams, number: int, codec: str) -> Facts:
    """The facts about a job. `state`: scheduled, waiting, in_flight, paused, dead, done or gone.

    done    it left a result, or is kept. gone: it is not stored any more: done, cancelled, expired, or never put
    """
    store, queue = opened
    first = ids.text(number).decode()
    told: Facts = {"id": first}
    result = store.get(keys.result(first.encode()))
    if isinstance(result, bytes):
        value = decoded(result, codec)
        return (
            told
            | {"state": "done", "result": value.plain}
            | ({} if value.problem is None else {"undecodable": value.problem})
        )
    for pending in _pending(store, keys.later, DUE, first):
        due = due_ms(_since(pending))
        # No fetch may have seen yet that it is due.
        state = "scheduled" if due * 1_000_000 > now_ns() else "waiting"
        return told | {"state": state, "due_ms": due}
    for job in queue.dead:
        if first in (job.id, job.original_id):
            dead = {"dead_id": job.id, "died_ms": milliseconds(job.died_at)}
            return told | {
                "state": "dead",
                **dead,
                "deliveries": job.deliveries,
                "reason": job.reason,
            }
    for key, now in _places(store, keys, first):
        told |= {"now": now} if now != first else {}
        told |= _in_lane(opened, key, now)
        for failure in queue.failures(now, 1):
            told |= {"failure": failure_object(failure)}
        return told
    return told | {"state": "gone"}


def _in_lane(opened: Opened, key: bytes, job: str) -> Facts:
    """The facts about a job whose entry is in this stream."""
    store, queue = opened
    group = queue.group.encode()
    for pending in _pending(store, key, group, job):
        worker, deliveries = pending["consumer"], {"deliveries": pending["times_delivered"]}
        if worker:
            held = {"worker": worker.decode(errors="backslashreplace"), "since_ms": _since(pending)}
            return {"state": "in_flight", **held, **deliveries}
        until = _paused_until(store, key, group, ids.parse(job.encode()))
        if until * 1_000_000 > now_ns():
            return {"state": "paused", "until_ms": until, **deliveries}
        return {"state": "waiting", **deliveries}
    for found in store.xinfo_groups(key):
        if found["name"] == group and ids.parse(job.encode()) <= ids.parse(
            found["last-delivered-id"]
        ):
            return {"state": "done"}
    return {"state": "waiting"}


def _pending(store: AnyStore, key: bytes, group: bytes, job: str) -> list[dict[str, Any]]:
    """The pending entry of a job in a group, if there is one."""
    try:
        found: list[dict[str, Any]] = store.xpending_range(key, group, job, job, 1)
    except tidelog.ResponseError:
        return []  # there is no such stream or group
    return found


def _since(pending: dict[str, Any]) -> int:
    """The time of a delivery, unix ms."""
    return now_ns() // 1_000_000 - int(pending["time_since_delivered"])


def _places(store: AnyStore, keys: QueueStreams, first: str) -> Iterator[tuple[bytes, str]]:
    """The streams that have the job, each with its ID there: its first one, or another one whose entry names that."""
    lanes = sorted(keys.jobs)
    for key in lanes:
        if store.xrange(key, first, first):
            yield key, first
    for key in lanes:
        for entry_id, fields in _entries(store, key, first):
            if fields and fields.get(rows.ORIGIN) == first.encode():
                yield key, entry_id.decode()


def _entries(
    store: AnyStore, key: bytes, begin: str, *, reverse: bool = False
) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of a stream from an ID on, or the newest first."""
    edge = "+" if reverse else begin
    while True:
        page = (
            store.xrevrange(key, edge, "-", PAGE) if reverse else store.xrange(key, edge, "+", PAGE)
        )
        yield from page
        if len(page) < PAGE:
            return
        edge = f"({page[-1][0].decode()}"


def _paused_until(store: AnyStore, key: bytes, group: bytes, job: int) -> int:
    """When the pause of a job ends that nobody holds, unix ms; 0 if none is recorded."""
    for _, fields in islice(_entries(store, key + HOLDS, "-", reverse=True), PAUSES_READ):
        found = rows.hold_of(group, tuple(each for pair in fields.items() for each in pair))
        if found is not None and found[0] == job:
            return found[1]
    return 0
