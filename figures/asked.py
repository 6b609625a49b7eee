"""Asked: figures out of the replies of a server, tidelog's or another Redis: XINFO, XPENDING and QUEUE STATS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from tidelog.figures.model import ConsumerFigures, GroupFigures, QueueFigures
from tidelog.figures.names import due_ms, has_due_times, is_helper, jobs_of
from tidelog.jobs.verbs.stats import MORE

ALIVE_MS: Final = 600_000  # a worker that asked for jobs within this time is alive


def pairs(reply: list[Any] | dict[bytes, Any]) -> dict[bytes, Any]:
    """A map of a reply, which may come as a flat list of names and values."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def is_helper_told(key: bytes, first: Any, there: bool) -> bool:
    """Whether a stream is one that queues keep for themselves, by the `first-entry` of its XINFO STREAM.

    there    as for `is_helper`
    """
    return is_helper(key, first[1] if first else None, there)


def group_told(
    key: bytes,
    group: dict[bytes, Any],
    oldest: int | None,
    consumers: list[dict[bytes, Any]] | None = None,
) -> GroupFigures:
    """A group by its item of XINFO GROUPS, the time of its oldest delivery, and its XINFO CONSUMERS."""
    due = oldest is not None and has_due_times(key, group[b"name"])
    return GroupFigures(
        group[b"name"],
        group[b"last-delivered-id"].decode(),
        group.get(b"entries-read"),
        group.get(b"lag"),
        group[b"pending"],
        None if due else oldest,
        group[b"consumers"],
        due_ms(oldest) if due and oldest is not None else None,
        tuple(
            ConsumerFigures(one[b"name"], one[b"pending"], one[b"idle"]) for one in consumers or ()
        ),
    )


def queues_told(
    ask: Callable[..., list[Any]], db: int, names: Iterable[Sequence[bytes]], *, rates: bool = False
) -> list[QueueFigures]:
    """Queues of a tidelog server by QUEUE STATS.

    ask      sends commands and returns their replies; an error is among them as an exception
    names    (name, group), as QUEUE LIST tells them
    rates    also what was ever put, by XINFO STREAM, from which two looks have rates
    """
    known = list(names)
    once = dict.fromkeys(name for name, _ in known)
    stats = [(b"QUEUE", b"STATS", name, b"GROUP", group) for name, group in known]
    told = ask(
        *((*each, b"MORE") for each in stats),
        *((b"QUEUE", b"PAUSED", name) for name in once),  # version 0.1 refuses it, and pauses none
    )
    replies, stopped = told[: len(known)], dict(zip(once, told[len(known) :], strict=True))
    refused = [at for at, reply in enumerate(replies) if isinstance(reply, Exception)]
    for at, reply in zip(refused, ask(*(stats[at] for at in refused)), strict=True):
        replies[at] = reply  # version 0.1 does not know MORE
    at_ms = time.time_ns() // 1_000_000
    lanes = [jobs_of(name) if rates else [] for name, _ in known]
    infos = iter(ask(*((b"XINFO", b"STREAM", key) for keys in lanes for key in keys)))
    found = []
    for (name, group), keys, reply in zip(known, lanes, replies, strict=True):
        streams = [info for info in islice(infos, len(keys)) if not isinstance(info, Exception)]
        put = sum(pairs(stream)[b"entries-added"] for stream in streams)
        if not isinstance(reply, Exception):  # it was deleted meanwhile
            ms = stopped[name] if isinstance(stopped[name], int) else None
            row = _queue_told(db, name, group, pairs(reply), at_ms, put)
            found.append(replace(row, stopped_ms=ms))
    return found


def _queue_told(
    db: int, key: bytes, group: bytes, stats: dict[bytes, Any], at_ms: int, put: int
) -> QueueFigures:
    seconds, in_flight, ranks = (
        stats[name] for name in (b"oldest_seconds", b"in_flight", b"by_priority")
    )
    put_per_s, left_per_s = (stats[name] for name in (b"put_per_second", b"done_per_second"))
    return QueueFigures(
        *(db, key, group, stats[b"depth"], stats[b"waiting"], sum(in_flight[1::2])),
        *(stats[b"paused"], stats[b"dead"]),
        None if seconds is None else at_ms - round(float(seconds) * 1000),
        *(stats[b"failures"], stats[b"scheduled"], stats[b"kept"]),
        held=tuple(sorted(pairs(in_flight).items())),
        by_priority=tuple((int(rank), count) for rank, count in pairs(ranks).items()),
        put=put,
        left=max(0, put - stats[b"depth"]),
        **{name: stats.get(name.encode(), 0) for name in MORE},
        put_per_s=None if put_per_s is None else float(put_per_s),
        left_per_s=None if left_per_s is None else float(left_per_s),
    )
