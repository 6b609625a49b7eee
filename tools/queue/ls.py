"""`tidelog queue ls`: one line per queue and group."""

from __future__ import annotations

from tidelog.tools import console
from tidelog.tools.heads import LINES
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.looks import as_object, cells
from tidelog.tools.queue.store import looked, now_ns, opened
from tidelog.tools.top.words import QUEUE_HEAD


@at_path_or_url(
    "tidelog queue ls orders-data",
    "tidelog queue ls orders-data --json | jq 'select(.dead > 0)'",
    json=LINES,
)
def command(path: PathOrUrl, as_json: bool) -> None:
    with opened(path) as store:
        rows, at_ms = looked(store), now_ns() // 1_000_000
    if as_json:
        console.objects(as_object(row, at_ms) for row in rows)
    else:
        told = [cells(row, at_ms) for row in rows]
        console.table(QUEUE_HEAD, told, right=" ".join(QUEUE_HEAD[2:]))
