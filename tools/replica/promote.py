"""`tidelog replica promote`: a follower leads from now on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import tidelog
from tidelog.client.address import Address, is_served
from tidelog.store.errors import StoreLocked
from tidelog.tools import console, exits
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.queue.store import Locked
from tidelog.tools.replica.client import ask, is_url, place_of
from tidelog.tools.replica.status import facts_of
from tidelog.tools.text import path_value


@tool_command(
    "tidelog replica promote redis://:$PASSWORD@10.0.0.2",
    "tidelog replica promote orders-data --json | jq .generation",
    codes=exits.CHANGING,
)
@click.argument("place", metavar="PATH|URL")
@json_option()
def command(place: str, as_json: bool) -> None:
    """The server of the store does it, or this command if nobody has the store open. Nothing stops the old leader from
    taking writes: stop it first. In a leader nothing changes.
    """
    at: Any = place_of(place) if is_url(place) else Path(place)
    was = facts_of(at)
    if was["role"] != "leader":
        promote(at)
    now = facts_of(at)
    promoted = was["role"] != "leader"
    old = was["link"]["leader"] if promoted else None
    if as_json:
        facts = {"place": path_value(now["place"]), "role": now["role"], "promoted": promoted}
        console.json_object(facts | {"generation": now["generation"], "old_leader": old})
        return
    if not promoted:
        click.echo(f"{now['place']} leads already: generation {now['generation']}")
        return
    click.echo(f"{now['place']} leads now: generation {now['generation']}")
    click.echo(
        f"If {old} runs, it takes writes, too: stop it, or cut it off from its clients. When it is back, let it "
        f"follow: REPLICAOF {told(at)}, or tidelog serve --replicaof {told(at)}"
    )


def told(at: Address | Path) -> str:
    """The new leader, as a follower is told it."""
    return f"{at.host} {at.port}" if isinstance(at, Address) and at.host else "HOST PORT"


def promote(at: Address | Path) -> None:
    """Have the server promote the store, or do it. Raises Locked, Unreachable, Refused; the store's errors."""
    if isinstance(at, Path):
        root = LogFiles(at).root
        if not is_served(root):
            try:
                with tidelog.open(root) as db:
                    db.promote()
                return
            except StoreLocked as error:
                raise Locked(
                    f"{root} is open for writing by another process, which does not serve it. Stop that process and "
                    "try again, or call db.promote() in it"
                ) from error
        at = Address(root)
    ask(at, b"REPLICAOF", b"NO", b"ONE")
