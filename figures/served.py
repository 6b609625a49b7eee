"""Served: figures of log, checkpoint and replication of an open store. Nothing here waits for the disk."""

from __future__ import annotations

from typing import Any

from tidelog.figures.model import FollowerFigures, LinkFigures, LogFigures, ReplicationFigures
from tidelog.replication.feeds import Feeds
from tidelog.replication.status import Kept, lag_seconds
from tidelog.store.commit.core import Core


def of_log(core: Core) -> LogFigures:
    """The log of an open store."""
    log = core.log
    nbytes, age = log.exposed()
    failure, refusal = log.failure, log.refusal()
    return LogFigures(
        *(log.policy, log.next_lsn - 1, log.written_lsn, log.synced_lsn, nbytes, age),
        None if failure is None else str(failure),
        None if refusal is None else str(refusal),
        bool(log.parked),
    )


def of_checkpoint(core: Core) -> dict[str, Any]:
    """The facts of `store.checkpoints`; empty if the store has none."""
    facts: dict[str, Any] = {} if core.checkpoints is None else core.checkpoints.info()
    return facts


def of_replication(
    core: Core, feeds: Feeds, kept: Kept, follows: bool, now: float
) -> ReplicationFigures:
    """The role and the links of an open store. `now`: the loop's time."""
    last = core.log.next_lsn - 1
    followers = (
        FollowerFigures(
            *(str(link), link.host, link.port, link.feed.acked_lsn, link.feed.fsynced_lsn),
            *(link.feed.lag_bytes(last), link.feed.lag_seconds(now), now - link.feed.heard_at),
        )
        for link in list(feeds)
    )
    return ReplicationFigures(
        *(follows, tuple(followers), kept.retained_bytes, kept.surpluses, kept.surplus_records),
        _of_link(core, now) if follows else None,
    )


def _of_link(core: Core, now: float) -> LinkFigures:
    link = core.link
    if link is None:
        return LinkFigures(False)
    leader = link.follower.leader_lsn
    behind = max(leader - core.log.written_lsn, 0)
    return LinkFigures(link.up, link.failure, leader, behind, lag_seconds(core, now))
