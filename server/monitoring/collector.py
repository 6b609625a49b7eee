"""Collector: the Prometheus metrics of a server and its store (prometheus_client's protocol: `collect`).

It runs in the thread of a scrape, beside the event loop and all users of the store, so it does little: it reads
counters that others keep, and for single streams it holds the store's lock for a fraction of a millisecond at a time,
with a pause after each. A scrape loads nothing into memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.samples import Sample

from tidelog.api.face import REDIS_VERSION
from tidelog.figures.model import QueueFigures, StreamFigures
from tidelog.figures.resident import KEYS_MAX, figures, label
from tidelog.figures.served import of_checkpoint, of_log
from tidelog.figures.working import Working
from tidelog.server.host import Host
from tidelog.server.monitoring.calls import Calls
from tidelog.server.monitoring.info import replication_of
from tidelog.server.monitoring.times import SYNC_BUCKETS_S, Times
from tidelog.server.session import Session

Labels = dict[str, str]

PACE: Final = 30  # samples formatted (in about 0.2 ms) before the thread releases the GIL
PAUSE_S: Final = 0.0002
TRIES: Final = 10

# fmt: off
# Name of the gauge, key in `Checkpoints.info`, factor to the gauge's unit, help.
_CHECKPOINT: Final = (
    ("checkpoint_lsn", "checkpoint_lsn", 1, "LSN of the last record that the checkpoint contains."),
    ("checkpoint_timestamp_seconds", "checkpoint_unix_ms", 0.001, "Unix time of the checkpoint; 0 if there is none."),
    ("checkpoint_duration_seconds", "checkpoint_seconds", 1, "Seconds that the last checkpoint took."),
    ("log_bytes_since_checkpoint", "bytes_since_checkpoint", 1, "Bytes of the log that no checkpoint contains yet."),
    ("log_records_since_checkpoint", "changes_since_checkpoint", 1, 
        "Records of the log that no checkpoint contains yet."
    ),
    ("memory_budget_bytes", "memory_budget", 1, "Memory budget for entries and groups; 0 = no limit."),
    ("memory_estimate_bytes", "memory_estimate", 1, 
        "Memory that entries and groups took at the last estimate; 0 without a budget."
    ),
    ("disk_bytes", "disk_bytes", 1, "Bytes of log, checkpoint and snapshots on the disk."),
    ("disk_quota_bytes", "maxdisk", 1, "Quota of the store (maxdisk); 0 = none."),
    ("disk_full", "disk_full", 1, "1 while writes that add data are refused, because the store is at its quota."),
    ("memory_writers_wait", "writers_wait", 1, "1 while writers wait because memory is over its budget."),
)
# fmt: on


# fmt: off
# Name of the metric after `tidelog_stream_` or `tidelog_group_`, field of `StreamFigures` or `GroupFigures`, help.
_OF_STREAMS: Final = (
    ("entries_added", "added", "Entries ever added, as in XINFO STREAM."),
    ("groups", "groups", "Consumer groups."),
)
_OF_STREAM_GROUPS: Final = (
    ("lag", "lag", "Entries that a group has not read yet. Missing if finding out requires reading the stream."),
    ("pending", "pending", "Entries that were delivered and not acknowledged."),
    ("consumers", "consumers", "Consumers."),
)
# Name of the metric after `tidelog_queue_`, field of `QueueFigures`, help.
_OF_GROUPS: Final = (
    ("depth", "depth", "Jobs that are due or were delivered, and are not done."),
    ("waiting", "waiting", "Jobs that are due."),
    ("in_flight", "in_flight", "Jobs that workers hold."),
    ("paused", "paused", "Failed jobs that wait for their retry. 0 if no worker of the queue was seen."),
    ("workers", "workers", "Workers alive: they hold jobs or wait for some."),
    ("hanging", "hanging", "Handlers that work on beyond their limit of time, as the runs of workers say."),
    ("killed", "killed", "Processes that the runs of workers alive have killed, at a limit of time or after a cancel."),
)
_OF_QUEUES: Final = (
    ("scheduled", "scheduled", "Jobs that were put with a delay and are not due."),
    ("dead", "dead", "Jobs that were given up, by any group, and are kept."),
    ("failures", "failures", "Recorded failures that are kept."),
    ("stopped", "stopped", "1 while the queue itself is paused, and delivers nothing."),
)
# Fields of `ReplicationFigures`, with their help; of those of a follower and of the link, and of `LogFigures`, with the
# name of the metric.
_KEPT: Final = (
    ("retained_bytes", "Bytes of the log that followers need, also those that are away."),
    ("surpluses", "Sets of records in quarantine/."),
    ("surplus_records", "Records that were set aside in quarantine/ because the leader does not have them."),
)
_OF_FOLLOWERS: Final = (
    ("lag_seconds", "lag_s",
        "Seconds for which the leader has had a record that a follower lacks; 0 if it lacks none."),
    ("lag_bytes", "lag_bytes", "About how many bytes of the log a follower lacks."),
)
_OF_LINK: Final = (
    ("leader_lsn", "leader_lsn", "The leader's last LSN, when last heard."),
    ("lag_lsn", "lag_lsn", "Records that the leader has and this store has not."),
    ("lag_seconds", "lag_s", "Seconds since this store last had everything that its leader had."),
)
_TROUBLES: Final = (
    ("failed", "failure", "1 if the log failed and no write is possible any more."),
    ("refuses_writes", "refusal", "1 while writes are refused, for example on a full disk."),
    ("replies_parked", "parked", "1 while replies wait because the disk is too slow."),
)
_COUNTED_IN_GROUPS: Final = (
    ("left", "left", "Jobs that left the queue: done or dead, cancelled or purged."),
    ("done", "done", "Those of them that are not dead. Missing if the queue has several groups."),
)
_COUNTED_IN_QUEUES: Final = (
    ("put", "put", "Jobs ever put; a delayed one counts from its time on."),
    ("died", "died", "Jobs that became dead jobs, by any group."),
    ("cancelled", "cancelled", "Jobs that were cancelled, once for each group that had not done them."),
    ("failed", "failed", "Failures that were recorded."),
    ("retried", "retried", "Pauses before a retry that were recorded, and leases that were extended."),
)
# fmt: on


class SyncTimes(Times):
    """A histogram of fsync durations. The log ensures that only one thread at a time calls `observe`."""

    def __init__(self) -> None:
        super().__init__(SYNC_BUCKETS_S)

    def attach(self, log: Any) -> SyncTimes:
        """Observe this log's fsyncs. If the log already has a SyncTimes, keep and return that one."""
        told = getattr(getattr(log, "on_sync", None), "__self__", None)
        if isinstance(told, SyncTimes):
            return told
        log.on_sync = self.observe
        return self


class _Paced(list[Sample]):
    """Samples whose iterator, which formatting drives, sleeps now and then to yield the GIL."""

    def __iter__(self) -> Iterator[Sample]:
        for at, sample in enumerate(super().__iter__()):
            if at % PACE == PACE - 1:
                time.sleep(PAUSE_S)
            yield sample


class Collector:
    """See the module docstring. The option metrics-streams limits how many streams are shown one by one."""

    def __init__(self, server: Host[Session]) -> None:
        self._server = server
        self._core = server.core
        self._streams_max: int = server.config["metrics-streams"]
        self._working = Working(server.core)
        self._one = threading.Lock()  # one scrape at a time
        self.times = SyncTimes().attach(server.core.log)

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        with self._one:
            yield from self._collect()

    def _collect(self) -> Iterator[Metric]:
        for family in self._families():
            family.samples = _Paced(family.samples)
            yield family
            time.sleep(PAUSE_S)

    def _families(self) -> Iterator[Metric]:
        yield from self._of_server()
        yield from self._of_commands()
        yield _gauge("store_open", "1 while the store is open.", int(not self._core.ended))
        if self._core.ended:
            return
        yield from self._of_log()
        yield from self._of_checkpoints()
        yield from self._of_keyspace()
        yield from self._of_streams()
        yield from self._of_queues()
        yield from self._of_replication()

    # --- replication

    def _of_replication(self) -> Iterator[Metric]:
        told = replication_of(self._server)
        role = "replica" if told.link else "master"
        yield _labelled(
            "replication_role", "1 for the role this server has.", [({"role": role}, 1)]
        )
        yield _gauge("replication_followers", "Connected followers.", len(told.followers))
        yield _labelled(
            "follower_lsn",
            "LSN of the last record that a follower has written and applied, or fsynced.",
            (
                ({"follower": each.name, "level": level}, lsn)
                for each in told.followers
                for level, lsn in (("written", each.written_lsn), ("fsynced", each.fsynced_lsn))
            ),
        )
        for name, slot, text in _OF_FOLLOWERS:
            lags = (({"follower": each.name}, getattr(each, slot)) for each in told.followers)
            yield _labelled("follower_" + name, text, lags)
        for name, text in _KEPT:
            yield _gauge("replication_" + name, text, getattr(told, name))
        link = told.link
        if link is None:
            return
        yield _gauge("link_up", "1 while the leader's frames arrive.", int(link.up))
        for name, slot, text in _OF_LINK if link.leader_lsn is not None else ():
            yield _gauge("link_" + name, text, getattr(link, slot))

    # --- the server

    def _of_server(self) -> Iterator[Metric]:
        server = self._server
        stats = server.stats
        about = InfoMetricFamily("tidelog_server", "Version of the server.")
        about.add_metric([], {"redis_version": REDIS_VERSION, "run_id": server.run_id})
        yield about
        yield _gauge("start_time_seconds", "Unix time at which the server started.", server.started)
        yield _gauge("connected_clients", "Connected clients.", len(server.sessions))
        yield _gauge("blocked_clients", "Clients blocked in a command.", server.blocked)
        yield _gauge("clients_max", "Maximum number of clients.", server.clients_max)
        yield _counter("connections_received", "Connections received.", stats.connections_received)
        yield _counter(
            "connections_rejected",
            "Connections refused because of maxclients or protected mode.",
            stats.rejected_connections,
        )
        yield _counter("net_input_bytes", "Bytes received from clients.", stats.net_input_bytes)
        yield _counter("net_output_bytes", "Bytes sent to clients.", stats.net_output_bytes)
        errors = CounterMetricFamily(
            "tidelog_error_replies", "Error replies by error code.", labels=["code"]
        )
        for code, count in _items(stats.by_error):
            errors.add_metric([label(code)], count)
        yield errors

    def _of_commands(self) -> Iterator[Metric]:
        calls, failed, rejected, spent = (
            CounterMetricFamily(f"tidelog_commands{name}", text, labels=["command"])
            for name, text in (
                ("", "Calls that were run."),
                ("_failed", "Calls that were run and returned an error."),
                ("_rejected", "Calls that were refused before they ran."),
                ("_duration_seconds", "Total seconds spent running calls."),
            )
        )
        for name, row in _items(self._server.stats._rows):
            named = [label(name)]
            found = Calls(row)
            calls.add_metric(named, found.calls)
            failed.add_metric(named, found.failed)
            rejected.add_metric(named, found.rejected)
            spent.add_metric(named, found.ns / 1e9)
            time.sleep(PAUSE_S)
        yield from (calls, failed, rejected, spent)

    # --- the log and the checkpoint

    def _of_log(self) -> Iterator[Metric]:
        log = self._core.log
        self.times = self.times.attach(log)  # the store may have opened a new log
        yield HistogramMetricFamily(
            "tidelog_fsync_duration_seconds",
            "Duration of the log's fsyncs, in seconds.",
            buckets=self.times.buckets(),
            sum_value=self.times.seconds,
        )
        told = of_log(self._core)
        yield _gauge(
            "log_exposed_bytes",
            "Bytes of the log that are not synced and that a power cut would lose.",
            told.unsynced_bytes,
        )
        yield _gauge(
            "log_exposed_seconds", "Age of the oldest unsynced bytes, in seconds.", told.unsynced_s
        )
        yield _labelled(
            "log_lsn",
            "LSN of the last record that reached this level.",
            (
                ({"level": "added"}, told.last_lsn),
                ({"level": "written"}, told.written_lsn),
                ({"level": "fsynced"}, told.synced_lsn),
            ),
        )
        yield _labelled(
            "log_fsync_policy", "1 for the policy in force.", [({"policy": told.policy}, 1)]
        )
        for name, slot, text in _TROUBLES:
            yield _gauge("log_" + name, text, int(getattr(told, slot) not in (None, False)))

    def _of_checkpoints(self) -> Iterator[Metric]:
        facts = of_checkpoint(self._core)
        if not facts:
            return
        for name, key, unit, text in _CHECKPOINT:
            yield _gauge(name, text, (facts[key] or 0) * unit)
        failed = facts["checkpoint_failure"] is not None
        yield _gauge("checkpoint_failed", "1 if the last checkpoint failed.", int(failed))

    # --- keys and streams

    def _of_keyspace(self) -> Iterator[Metric]:
        found = [
            ({"db": str(db)}, len(each.keys), len(each.expires))
            for db, each in enumerate(self._core.state.databases)
            if len(each.keys)
        ]
        yield _labelled("keys", "Number of keys.", ((at, keys) for at, keys, _ in found))
        text = "Number of keys with an expiry time."
        yield _labelled("expiring_keys", text, ((at, expiring) for at, _, expiring in found))

    def _sees(self) -> Callable[[bytes], bool]:
        """The test for keys that the user of the option metrics-user may know of."""
        user = self._server.acl.users.get(self._server.config["metrics-user"].encode())
        return (lambda key: False) if user is None else user.may

    def _of_streams(self) -> Iterator[Metric]:
        found = figures(self._core, self._streams_max, self._sees())
        now = self._core.clocks().store
        resident = (
            f" Shows the first {self._streams_max} streams by name (metrics-streams) that are in memory, found among "
            f"at most {KEYS_MAX} keys per database. Streams that are only in the checkpoint are not shown."
        )
        yield _gauge("streams_shown", "Number of streams shown one by one." + resident, len(found))
        yield _labelled("stream_length", "Entries." + resident, _stream_samples(found, "length"))
        for name, slot, text in _OF_STREAMS:
            yield _labelled("stream_" + name, text, _stream_samples(found, slot))
        for name, slot, text in _OF_STREAM_GROUPS:
            yield _labelled("group_" + name, text, _group_samples(found, slot))
        yield _labelled(
            "group_oldest_pending_seconds",
            "Age of the oldest delivery that no consumer has acknowledged, in seconds; if that delivery is not in "
            "memory, the age of one about 64 entries younger. Missing if nothing is pending.",
            _group_samples(found, "oldest_ms", lambda ms: max(now - ms, 0) / 1000),
        )

    # --- queues

    def _of_queues(self) -> Iterator[Metric]:
        found = self._working.figures(self._streams_max, self._sees())
        now = self._core.clocks().store
        groups = [row for row in found if row.group is not None]
        firsts = list({(row.db, row.key): row for row in found}.values())
        text = (
            f" Shows the first {self._streams_max} queues by name (metrics-streams) that were used since the store was "
            "opened, or whose jobs or own streams are known."
        )
        yield _gauge("queues_shown", "Number of queues shown one by one." + text, len(firsts))
        for rows, kind, metrics in (
            (found, "gauge", _OF_GROUPS),
            (groups, "counter", _COUNTED_IN_GROUPS),
            (firsts, "gauge", _OF_QUEUES),
            (firsts, "counter", _COUNTED_IN_QUEUES),
        ):
            for name, slot, text in metrics:
                values = ((_queue_labels(row, rows is firsts), getattr(row, slot)) for row in rows)
                told = ((labels, value) for labels, value in values if value is not None)
                yield _labelled("queue_" + name, text, told, kind)
        ages = ((row, row.oldest_ms) for row in found)
        yield _labelled(
            "queue_oldest_seconds",
            "Age of the oldest job that is not done. Missing if there is none.",
            (
                (_queue_labels(row, False), max(now - ms, 0) / 1000)
                for row, ms in ages
                if ms is not None
            ),
        )
        held = HistogramMetricFamily(
            "tidelog_queue_held_seconds",
            "Seconds for which clients held a job, from TAKE until they settled it, well or not.",
            labels=["db", "queue"],
        )
        durations = self._server.desk.durations
        for row in firsts:
            times = durations.get((row.db, row.key))
            if times is not None:
                held.add_metric([str(row.db), label(row.key)], times.buckets(), times.seconds)
        yield held


def _queue_labels(row: QueueFigures, whole: bool) -> Labels:
    """The labels of a queue's group, or of the whole queue. A queue that no worker has opened has an empty group."""
    labels = {"db": str(row.db), "queue": label(row.key)}
    return labels if whole else labels | {"group": label(row.group or b"")}


def _stream_samples(found: Iterable[StreamFigures], slot: str) -> Iterator[tuple[Labels, float]]:
    for stream in found:
        yield {"db": str(stream.db), "stream": label(stream.key)}, getattr(stream, slot)


def _group_samples(
    found: Iterable[StreamFigures], slot: str, unit: Callable[[int], float] = float
) -> Iterator[tuple[Labels, float]]:
    for stream in found:
        at = {"db": str(stream.db), "stream": label(stream.key)}
        for group in stream.each:
            value = getattr(group, slot)
            if value is not None:
                yield at | {"group": label(group.name)}, unit(value)


def _labelled(
    name: str, text: str, samples: Iterable[tuple[Labels, float]], kind: str = "gauge"
) -> Metric:
    family = Metric("tidelog_" + name, text, kind)
    each = family.name + ("_total" if kind == "counter" else "")
    family.samples = [Sample(each, labels, value) for labels, value in samples]
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily("tidelog_" + name, text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily("tidelog_" + name, text, value)


def _items(table: dict[bytes, Any]) -> list[tuple[bytes, Any]]:
    """The sorted items of a dict to which the loop's thread may be adding."""
    for _ in range(TRIES):
        try:
            return sorted(table.items())
        except RuntimeError:  # it grew meanwhile
            continue
    return []
