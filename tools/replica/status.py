"""`tidelog replica status`: role, followers, lag and log of stores and servers, and which follower to promote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from tidelog.client.address import Address, is_served
from tidelog.replication.status import of_files, of_role
from tidelog.store import role
from tidelog.tools import console
from tidelog.tools.failed import Refused
from tidelog.tools.heads import LINES, json_option, tool_command
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.replay import contents
from tidelog.tools.replica.client import ask, is_url, place_of
from tidelog.tools.text import path_value, size_text

Facts = dict[str, Any]

HEAD: Final = ("FOLLOWER", "STATE", "WRITTEN", "FSYNCED", "LAG", "BYTES", "SECONDS", "HEARD")
RIGHT: Final = "WRITTEN FSYNCED LAG BYTES SECONDS HEARD"


@tool_command(
    "tidelog replica status orders-data",
    "tidelog replica status redis://:$PASSWORD@10.0.0.2 redis://:$PASSWORD@10.0.0.3",
    "tidelog replica status orders-data --json | jq .generation",
)
@click.argument("places", nargs=-1, required=True, metavar="PATH|URL...")
@json_option(LINES)
def command(places: tuple[str, ...], as_json: bool) -> None:
    """If the leader is gone, name all of its followers. The last line says which of them has most."""
    asked = [place_of(text) if is_url(text) else Path(text) for text in places]
    found = list(map(facts_of, asked))
    for number, facts in enumerate(found):
        if as_json:
            console.json_object(facts | {"place": path_value(facts["place"])})
            continue
        if number:
            click.echo()
        show(facts)
    followers = [facts for facts in found if facts["role"] == "follower"]
    if len(followers) > 1 and not as_json:
        click.echo(f"\n{advice(followers)}")


def facts_of(place: Address | Path) -> Facts:
    """Return the facts of a server or a store. Raises as `server` and `store`."""
    return server(place) if isinstance(place, Address) else store(place)


def server(place: Address) -> Facts:
    """Return the facts of a server. Raises Unreachable, Refused."""
    try:
        told = json.loads(ask(place, b"TIDELOG", b"STATUS"))
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise Refused(f"{place} gave no answer of a tidelog server")
    return {"place": str(place), **told}


def store(path: Path) -> Facts:
    """Return the facts of a store: those of its server, or else what its files hold. Raises as `server`, `LogFiles`."""
    files = LogFiles(path)
    if is_served(files.root):
        return server(Address(files.root)) | {"place": str(path)}
    files.survey()
    found = role.read(files.disk, files.root)
    with contents(files) as state:
        facts = of_role(found, files.uuid, state.state.epoch)
        facts |= {"last_lsn": state.last_lsn}
    return {"place": str(path), **facts, **of_files(files.disk, files.root)}


def advice(followers: list[Facts]) -> str:
    """Return a line that names the follower with the most records."""
    uuids = {facts["uuid"] for facts in followers}
    if len(uuids) > 1:
        return "they follow different stores"
    best = max(followers, key=reached)
    level = [facts["place"] for facts in followers if reached(facts) == reached(best)]
    return f"furthest     {', '.join(level)}: LSN {best['last_lsn']:,} of generation {best['generation']}"


def reached(facts: Facts) -> tuple[int, int, int]:
    """How far a store is: a later life counts before a higher LSN, which another history may have."""
    return facts["generation"], facts["life"], facts["last_lsn"]


def show(facts: Facts) -> None:
    link = facts.get("link")
    # fmt: off
    click.echo(f"place        {facts['place']}")
    leads = _role(facts["role"], link)
    reason = f" ({facts['reason']})" if facts["reason"] else ""
    click.echo(f"role         {leads}{reason}")
    click.echo(f"store        {facts['uuid']}" + (f", copy {facts['id']}" if facts["id"] else ""))
    click.echo(f"newest life  {facts['life']} of generation {facts['generation']}")
    if link is not None and "up" in link:
        show_link(link)
    on_disk = f", on the disk up to {facts['synced_lsn']:,}" if "synced_lsn" in facts else ""
    click.echo(f"last LSN     {facts['last_lsn']:,}{on_disk}")
    click.echo(f"log          from LSN {facts['first_lsn']:,} on, {size_text(facts['log_bytes'])}")
    # fmt: on
    for surplus in facts["surpluses"]:
        figures = (
            f": {surplus['records']:,} records, LSN {surplus['first_lsn']:,} to {surplus['last_lsn']:,}"
            if "records" in surplus
            else ""
        )
        click.echo(f"set aside    {surplus['directory']}{figures}")
    if "followers" not in facts:
        click.echo(
            "followers    only a server knows them, and none serves this store on its socket"
        )
    elif not facts["followers"]:
        click.echo("followers    none is connected")
    else:
        click.echo(f"furthest     {facts['furthest'] or '-'}\n")
        console.table(HEAD, [row(follower) for follower in facts["followers"]], right=RIGHT)


def _role(role: str, link: Facts | None) -> str:
    if link is None:
        return role
    return f"{role} {'of' if role == 'follower' else 'to'} {link['leader']}"


def show_link(link: Facts) -> None:
    if link["up"]:
        lag = link["lag_lsn"]
        click.echo(f"link         up, {lag:,} records and {link['lag_seconds']:.1f} s behind")
    else:
        down = link["down_seconds"]
        for_so_long = "" if down is None else f" for {down:.1f} s"
        why = f": {link['failure']}" if link["failure"] else ""
        click.echo(f"link         down{for_so_long}{why}")
    if link["copying"]:
        click.echo(f"copy         {link['copying']}")
    if link.get("stalled"):
        click.echo(f"stalled      {link['stalled']}")


def row(follower: Facts) -> tuple[str, ...]:
    """One follower for people."""
    if "written_lsn" not in follower:
        return follower["address"], follower["state"], *["-"] * 6
    nbytes = follower["lag_bytes"]
    return (
        follower["address"],
        follower["state"],
        f"{follower['written_lsn']:,}",
        f"{follower['fsynced_lsn']:,}",
        f"{follower['lag_lsn']:,}",
        "-" if nbytes is None else size_text(nbytes),
        f"{follower['lag_seconds']:.1f}",
        f"{follower['heard_seconds']:.1f}",
    )
