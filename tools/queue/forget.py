"""`tidelog queue forget`: free a dedup ID, from the command line."""

from __future__ import annotations

import click

from tidelog.tools import console, exits
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.store import on_queue, writing


@on_queue(
    "tidelog queue forget orders-data mails order-7",
    "tidelog queue forget redis://127.0.0.1:6379 mails order-7",
    codes=exits.CHANGING,
)
@click.argument("dedup_id", metavar="ID")
def command(path: PathOrUrl, name: str, dedup_id: str, group: str | None, as_json: bool) -> None:
    with writing(path, name, group, "queue.forget()") as queue:
        known = queue.forget(dedup_id)
    console.told(as_json, {"forgotten": int(known)}, "1 ID is free" if known else "the ID was free")
