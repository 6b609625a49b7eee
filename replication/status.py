"""Status: what a store tells of its role, its followers, their lag and its log. `tidelog replica status` prints it.

    role          leader, follower, or handing over (to link.leader); reason: why
    uuid, id      of the store, and of this copy of it; `id` is empty until the store first follows
    generation    of the newest life in the log; life: its number in that generation
    last_lsn      of the newest record; synced_lsn: of the newest record that is certainly on the disk
    first_lsn     of the oldest record in the log; log_bytes: of all segments, prepared space included
    surpluses     what was set aside in quarantine/: directory; first_lsn, last_lsn and records if it has a report

Of an open store also

    followers     those that are connected: address, state, written_lsn, fsynced_lsn, lag_lsn, lag_bytes (None if the
                  log no longer has the place), lag_seconds, heard_seconds
    furthest      the address of the follower to promote: no other one has more. None if there is no follower
    link          of a follower to its leader: leader, up, down_seconds, failure, leader_lsn, lag_lsn, lag_seconds,
                  stalled; copying: the phase of a resync, or ""
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.aof import epochs, identity
from tidelog.aof.errors import AofError
from tidelog.aof.reading.reader import segment_paths
from tidelog.aof.seek import Source, position_after
from tidelog.aof.surplus import REPORT
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.replication.feeds import Downstream, Feeds
from tidelog.store.commit.core import Core
from tidelog.store.keepers import Pin
from tidelog.store.role import Role

Facts = dict[str, Any]
# a follower writes no longer report
REPORT_BYTES_MAX: Final = 16 << 20


class Kept(NamedTuple):
    """Figures of what replication keeps on the disk.

    retained_bytes    of the segments that followers need, also those that are away
    surpluses         directories in quarantine/ with records that were given up, or with a whole store
    surplus_records   in them, as their reports say
    pins              the log that the checkpoint no longer needs, and who does
    """

    retained_bytes: int = 0
    surpluses: int = 0
    surplus_records: int = 0
    pins: tuple[Pin, ...] = ()


def of_role(role: Role, uuid: bytes, epoch: int) -> Facts:
    """Return the facts of the identity and role. `epoch`: the number of the newest life in the log."""
    told: Facts = {
        "role": role.kind,
        "reason": role.reason,
        "uuid": uuid.hex(),
        "id": role.id,
        "generation": epochs.generation(epoch),
        "life": epochs.counter(epoch),
    }
    if role.follows:
        told["link"] = {"leader": _address(role.host, role.port)}
    return told


def of_files(disk: Disk, root: Path) -> Facts:
    """Return the facts that the directory of a store holds. Raises AofError, OSError."""
    paths = segment_paths(disk, root / identity.AOF)
    nbytes = 0
    for path in paths:
        try:
            nbytes += recipe.size(disk, path)
        except FileNotFoundError:
            continue  # released meanwhile
    return {
        "first_lsn": int(paths[0].stem) if paths else 1,
        "log_bytes": nbytes,
        "surpluses": surpluses(disk, root),
    }


def surpluses(disk: Disk, root: Path) -> list[Facts]:
    """Return what was set aside in quarantine/. Raises OSError."""
    quarantine = root / identity.QUARANTINE
    found: list[Facts] = []
    for name in sorted(disk.listdir(quarantine)) if disk.exists(quarantine) else ():
        if name.startswith("store."):
            found.append({"directory": f"{quarantine.name}/{name}"})
        elif disk.exists(quarantine / name / REPORT):
            figures = _figures(recipe.read(disk, quarantine / name / REPORT, REPORT_BYTES_MAX))
            found.append({"directory": f"{quarantine.name}/{name}", **figures})
    return found


def _figures(report: bytes) -> Facts:
    """Return the figures in a report; none if somebody has changed it."""
    try:
        told = json.loads(report)
        return {name: int(told[name]) for name in ("first_lsn", "last_lsn", "records")}
    except (ValueError, KeyError, TypeError):
        return {}


def of_open(core: Core, feeds: Feeds, fetching: list[str], now: float) -> Callable[[], Facts]:
    """Gather the facts of an open store. Called in the loop's thread.

    Returns a function that completes the facts from the disk: call it in a thread. It raises AofError, OSError.

    fetching    the followers that get a copy of the data
    """
    roles, log = core.roles, core.log
    assert roles is not None  # a store that is open read-only has no role
    last = log.next_lsn - 1
    told = of_role(roles.role, roles.uuid, core.state.epoch)
    told |= {"last_lsn": last, "synced_lsn": log.synced_lsn}
    links = list(feeds)
    followers = [_follower(each, last, now) for each in links]
    reached = [each.feed.acked_lsn for each in links]
    furthest = max(links, key=_reached) if links else None
    told["furthest"] = None if furthest is None else str(furthest)
    if roles.role.follows:
        told["link"] |= _link(core, now)

    def complete() -> Facts:
        for follower, lsn in zip(followers, reached, strict=True):
            follower["lag_bytes"] = _bytes_behind(core, lsn)
        copying = [{"address": name, "state": "fetching a copy"} for name in fetching]
        return {**told, **of_files(roles.disk, core.root), "followers": [*followers, *copying]}

    return complete


def _reached(link: Downstream) -> tuple[int, int]:
    return link.feed.acked_lsn, link.feed.fsynced_lsn


def _follower(link: Downstream, last: int, now: float) -> Facts:
    feed = link.feed
    return {
        "address": str(link),
        "state": "online",
        "written_lsn": feed.acked_lsn,
        "fsynced_lsn": feed.fsynced_lsn,
        "lag_lsn": last - feed.acked_lsn,
        "lag_seconds": round(feed.lag_seconds(now), 3),
        "heard_seconds": round(now - feed.heard_at, 3),
    }


def _bytes_behind(core: Core, lsn: int) -> int | None:
    roles = core.roles
    assert roles is not None
    directory = core.root / identity.AOF
    try:
        position = position_after(roles.disk, directory, roles.uuid, lsn)
    except AofError:
        return None  # released, or it is being written
    if position is None:
        return None
    return Source(roles.disk, directory, roles.uuid, position).lag_bytes(
        core.log.good(core.durability.level())
    )


def lag_seconds(core: Core, now: float) -> float:
    """Return for how long a follower has lacked something that its leader had; 0 if it has everything.

    While the link is down, that is unknown. So it is the time since the follower last had everything.
    """
    link = core.link
    if link is None:
        return 0.0
    heard = link.follower
    late = not link.up or heard.leader_lsn > core.log.written_lsn
    return max(now - heard.even_at, 0.0) if late and heard.even_at else 0.0


def _link(core: Core, now: float) -> Facts:
    link, lsn = core.link, core.log.written_lsn
    if link is None:
        return {"up": False, "down_seconds": None, "failure": "", "copying": ""}
    heard, copy = link.follower, link.resyncing
    return {
        "up": link.up,
        "down_seconds": None if link.down_since is None else round(now - link.down_since, 3),
        "failure": link.failure,
        "leader_lsn": heard.leader_lsn,
        "lag_lsn": max(heard.leader_lsn - lsn, 0),
        "lag_seconds": round(lag_seconds(core, now), 3),
        "stalled": heard.stalled,
        "copying": "" if copy is None else copy.phase,
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
