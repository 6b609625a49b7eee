"""INFO: sections of `name:value` lines, with the names that exporters and clients of Redis read (spec 16.2).

Nothing here waits for the disk, because operators call INFO when the disk is in trouble. Some of Redis's fields do not
apply here, such as those of forks, scripts and defragmentation; they are present with their true value, zero. Fields
that we do not count are left out: keyspace_hits and keyspace_misses.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from tidelog.api.face import REDIS_VERSION
from tidelog.engine.api import State
from tidelog.figures.model import LinkFigures, ReplicationFigures
from tidelog.figures.served import of_checkpoint, of_log, of_replication
from tidelog.replication.handover import SHOWN
from tidelog.server.host import Host
from tidelog.server.monitoring import memory
from tidelog.server.saving import REWRITE, SAVE
from tidelog.server.session import Session
from tidelog.store.errors import TidelogError
from tidelog.store.version import __version__

Rows = Iterable[tuple[str, object]]

PERCENTILES: Final = ("50", "99", "99.9")


def render(server: Host[Session], words: list[bytes]) -> bytes:
    """Return the sections that `words` name, in INFO's order, or the default sections. Unknown names are ignored."""
    wanted = {word.decode("latin-1").lower() for word in words} or {"default"}
    if "everything" in wanted or "all" in wanted:  # they differ only in modules' sections
        wanted |= set(SECTIONS)
    if "default" in wanted:
        wanted |= set(SECTIONS) - NOT_DEFAULT
    parts = []
    for name, section in SECTIONS.items():
        if name in wanted:
            lines = [f"# {name.capitalize() if name != 'cpu' else 'CPU'}\r\n"]
            lines += (f"{field}:{value}\r\n" for field, value in section(server))
            parts.append("".join(lines))
    return "\r\n".join(parts).encode("utf-8", "surrogateescape")


def _server(server: Host[Session]) -> Rows:
    up = int(time.time() - server.started)
    system = os.uname()
    yield "redis_version", REDIS_VERSION
    yield "redis_git_sha1", "00000000"
    yield "redis_git_dirty", 0
    yield "redis_build_id", "0"
    yield "redis_mode", "standalone"
    yield "os", f"{system.sysname} {system.release} {system.machine}"
    yield "arch_bits", 64 if sys.maxsize > 1 << 32 else 32
    yield "monotonic_clock", "POSIX clock_gettime"
    yield "multiplexing_api", "epoll"
    yield "gcc_version", platform.python_compiler()
    yield "process_id", os.getpid()
    yield "process_supervised", "no"
    yield "run_id", server.run_id
    yield "tcp_port", server.listeners.port()
    yield "server_time_usec", time.time_ns() // 1000
    yield "uptime_in_seconds", up
    yield "uptime_in_days", up // 86_400
    yield "hz", server.config["hz"]
    yield "configured_hz", server.config["hz"]
    yield "lru_clock", int(time.time()) & 0xFFFFFF
    yield "executable", sys.executable
    yield "config_file", server.config.file or ""
    yield "io_threads_active", 0
    for index, (kind, address) in enumerate(server.listeners.ports):
        host, _, port = address.rpartition(":")
        where = f"path={address}" if kind == "unix" else f"bind={host},port={port}"
        yield f"listener{index}", f"name={kind},{where}"


def _clients(server: Host[Session]) -> Rows:
    sessions = list(server.sessions.values())
    waits = [session.blocked for session in sessions if session.blocked is not None]
    yield "connected_clients", len(sessions)
    yield "cluster_connections", 0
    yield "maxclients", server.clients_max
    pending = (session.connection.requests.pending for session in sessions)
    yield "client_recent_max_input_buffer", max(pending, default=0)
    unread = (session.connection.unread_bytes for session in sessions)
    yield "client_recent_max_output_buffer", max(unread, default=0)
    yield "blocked_clients", server.blocked
    yield "tracking_clients", 0
    yield "pubsub_clients", sum(session.subscribed for session in sessions)
    watched = [session.transaction.watched for session in sessions]
    yield "watching_clients", sum(1 for keys in watched if keys)
    yield "clients_in_timeout_table", sum(1 for waiter in waits if waiter.deadline is not None)
    yield "total_watched_keys", len({place for keys in watched for place in keys})
    yield "total_blocking_keys", len({place for waiter in waits for place in waiter.keys})
    grouped = {place for waiter in waits if waiter.group for place in waiter.keys}
    yield "total_blocking_keys_on_nokey", len(grouped)


def _persistence(server: Host[Session]) -> Rows:
    core, saving = server.core, server.saving
    facts = of_checkpoint(core)
    failed = facts.get("checkpoint_failure") is not None
    took = int(facts["checkpoint_seconds"]) if facts.get("checkpoint_lsn") else -1
    yield "loading", 0
    yield "async_loading", 0
    for name in ("cow_peak", "cow_size", "cow_size_age"):
        yield f"current_{name}", 0
    yield "current_fork_perc", "0.00"
    yield "current_save_keys_processed", 0
    yield "current_save_keys_total", 0
    yield "rdb_changes_since_last_save", facts.get("changes_since_checkpoint", 0)
    yield "rdb_bgsave_in_progress", int(saving.running == SAVE)
    yield "rdb_last_save_time", saving.last_save
    yield "rdb_last_bgsave_status", "err" if failed or SAVE in saving.failed else "ok"
    yield "rdb_last_bgsave_time_sec", took
    yield "rdb_current_bgsave_time_sec", -1
    yield "rdb_last_cow_size", 0
    yield "rdb_last_load_keys_expired", 0
    yield "rdb_last_load_keys_loaded", 0
    yield "aof_enabled", 1
    yield "aof_rewrite_in_progress", int(saving.running == REWRITE)
    yield "aof_rewrite_scheduled", int(saving.rewrite_scheduled)
    yield "aof_last_rewrite_time_sec", took
    yield "aof_current_rewrite_time_sec", -1
    yield "aof_last_bgrewrite_status", "err" if failed or REWRITE in saving.failed else "ok"
    log = of_log(core)
    written = log.failure is None and log.refusal is None
    yield "aof_last_write_status", "ok" if written else "err"
    yield "aof_last_cow_size", 0
    yield "module_fork_in_progress", 0
    yield "module_fork_last_cow_size", 0
    # A rewrite in Redis makes a base file; tidelog has none. So the base size is 0, and the current size is that of the
    # log after the checkpoint.
    yield "aof_current_size", facts.get("bytes_since_checkpoint", 0)
    yield "aof_base_size", 0
    yield "aof_pending_rewrite", 0
    yield "aof_buffer_length", 0
    yield "aof_pending_bio_fsync", int(core.log.syncing)
    yield "aof_delayed_fsync", server.stats.delayed_fsyncs
    pins = server.replicating.feeding.kept.pins
    yield "log_pins", len(pins)
    for number, pin in enumerate(pins):
        yield f"log_pin{number}", ",".join(f"{name}={value}" for name, value in pin.facts().items())


def _stats(server: Host[Session]) -> Rows:
    stats, rates = server.stats, server.stats.rates()
    yield "total_connections_received", stats.connections_received
    yield "total_commands_processed", stats.commands
    yield "instantaneous_ops_per_sec", round(rates.commands)
    yield "total_net_input_bytes", stats.net_input_bytes
    yield "total_net_output_bytes", stats.net_output_bytes
    yield "total_net_repl_input_bytes", 0
    yield "total_net_repl_output_bytes", 0
    yield "instantaneous_input_kbps", f"{rates.net_input_bytes / 1024:.2f}"
    yield "instantaneous_output_kbps", f"{rates.net_output_bytes / 1024:.2f}"
    yield "instantaneous_input_repl_kbps", "0.00"
    yield "instantaneous_output_repl_kbps", "0.00"
    yield "rejected_connections", stats.rejected_connections
    feeding = server.replicating.feeding
    yield "sync_full", feeding.offerings.begun
    yield "sync_partial_ok", feeding.feeds.begun
    yield "sync_partial_err", 0
    yield "expired_keys", server.core.landing.expired_keys
    yield "evicted_keys", 0
    yield "evicted_clients", 0
    yield "total_eviction_exceeded_time", 0
    yield "current_eviction_exceeded_time", 0
    pubsub = server.pubsub
    yield "pubsub_channels", len(pubsub.channels)
    yield "pubsub_patterns", len(pubsub.patterns)
    yield "pubsubshard_channels", len(pubsub.shard_channels)
    yield "latest_fork_usec", 0
    yield "total_forks", 0
    yield "migrate_cached_sockets", 0
    yield "slave_expires_tracked_keys", 0
    for name in ("hits", "misses", "key_hits", "key_misses"):
        yield f"active_defrag_{name}", 0
    for name in ("keys", "items", "prefixes"):
        yield f"tracking_total_{name}", 0
    yield "unexpected_error_replies", 0
    yield "total_error_replies", stats.error_replies
    yield "dump_payload_sanitizations", 0


def _replication(server: Host[Session]) -> Rows:
    replicating, log = server.replicating, server.core.log
    told = replication_of(server)
    if told.link is not None:
        yield "role", "slave"
        yield from _upstream(server, told.link)
    else:
        yield "role", "master"
    yield "connected_slaves", len(told.followers)
    if server.config["min-replicas-to-write"] and server.config["min-replicas-max-lag"]:
        yield "min_slaves_good_slaves", replicating.good
    for number, each in enumerate(told.followers):
        yield (
            f"slave{number}",
            f"ip={each.host},port={each.port},state=online,offset={each.written_lsn},"
            f"lag={int(each.heard_s)},fsynced={each.fsynced_lsn},"
            f"behind={each.lag_s:.1f},behind_bytes={each.lag_bytes}",
        )
    newer = replicating.feeding.feeds.superseded
    if newer is not None:
        yield "superseded_by", newer
    yield "slaves_fetching_a_snapshot", len(replicating.feeding.offerings)
    yield "master_failover_state", SHOWN[replicating.handing.state]
    yield "master_replid", f"{log.incarnation:040x}"
    yield "master_replid2", "0" * 40
    yield "master_repl_offset", log.next_lsn - 1
    yield "second_repl_offset", -1
    yield "surpluses", told.surpluses
    yield "surplus_records", told.surplus_records
    yield "repl_backlog_active", int(bool(told.followers))
    yield "repl_backlog_size", server.config["repl-backlog-size"]
    yield "repl_backlog_first_byte_offset", 0
    yield "repl_backlog_histlen", told.retained_bytes


def replication_of(server: Host[Session]) -> ReplicationFigures:
    """The figures of the server's replication."""
    feeding, following = server.replicating.feeding, server.replicating.following
    return of_replication(server.core, feeding.feeds, feeding.kept, following, server.loop.time())


def _upstream(server: Host[Session], told: LinkFigures) -> Rows:
    """A follower's part of INFO replication. Offsets are LSNs."""
    core, config = server.core, server.config
    role, link, now = server.replicating.role, core.link, server.loop.time()
    lsn = core.log.written_lsn
    yield "master_host", role.host
    yield "master_port", role.port
    yield "master_link_status", "up" if told.up else "down"
    heard = -1 if link is None or not told.up else int(now - link.follower.heard_at)
    yield "master_last_io_seconds_ago", heard
    copy = None if link is None else link.resyncing
    yield "master_sync_in_progress", int(server.replicating.loading or copy is not None)
    yield "slave_read_repl_offset", lsn
    yield "slave_repl_offset", lsn
    if link is not None and not told.up:
        yield "master_link_down_since_seconds", int(now - (link.down_since or now))
        yield "master_link_failure", _line(link.failure)
    yield "slave_priority", config["replica-priority"]
    yield "slave_read_only", 1
    yield "replica_announced", 1
    if link is not None:
        yield "master_lsn", told.leader_lsn
        yield "slave_lag", told.lag_lsn
        yield "slave_lag_seconds", f"{told.lag_s:.1f}"
        yield "slave_stalled", _line(link.follower.stalled)
    if core.roles is not None:
        yield "master_verified_lsn", core.roles.agreed
    if copy is not None:
        yield "master_sync_phase", copy.phase
        yield "master_sync_total_bytes", copy.size
        yield "master_sync_read_bytes", copy.done
        yield "master_sync_left_bytes", copy.size - copy.done


def _cpu(server: Host[Session]) -> Rows:
    for who, suffix in (
        (resource.RUSAGE_SELF, ""),
        (resource.RUSAGE_CHILDREN, "_children"),
        (resource.RUSAGE_THREAD, "_main_thread"),
    ):
        usage = resource.getrusage(who)
        yield f"used_cpu_sys{suffix}", f"{usage.ru_stime:.6f}"
        yield f"used_cpu_user{suffix}", f"{usage.ru_utime:.6f}"


def _modules(server: Host[Session]) -> Rows:
    return ()


def _commandstats(server: Host[Session]) -> Rows:
    for name, calls in sorted(server.stats.by_command().items()):
        each = calls.us / calls.calls if calls.calls else 0.0
        yield (
            f"cmdstat_{name.decode()}",
            f"calls={calls.calls},usec={calls.us},usec_per_call={each:.2f},"
            f"rejected_calls={calls.rejected},failed_calls={calls.failed}",
        )


def _errorstats(server: Host[Session]) -> Rows:
    for code, count in sorted(server.stats.by_error.items()):
        yield f"errorstat_{code.decode('latin-1')}", f"count={count}"


def _latencystats(server: Host[Session]) -> Rows:
    for name, calls in sorted(server.stats.by_command().items()):
        if calls.calls:
            yield (
                f"latency_percentiles_usec_{name.decode()}",
                ",".join(f"p{p}={calls.percentile(float(p)):.3f}" for p in PERCENTILES),
            )


def _cluster(server: Host[Session]) -> Rows:
    yield "cluster_enabled", 0


def _keyspace(server: Host[Session]) -> Rows:
    def count(state: State) -> list[tuple[int, int, int]]:
        return [
            (number, len(database.keys), len(database.expires))
            for number, database in enumerate(state.databases)
            if database.keys
        ]

    try:
        found, _ = server.core.look(count)
    except TidelogError:
        return  # the store has ended; other sections report it
    for number, keys, expires in found:
        yield f"db{number}", f"keys={keys},expires={expires},avg_ttl=0"


def _tidelog(server: Host[Session]) -> Rows:
    """The section with our own fields."""
    core, log = server.core, of_log(server.core)
    yield "tidelog_version", __version__
    yield "python_version", platform.python_version()
    yield "event_loop", type(server.loop).__module__.partition(".")[0]
    yield "path", server.root
    yield "fsync", log.policy
    yield "epoch", core.state.epoch
    yield "incarnation", f"{core.log.incarnation:016x}"
    yield "next_lsn", log.last_lsn + 1
    yield "written_lsn", log.written_lsn
    yield "synced_lsn", log.synced_lsn
    yield "unsynced_bytes", log.unsynced_bytes
    yield "unsynced_seconds", f"{log.unsynced_s:.3f}"
    yield "reloads", core.reloads
    yield "failure", _line(log.failure)
    yield "refusal", _line(log.refusal)
    for name, value in of_checkpoint(core).items():
        yield name, _line(value)


def _line(value: Any) -> str:
    """Format a value on one line: empty for None, 0 or 1 for a bool, three decimals for a float."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.3f}"
    return " ".join(str(value).split())


SECTIONS: Final[dict[str, Callable[[Any], Rows]]] = {
    "server": _server,
    "clients": _clients,
    "memory": memory.rows,
    "persistence": _persistence,
    "stats": _stats,
    "replication": _replication,
    "cpu": _cpu,
    "modules": _modules,
    "commandstats": _commandstats,
    "errorstats": _errorstats,
    "latencystats": _latencystats,
    "cluster": _cluster,
    "keyspace": _keyspace,
    "tidelog": _tidelog,
}
NOT_DEFAULT: Final = frozenset(("commandstats", "latencystats"))
