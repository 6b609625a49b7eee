"""INFO, MEMORY, LATENCY and LOLWUT (spec 16.2).

server/monitoring/info.py, memory.py, latency.py and calls.py make the replies.
"""

from __future__ import annotations

from tidelog.api.face import REDIS_VERSION
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Map, Reply, Status
from tidelog.server.monitoring import info, memory
from tidelog.server.saving import in_thread
from tidelog.server.session import Session
from tidelog.server.wire.replies import Verbatim
from tidelog.store.residence import give_back


def _lines(*lines: bytes) -> Reply:
    return [Status(line) for line in lines]


def info_(session: Session, args: list[bytes]) -> Reply:
    return Verbatim(info.render(session.server, args[1:]))


def lolwut(session: Session, args: list[bytes]) -> Reply:
    """LOLWUT: only the version line; there is no art, whatever version the client asks for."""
    if len(args) >= 3 and args[1].lower() == b"version":
        int64(args[2])
    return Verbatim(b"Redis ver. %b\n" % REDIS_VERSION.encode())


# --- MEMORY (USAGE is the engine's)


def memory_doctor(session: Session, args: list[bytes]) -> Reply:
    return Verbatim(memory.doctor(session.server).encode())


def memory_stats(session: Session, args: list[bytes]) -> Reply:
    return memory.stats(session.server)


def memory_malloc_stats(session: Session, args: list[bytes]) -> Reply:
    return b"Stats not supported for the current allocator"


async def memory_purge(session: Session, args: list[bytes]) -> Reply:
    await in_thread(give_back)
    return OK


def memory_help(session: Session, args: list[bytes]) -> Reply:
    return _lines(
        b"MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        b"DOCTOR",
        b"    Return memory problems reports.",
        b"MALLOC-STATS",
        b"    Return internal statistics report from the memory allocator.",
        b"PURGE",
        b"    Attempt to purge dirty pages for reclamation by the allocator.",
        b"STATS",
        b"    Return information about the memory usage of the server.",
        b"USAGE <key> [SAMPLES <count>]",
        b"    Return memory in bytes used by <key> and its value. Nested values are",
        b"    sampled up to <count> times (default: 5, 0 means sample all).",
        b"HELP",
        b"    Print this help.",
    )


# --- LATENCY


def latency_history(session: Session, args: list[bytes]) -> Reply:
    event = session.server.stats.latency.events.get(args[2])
    return [] if event is None else [list(sample) for sample in event.samples]


def latency_latest(session: Session, args: list[bytes]) -> Reply:
    events = session.server.stats.latency.events
    return [[name, *event.samples[-1], event.max_ms] for name, event in events.items()]


def latency_reset(session: Session, args: list[bytes]) -> Reply:
    return session.server.stats.latency.reset(args[2:])


def latency_histogram(session: Session, args: list[bytes]) -> Reply:
    """Histograms of commands that were called; the name of a container stands for its subcommands."""
    names = [word.lower() for word in args[2:]]
    known = session.server.commands.table.commands
    reply = Map()
    for name, calls in session.server.stats.by_command().items():
        asked = not names or name in names or name.partition(b"|")[0] in names
        if asked and calls.calls and name in known:
            facts = [b"calls", calls.calls, b"histogram_usec", Map(calls.histogram())]
            reply += name, Map(facts)
    return reply


def latency_help(session: Session, args: list[bytes]) -> Reply:
    return _lines(
        b"LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        b"HISTORY <event>",
        b"    Return time-latency samples for the <event> class.",
        b"LATEST",
        b"    Return the latest latency samples for all events.",
        b"RESET [<event> ...]",
        b"    Reset latency data of one or more <event> classes.",
        b"    (default: reset all data for all event classes)",
        b"HISTOGRAM [COMMAND ...]",
        b"    Return a cumulative distribution of latencies in the format of a histogram for the "
        b"specified command names.",
        b"    If no commands are specified then all histograms are replied.",
        b"HELP",
        b"    Print this help.",
    )
