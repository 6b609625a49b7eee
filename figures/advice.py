"""Advice: what of a store is not as production recommends. `tidelog doctor` prints it.

Pure: facts in, findings out. None is a fact that the source does not know, and gives no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.figures.model import QueueFigures
from tidelog.store.sizes import size_text

SNAPSHOT_AGE_S: Final = 2 * 86_400.0  # a backup that is older is none
LAG_S: Final = 10.0
# of the log behind the checkpoint: the next start reads them all
BEHIND_BYTES: Final = 1 << 30
OLDEST_S: Final = 900.0
FREE_SHARE: Final = 0.1
QUOTA_SHARE: Final = 0.9
OTHERS_SHARE: Final = 0.1  # of the disk
LOOPBACK: Final = frozenset(("127.0.0.1", "-::1", "::1", "localhost"))


@dataclass(frozen=True, slots=True)
class Facts:
    """The known facts of a store.

    fsync            the policy; `failure`, `refusal`: as in LogFigures
    snapshot_every   seconds between automatic snapshots; 0 = none
    snapshot_age_s   of the newest snapshot in the store; infinite if there is none
    follower_lag_s   of the follower that is furthest behind; followers: how many there are
    link_up          of a follower; link_lag_s: how far it is behind
    metrics_port     0 = none
    listens          addresses of TCP; password: whether one is needed; tls: whether that port speaks TLS
    disk_bytes       that the store has; maxdisk: its quota, 0 = none
    capacity, free   bytes of the file system that holds the store
    readable         permission bits of the group and of others on the directory
    older            files that an older release wrote in its format
    damage           what of the files cannot be right
    surpluses        sets of records in quarantine/
    queues           with the age of the oldest job and the workers, as far as these are known
    link_failure     why the link is down; each_other: since the leader follows this store
    stale_leader     the leader that tidelog.toml names, if the store has another role; role: that one, in words
    """

    fsync: str | None = None
    failure: str | None = None
    refusal: str | None = None
    snapshot_every: int | None = None
    snapshot_age_s: float | None = None
    behind_bytes: int | None = None
    checkpoint_failure: str | None = None
    followers: int | None = None
    follower_lag_s: float | None = None
    link_up: bool | None = None
    link_lag_s: float | None = None
    metrics_port: int | None = None
    listens: tuple[str, ...] = ()
    password: bool | None = None
    tls: bool = False
    disk_bytes: int | None = None
    maxdisk: int | None = None
    capacity: int | None = None
    free: int | None = None
    readable: int | None = None
    older: tuple[str, ...] = ()
    damage: str | None = None
    surpluses: int | None = None
    queues: tuple[QueueFigures, ...] = ()
    now_ms: int = 0
    link_failure: str = ""
    each_other: bool = False
    stale_leader: str = ""
    role: str = ""


class Finding(NamedTuple):
    """Something to change: its short name, what is so, and the sentence what to do."""

    name: str
    text: str
    todo: str


def findings(facts: Facts, oldest_s: float = OLDEST_S) -> list[Finding]:
    """The parts of a store that are not as recommended, the gravest first.

    `oldest_s`: from what age on a waiting job is late.
    """
    return [
        *_of_log(facts),
        *_of_disk(facts),
        *_of_files(facts),
        *_of_backup(facts),
        *_of_quota(facts),
        *_of_replication(facts),
        *_of_server(facts),
        *_of_queues(facts, oldest_s),
    ]


def _of_log(facts: Facts) -> Iterator[Finding]:
    if facts.failure:
        text = f"The log failed, and no write is possible any more: {facts.failure}."
        yield Finding("log-failed", text, "Mend the disk, then start the process again.")
    if facts.refusal:
        text = f"Writes are refused: {facts.refusal}."
        yield Finding("writes-refused", text, "Make room on the disk.")
    if facts.damage:
        text = f"Files of the store are damaged: {facts.damage}."
        yield Finding(
            "damaged", text, "Run `tidelog verify`, and restore a backup or run `tidelog repair`."
        )
    if facts.fsync not in (None, "always"):
        text = (
            f"The fsync policy is {facts.fsync}, so a power cut takes what was acknowledged last."
        )
        yield Finding(
            "fsync",
            text,
            'Set `appendfsync` to always, or ask for `at("fsynced")` where it matters.',
        )


def _of_disk(facts: Facts) -> Iterator[Finding]:
    free, capacity = facts.free, facts.capacity
    if free is not None and capacity and free / capacity < FREE_SHARE:
        text = f"Only {free / capacity:.0%} of the disk are free."
        yield Finding(
            "disk", text, "Make room before writes are refused, or move the store to a larger disk."
        )
    used, quota = facts.disk_bytes, facts.maxdisk
    if used is not None and quota and used >= QUOTA_SHARE * quota:
        text = f"The store has {size_text(used)}, and at its quota (maxdisk) of {size_text(quota)} it refuses puts."
        yield Finding("quota", text, "Trim, purge or delete snapshots, or raise `maxdisk`.")


def _of_files(facts: Facts) -> Iterator[Finding]:
    if facts.readable:
        text = (
            f"Others than the owner may look into the directory (mode bits {facts.readable:03o})."
        )
        yield Finding(
            "readable", text, "Run `chmod 700` on it: the log holds every value that was written."
        )
    if facts.older:
        text = f"Files are in the format of an older release: {', '.join(facts.older)}."
        yield Finding(
            "old-format",
            text,
            "Let the store make a checkpoint with this release (`SAVE`), after a backup.",
        )
    if facts.checkpoint_failure:
        text = f"The last checkpoint failed: {facts.checkpoint_failure}."
        yield Finding(
            "checkpoint-failed", text, "Look into the log of the process, and run `tidelog verify`."
        )
    if facts.behind_bytes is not None and facts.behind_bytes >= BEHIND_BYTES:
        text = f"{facts.behind_bytes / (1 << 30):.1f} GiB of log lie behind the last checkpoint, so a start takes long."
        yield Finding(
            "log-behind-checkpoint",
            text,
            "Set `save` or `checkpoint-bytes` again, or run `SAVE` now.",
        )
    if facts.surpluses:
        text = f"{facts.surpluses} sets of records lie in quarantine/: a leader did not have them."
        yield Finding("surpluses", text, "Read them with `tidelog aof dump`, then delete them.")


def _of_backup(facts: Facts) -> Iterator[Finding]:
    if facts.snapshot_every == 0:
        text = "No automatic snapshots are made."
        yield Finding("no-snapshots", text, "Set `snapshot-every` and `keep-snapshots`.")
    age = facts.snapshot_age_s
    if age is not None and age > SNAPSHOT_AGE_S:
        text = (
            "The store has no snapshot."
            if age == float("inf")
            else f"The newest snapshot is {age / 86_400:.0f} days old."
        )
        todo = "Run `tidelog snapshot create` each day, and `tidelog snapshot copy` to another machine."
        yield Finding("no-backup", text, todo)


def _of_quota(facts: Facts) -> Iterator[Finding]:
    used, quota, free, capacity = facts.disk_bytes, facts.maxdisk, facts.free, facts.capacity
    if used is None or quota is None or free is None or capacity is None:
        return
    room = used + free
    if quota > room:
        text = f"The quota (maxdisk) is {size_text(quota)}, but the disk has room for {size_text(room)} of the store."
        yield Finding("quota-too-large", text, "Set `maxdisk` to less, or make room on the disk.")
    elif not quota and capacity - room > OTHERS_SHARE * capacity:
        text = f"Others have {size_text(capacity - room)} on the disk, and the store may fill the rest."
        yield Finding("no-quota", text, "Set `maxdisk` to what the store may have.")


def _of_replication(facts: Facts) -> Iterator[Finding]:
    if facts.follower_lag_s is not None and facts.follower_lag_s > LAG_S:
        text = f"A follower is {facts.follower_lag_s:.0f} s behind."
        yield Finding(
            "follower-lag",
            text,
            "See `tidelog replica status`: its disk or the network is too slow.",
        )
    if facts.stale_leader:
        text = f"tidelog.toml says to follow {facts.stale_leader}, and the store {facts.role}."
        todo = "Run `tidelog config PATH unset replicaof`: a restored copy has no role yet, and would follow."
        yield Finding("stale-replicaof", text, todo)
    if facts.each_other:
        text = "This store and its leader follow each other, so nobody leads and no write is taken."
        todo = "Compare both by `tidelog replica status`, and send REPLICAOF NO ONE to the one that has more."
        yield Finding("follow-each-other", text, todo)
    elif facts.link_up is False:
        why = f": {facts.link_failure}" if facts.link_failure else ""
        text = f"The link to the leader is down{why}."
        yield Finding(
            "link-down",
            text,
            "See `tidelog replica status`; promote this follower if the leader is gone.",
        )
    elif facts.link_lag_s is not None and facts.link_lag_s > LAG_S:
        text = f"This follower is {facts.link_lag_s:.0f} s behind its leader."
        yield Finding(
            "follower-lag",
            text,
            "See `tidelog replica status`: its disk or the network is too slow.",
        )


def _of_server(facts: Facts) -> Iterator[Finding]:
    if facts.metrics_port == 0:
        text = "The process has no /metrics and no /health."
        yield Finding("no-metrics", text, "Set `metrics-port`, and let Prometheus scrape it.")
    outside = [each for each in facts.listens if each not in LOOPBACK]
    if outside and facts.password is False:
        text = (
            f"Everybody who reaches {', '.join(outside)} may do everything: no password is needed."
        )
        yield Finding("no-password", text, "Set `requirepass`, or users by ACL SETUSER.")
    elif outside and not facts.tls:
        text = f"Passwords and values cross the network in the clear at {', '.join(outside)}."
        yield Finding("no-tls", text, "Set `tls-port` with a certificate, and `port` to 0.")


def _of_queues(facts: Facts, oldest_s: float) -> Iterator[Finding]:
    told: set[tuple[int, bytes]] = set()
    for row in facts.queues:
        name = row.key.decode("utf-8", "backslashreplace")
        if row.dead and (row.db, row.key) not in told:
            told.add((row.db, row.key))
            text = f"Dead jobs of the queue {name}: {row.dead:,}."
            todo = "Look at them with `tidelog queue dead ls`, then redrive or purge them."
            yield Finding("dead-jobs", text, todo)
        age = 0.0 if row.oldest_ms is None else (facts.now_ms - row.oldest_ms) / 1000
        if row.waiting and not row.workers:
            text = f"Jobs of the queue {name} that wait: {row.waiting:,}. No worker was seen."
            yield Finding("no-workers", text, "Start `tidelog worker` for this queue.")
        elif row.waiting and age > oldest_s:
            text = f"The oldest job of the queue {name} has waited for {age / 60:,.0f} min."
            yield Finding("oldest-job", text, "Start more workers, or find out what holds them up.")
