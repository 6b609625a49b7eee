"""`tidelog doctor`: what of a store or a server is not as production recommends, each with what to do."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import tidelog
from tidelog.aof import segment
from tidelog.aof.errors import Damage
from tidelog.client.address import is_served
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.modes import open_to_others
from tidelog.engine.keys.state import DATABASES, State
from tidelog.figures.advice import OLDEST_S, Facts, findings
from tidelog.figures.asked import ALIVE_MS, pairs
from tidelog.figures.model import QueueFigures
from tidelog.figures.names import jobs_of
from tidelog.figures.queues import in_state
from tidelog.figures.streams import stream_at
from tidelog.replication.handshake import EACH_OTHER
from tidelog.replication.status import surpluses
from tidelog.resp.urls import shown
from tidelog.server.config.config import ConfigError
from tidelog.server.config.options import OPTIONS
from tidelog.server.config.stored import Stored, checked
from tidelog.snapshot.portable import Unreadable, snapshots
from tidelog.store import role
from tidelog.store.clock import SYSTEM
from tidelog.store.lifetime import close
from tidelog.store.read_only import open_read_only
from tidelog.tools import console, exits
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.path_or_url import PATH_OR_URL, PathOrUrl
from tidelog.tools.queue.store import looked
from tidelog.tools.snapshot.facts import snapshots_of
from tidelog.tools.text import path_value
from tidelog.tools.times import duration


@tool_command(
    "tidelog doctor orders-data; echo $?",
    "tidelog doctor redis://127.0.0.1:6379 --oldest 5m",
    "tidelog doctor orders-data --json | jq -r '.findings[].finding'",
    codes=(*exits.READING, exits.ADVICE),
)
@click.argument("place", metavar="PATH|URL", type=PATH_OR_URL)
@duration(
    "--oldest",
    default=OLDEST_S,
    show_default=True,
    help="Age from which a waiting job counts as late.",
)
@json_option()
def command(place: PathOrUrl, oldest: float, as_json: bool) -> int:
    found = findings(of_server(place) if isinstance(place, str) else of_files(place), oldest)
    if as_json:
        told = [{"finding": each.name, "text": each.text, "todo": each.todo} for each in found]
        console.json_object({"place": path_value(shown(str(place))), "findings": told})
    else:
        for each in found:
            click.echo(f"{each.name:<22} {each.text}\n{'':<22} {each.todo}")
        if not found:
            click.echo("nothing to advise")
    return exits.ADVICE if found else exits.OK


def of_files(path: Path) -> Facts:
    """The facts in the files of a store; if a process serves it, also those of the process."""
    files = LogFiles(path)
    disk, root = files.disk, files.root
    told = of_server(root) if is_served(root) else Facts(now_ms=time.time_ns() // 1_000_000)
    kept = snapshots(disk, snapshots_of(disk, path))
    made = [each.manifest.created_ms for each in kept if not isinstance(each, Unreadable)]
    age = (told.now_ms - max(made)) / 1000 if made else float("inf")
    broken = [str(each.error) for each in kept if isinstance(each, Unreadable)]
    told = replace(
        told,
        snapshot_age_s=age,
        readable=open_to_others(root),
        free=disk.free(root),
        capacity=disk.capacity(root),
        surpluses=len(surpluses(disk, root)),
        damage=told.damage or (broken[0] if broken else None),
    )
    try:
        stale, now = _stale(files)
        told = replace(told, stale_leader=stale, role=now)
        _, found = files.survey()
        heads = ((each.path.name, _head(disk, each.path)) for each in found)
        older = [name for name, head in heads if segment.version_of(head) < segment.VERSION]
        core = open_read_only(disk, root, SYSTEM)
    except Damage as error:
        return replace(told, damage=told.damage or str(error))
    try:
        opened = core.beneath.opened
        folded = 0 if opened is None else opened.meta.position.lsn
        behind = sum(disk_size for lsn, disk_size in _sizes(files) if lsn > folded)
        queues = told.queues or tuple(core.look(lambda state: _queues(state, told.now_ms))[0])
    finally:
        close(core)
    if told.behind_bytes is not None:
        behind = told.behind_bytes
    return replace(told, older=tuple(older), behind_bytes=behind, queues=queues)


def _stale(files: LogFiles) -> tuple[str, str]:
    """The leader that tidelog.toml names, and the role of the store, if that is another one since; else empty texts.

    Raises Damage.
    """
    now, file = role.read(files.disk, files.root), Stored(files.root)
    try:
        found, _ = checked(file.path, file.text() or b"")
    except ConfigError:
        return "", ""  # the server says what is wrong with the file
    told = OPTIONS["replicaof"].kind.native(found.get("replicaof", ""))
    if not told or not now.reason or now.hands_over or told == f"{now.host} {now.port}":
        return "", ""
    does = f"follows {now.host}:{now.port}" if now.follows else "leads"
    return told.replace(" ", ":"), does


def _head(disk: Disk, path: Path) -> bytes:
    with closing(disk.open(path)) as file:
        return file.pread(segment.HEADER_BYTES, 0)


def _sizes(files: LogFiles) -> list[tuple[int, int]]:
    """The last LSN that may be in each segment, and its bytes."""
    paths = files.paths()
    firsts = [int(path.stem) for path in paths]
    lasts = [*(first - 1 for first in firsts[1:]), 1 << 63]
    # A store without a segment has no last one.
    return [(last, recipe.size(files.disk, path)) for last, path in zip(lasts, paths, strict=False)]


def _queues(state: State, now: int) -> list[QueueFigures]:
    """The queues of all databases, with the workers that were seen lately."""
    return [
        replace(row, workers=_seen(state, row, now))
        for row in in_state(state, range(DATABASES), now)
    ]


def _seen(state: State, row: QueueFigures, now: int) -> int:
    streams = (stream_at(state, (row.db, key)) for key in jobs_of(row.key))
    groups = (stream.groups.get(row.group or b"") for stream in streams if stream is not None)
    return sum(
        one.seen_time > now - ALIVE_MS
        for group in groups
        if group is not None
        for one in group.listed()
    )


def of_server(place: str | Path) -> Facts:
    """The facts that a server tells by its own commands. Raises as `tidelog.connect`."""
    with tidelog.connect(place) as store:
        ask = store.execute_command
        lines = _text(ask("INFO")).splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        told = pairs(ask("CONFIG", "GET", "*"))
        config = {_text(name): _text(value) for name, value in told.items()}
        now = time.time_ns() // 1_000_000
        queues = [
            replace(row, workers=_alive(ask, row.key, row.group or b"") if row.waiting else 1)
            for row in looked(store)
        ]
    lags = [
        float(part.removeprefix("behind="))
        for name, value in info.items()
        if name.startswith("slave") and "state=online" in value
        for part in value.split(",")
        if part.startswith("behind=")
    ]
    follows = info.get("role") == "slave"
    port, tls = int(config.get("port", 0)), int(config.get("tls-port", 0))
    return Facts(
        fsync=info.get("fsync"),
        failure=info.get("failure") or None,
        refusal=info.get("refusal") or None,
        snapshot_every=int(config.get("snapshot-every", 0)),
        behind_bytes=int(info.get("bytes_since_checkpoint") or 0),
        checkpoint_failure=info.get("checkpoint_failure") or None,
        followers=len(lags),
        follower_lag_s=max(lags, default=None),
        link_up=info.get("master_link_status") == "up" if follows else None,
        link_failure=info.get("master_link_failure", ""),
        each_other=info.get("master_link_failure", "").endswith(EACH_OTHER),
        link_lag_s=float(info.get("slave_lag_seconds") or 0) if follows else None,
        metrics_port=int(config.get("metrics-port", 0)),
        disk_bytes=int(info["disk_bytes"]) if info.get("disk_bytes") else None,
        maxdisk=int(config["maxdisk"]) if "maxdisk" in config else None,
        listens=tuple(config.get("bind", "").split()) if port or tls else (),
        password=bool(config.get("requirepass")),
        tls=bool(tls) and not port,
        surpluses=int(info.get("surpluses") or 0),
        queues=tuple(queues),
        now_ms=now,
    )


def _alive(ask: Any, name: bytes, group: bytes) -> int:
    """How many workers of a queue asked for jobs lately, or wait for some."""
    try:
        told = ask("XINFO", "CONSUMERS", name, group)
    except tidelog.ResponseError:
        return 0
    return sum(pairs(each)[b"idle"] < ALIVE_MS for each in told)


def _text(raw: Any) -> str:
    return raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else str(raw)
