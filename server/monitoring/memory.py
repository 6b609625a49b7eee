"""Memory: the replies of MEMORY and INFO's memory section. The figures of the process are in process.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tidelog.engine.reply import Map
from tidelog.figures.served import of_checkpoint
from tidelog.server.host import Host
from tidelog.server.monitoring.process import measure, system_memory
from tidelog.server.session import Outlet, Session
from tidelog.server.wire.replies import Double

_SMALL: Final = 5 << 20  # as in Redis, MEMORY DOCTOR gives no diagnosis below this amount of memory


class Shares(NamedTuple):
    """Used memory in bytes: allocated at startup, held in clients' buffers, and the data."""

    startup: int
    clients: int
    dataset: int


def shares(server: Host[Session], used: int) -> Shares:
    """Split the used memory. With a memory budget the data is the estimate of store/residence, else the remainder."""
    startup = server.stats.startup_bytes
    clients = sum(buffered(session.connection) for session in server.sessions.values())
    facts = of_checkpoint(server.core)
    estimate = facts.get("memory_estimate", 0) if facts.get("memory_budget") else 0
    return Shares(startup, clients, estimate or max(used - startup - clients, 0))


def buffered(connection: Outlet) -> int:
    """Bytes that a connection buffers: incomplete commands and unsent replies."""
    return connection.requests.pending + connection.unread_bytes


def human(nbytes: int) -> str:
    """Format bytes as Redis does: 1536 -> `1.50K`."""
    if nbytes < 1024:
        return f"{nbytes}B"
    size = float(nbytes)
    for unit in "KMGTP":
        size /= 1024
        if size < 1024:
            break
    return f"{size:.2f}{unit}"


def rows(server: Host[Session]) -> Iterator[tuple[str, object]]:
    """The names and values of INFO's memory section."""
    used, resident, peak = measure()
    startup, clients, dataset = shares(server, used)
    total, bound = system_memory(), of_checkpoint(server.core).get("memory_budget") or 0
    yield "used_memory", used
    yield "used_memory_human", human(used)
    yield "used_memory_rss", resident
    yield "used_memory_rss_human", human(resident)
    yield "used_memory_peak", peak
    yield "used_memory_peak_human", human(peak)
    yield "used_memory_peak_perc", f"{100 * ratio(used, peak):.2f}%"
    yield "used_memory_overhead", max(used - dataset, 0)
    yield "used_memory_startup", startup
    yield "used_memory_dataset", dataset
    above = max(used - startup, 1)
    yield "used_memory_dataset_perc", f"{min(100 * dataset / above, 100.0):.2f}%"
    yield "allocator_allocated", used
    yield "allocator_active", used
    yield "allocator_resident", resident
    yield "total_system_memory", total
    yield "total_system_memory_human", human(total)
    for name in ("used_memory_lua", "used_memory_vm_eval", "used_memory_scripts_eval"):
        yield name, 0
    for name in ("number_of_cached_scripts", "number_of_functions", "number_of_libraries"):
        yield name, 0
    for name in ("used_memory_vm_functions", "used_memory_functions", "used_memory_scripts"):
        yield name, 0
    yield "maxmemory", bound
    yield "maxmemory_human", human(bound)
    yield "maxmemory_policy", "noeviction"
    yield "allocator_frag_ratio", "1.00"
    yield "allocator_frag_bytes", 0
    yield "allocator_rss_ratio", f"{ratio(resident, used):.2f}"
    yield "allocator_rss_bytes", resident - used
    yield "rss_overhead_ratio", "1.00"
    yield "rss_overhead_bytes", 0
    yield "mem_fragmentation_ratio", f"{ratio(resident, used):.2f}"
    yield "mem_fragmentation_bytes", resident - used
    for name in ("not_counted_for_evict", "replication_backlog", "total_replication_buffers"):
        yield f"mem_{name}", 0
    yield "mem_clients_slaves", 0
    yield "mem_clients_normal", clients
    yield "mem_cluster_links", 0
    yield "mem_aof_buffer", 0
    yield "mem_allocator", "libc"
    yield "active_defrag_running", 0
    yield "lazyfree_pending_objects", 0
    yield "lazyfreed_objects", 0


def stats(server: Host[Session]) -> Map:
    """The reply of MEMORY STATS, with those of Redis's fields that apply."""
    used, resident, peak = measure()
    startup, clients, dataset = shares(server, used)
    overhead = max(used - dataset, 0)
    keys = [len(database.keys) for database in server.core.look(lambda state: state.databases)[0]]
    count = sum(keys)
    above = max(used - startup, 1)
    rows: dict[str, Any] = {
        "peak.allocated": peak,
        "total.allocated": used,
        "startup.allocated": startup,
        "replication.backlog": 0,
        "clients.slaves": 0,
        "clients.normal": clients,
        "cluster.links": 0,
        "aof.buffer": 0,
        "lua.caches": 0,
        "functions.caches": 0,
        "overhead.total": overhead,
        "keys.count": count,
        "keys.bytes-per-key": dataset // count if count else 0,
        "dataset.bytes": dataset,
        "dataset.percentage": Double(min(100 * dataset / above, 100.0)),
        "peak.percentage": Double(100 * used / peak if peak else 0.0),
        "allocator.allocated": used,
        "allocator.active": used,
        "allocator.resident": resident,
        "allocator-fragmentation.ratio": Double(1.0),
        "allocator-fragmentation.bytes": 0,
        "allocator-rss.ratio": Double(ratio(resident, used)),
        "allocator-rss.bytes": resident - used,
        "rss-overhead.ratio": Double(1.0),
        "rss-overhead.bytes": 0,
        "fragmentation": Double(ratio(resident, used)),
        "fragmentation.bytes": resident - used,
    }
    return Map(part for name, value in rows.items() for part in (name.encode(), value))


def ratio(part: int, whole: int) -> float:
    """part / whole; 0.0 if whole is 0."""
    return part / whole if whole else 0.0


def doctor(server: Host[Session]) -> str:
    """The reply of MEMORY DOCTOR, with Redis's text where it applies."""
    used, resident, peak = measure()
    shared = shares(server, used)
    if used - shared.startup < _SMALL:
        return _EMPTY
    found = []
    if ratio(peak, used) > 1.5:
        found.append(_PEAK)
    if ratio(resident, used) > 1.4 and resident - used > 10 << 20:
        found.append(_RESIDENT)
    if server.sessions and shared.clients / len(server.sessions) > 200 << 10:
        found.append(_CLIENTS)
    return _SEEN + "".join(found) + _END if found else _WELL


_EMPTY = (
    "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in these"
    " conditions. Please, leave for your mission on Earth and fill it with some data. The new Sam and I will "
    "be back to our programming as soon as I finished rebooting.\n"
)
_WELL = (
    "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this "
    "base.\n"
)
_SEEN = "Sam, I detected a few issues in this Redis instance memory implants:\n\n"
_PEAK = (
    " * Peak memory: In the past this instance used more than 150% the memory that is currently using. The "
    "allocator is normally not able to release memory after a peak, so you can expect to see a big "
    "fragmentation ratio, however this is actually harmless and is only due to the memory peak, and if the "
    "Redis instance Resident Set Size (RSS) is currently bigger than expected, the memory will be used as "
    "soon as you fill the Redis instance with more data. If the memory peak was only occasional and you want "
    "to try to reclaim memory, please try the MEMORY PURGE command, otherwise the only other option is to "
    "shutdown and restart the instance.\n\n"
)
_RESIDENT = (
    " * High total RSS: This instance has pages of mapped files in memory, more than 1.4 times of what it has"
    " allocated itself. They are those of the checkpoint and the log, and the system takes them back when it "
    "needs them.\n\n"
)
_CLIENTS = (
    " * Big client buffers: The clients output buffers in this instance are greater than 200K per client (on "
    "average). This may result from different causes, like Pub/Sub clients subscribed to channels bot not "
    "receiving data fast enough, so that data piles on the Redis instance output buffer, or clients sending "
    "commands with large replies or very large sequences of commands in the same pipeline. Please use the "
    "CLIENT LIST command in order to investigate the issue if it causes problems in your instance, or to "
    "understand better why certain clients are using a big amount of memory.\n\n"
)
_END = "I'm here to keep you safe, Sam. I want to help you.\n"
