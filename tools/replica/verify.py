"""`tidelog replica verify`: whether a follower holds the same data as its leader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from tidelog.client.address import PORT, Address
from tidelog.replication.verify import FrameEnd
from tidelog.snapshot.digested import Digesting, NotDigested
from tidelog.store import role
from tidelog.tools import console, exits
from tidelog.tools.failed import Failed, Refused
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.replica.client import ask, is_url, place_of
from tidelog.tools.text import path_value

TIMEOUT_S: Final = 6 * 3600.0


class Differs(Failed):
    """The data is not the same."""

    exit_code = exits.VERIFY_AGREEMENT


@tool_command(
    "tidelog replica verify redis://:$PASSWORD@10.0.0.2:6379",
    "tidelog replica verify orders-copy --leader redis://:$PASSWORD@10.0.0.1:6379",
    codes=(*exits.READING, exits.VERIFY_AGREEMENT),
)
@click.argument("place", metavar="PATH|URL")
@click.option(
    "--leader",
    metavar="URL",
    help="For a PATH: the server of the leader. Default: the address that the store follows.",
)
@json_option("Print one JSON object if they are the same.")
def command(place: str, leader: str | None, as_json: bool) -> None:
    """A server compares its own data. Of a PATH, this command reads the files, and asks the leader's server."""
    if is_url(place):
        if leader is not None:
            raise click.UsageError("--leader is for a PATH: a server knows its leader")
        name, lsn = str(place_of(place)), served(place_of(place))
    else:
        name, lsn = place, files(Path(place), None if leader is None else place_of(leader))
    facts = {"place": path_value(name), "same": True, "lsn": lsn}
    console.told(as_json, facts, f"{name} and its leader hold the same data at LSN {lsn:,}")


def served(place: Address) -> int:
    """The LSN at which a follower's server found the same data. Raises Differs, Unreachable, Refused."""
    try:
        reply = ask(place, b"TIDELOG", b"VERIFY", timeout=TIMEOUT_S).decode(errors="replace")
    except Refused as error:
        if "refused: DIFFERENT " in str(error):
            raise Differs(str(error).replace("refused: DIFFERENT ", "says: ")) from None
        raise
    found = re.fullmatch("SAME ([0-9]+)", reply)
    if found is None:
        raise Refused(f"{place} gave no answer of a tidelog server")
    return int(found[1])


def files(path: Path, leader: Address | None) -> int:
    """Compare the files of a store, which a process may be writing. Returns the LSN.

    Raises Differs, Unreachable, Refused.
    """
    store = LogFiles(path)
    store.survey()
    if leader is None:
        followed = role.read(store.disk, store.root)
        if not followed.follows:
            raise Refused(f"{path} follows no leader; name one with --leader")
        leader = Address(host=followed.host, port=followed.port or PORT)
    try:
        found = Digesting(store.disk, store.root).result()
    except NotDigested as error:
        raise Refused(f"{path}: {error}") from None
    if not found.lsn:
        raise Refused(f"{path} is empty")
    try:
        words = FrameEnd(found.lsn, found.crc).words()
        reply = ask(leader, *words, timeout=TIMEOUT_S).decode(errors="replace")
    except Refused as error:
        if "refused: PARTED " in str(error):
            raise Differs(f"{path} and {leader} have different logs: {error}") from None
        if "refused: BEYOND " in str(error):
            raise Refused(
                f"{path} ends with LSN {found.lsn}, and {leader} can no longer tell its state there, since its "
                "checkpoint holds more; let the follower catch up, and repeat the command"
            ) from None
        raise
    if reply != f"DIGEST {found.lsn} {found.digest}":
        raise Differs(f"{path} and {leader} hold different data at LSN {found.lsn}")
    return found.lsn
