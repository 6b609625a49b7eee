"""The view of a state, and the part of it that an import of its rewrite must show: reckoned here without
`engine.commands.rewrite`."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tests.oracle.grammar import Command

from tidelog.engine.commands.rewrite import Kind, Lost, Target, rewrite
from tidelog.engine.groups.group import Group
from tidelog.engine.keys.state import State
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.stream import Stream

Facts = dict[tuple[int, bytes], Any]

# Told as a count of consumers; the times themselves are the importer's clock.
TIMES = (Kind.SEEN_TIME, Kind.ACTIVE_TIME)


def rewritten(state: State, target: Target) -> tuple[list[Command], Lost]:
    lost = Lost()
    return list(rewrite(state, lost, target)), lost


def facts(state: State, now: int) -> Facts:
    """Everything a user can see of the keys that live longer than `now`, as plain values."""
    found: Facts = {}
    for db, database in enumerate(state.databases):
        for key, value in database.keys.items():
            expire_at = database.expires.get(key, -1)
            if expire_at == -1 or expire_at > now:
                shown = bytes(value) if isinstance(value, bytes) else stream_facts(value)
                found[db, key] = (expire_at, shown)
    return found


def stream_facts(stream: Stream) -> dict[str, Any]:
    entries: list[tuple[int, tuple[bytes, ...]]] = []
    for node in stream.walk():
        ids, rows = node.ids(), node.rows()
        entries += [(ids[slot], rows[slot]) for slot in node.live_slots()]
    idmp = stream.idmp or Idmp()
    return {
        "counters": (stream.last_id, stream.max_deleted_id, stream.entries_added, stream.length),
        "entries": entries,
        "nodes": [(node.first, node.last, node.count, node.deleted) for node in stream.walk()],
        "groups": {name: group_facts(group) for name, group in stream.groups.items()},
        "idmp": (idmp.duration, idmp.maxsize),
        "iids": [(pid, iid, entry_id) for pid, iid, entry_id, _ in idmp.records()],
        "iids-ahead": [(pid, iid) for pid, iid, _, time in idmp.records() if time is not None],
        "iids-counted": (idmp.added, idmp.duplicates),
    }


def group_facts(group: Group) -> dict[str, Any]:
    pending = group.pending
    rows = list(pending.entries())
    nacked = [id for _, id in pending.by_age()][: pending.nacked()]
    counts = {row[0]: row[3] for row in rows}
    return {
        "position": (group.last_id, group.entries_read),
        "pending": [
            (id, time, group.owner_name(owner), count)
            for id, time, owner, count in rows
            if group.owners[owner] is not None
        ],
        "nacked": [(id, counts[id]) for id in nacked],
        "consumers": {name: each.active_time for name, each in group.consumers.items()},
    }


class Owed(NamedTuple):
    """The state that the import must show, and the counts that must have been told."""

    facts: Facts
    lost: Counter[tuple[Kind, int, bytes]]


def owed(state: State, now: int, target: Target, got: Facts) -> Owed:
    """`nodes` alone is taken from `got`: bounds are the importer's own, and told where they differ."""
    lost: Counter[tuple[Kind, int, bytes]] = Counter()
    wanted = facts(state, now)
    everything = facts(state, 0)
    for (db, key), (_, shown) in everything.items():
        if isinstance(shown, bytes):
            continue

        def lose(kind: Kind, count: int = 1) -> None:
            if count:
                lost[kind, db, key] += count

        live = {id for id, _ in shown["entries"]}
        old = target is Target.REDIS_7_0
        for name, group in shown["groups"].items():
            _forget(group, live, old, lose)
            last_id, entries_read = group["position"]
            added = shown["counters"][2]
            if entries_read > added:
                lose(Kind.ENTRIES_READ, not old)
                group["position"] = (last_id, added)  # also for 7.0: it is tidelog that imports it
        iids = [record for record in shown["iids"] if record[2] in live]
        if old:
            changed = shown["idmp"] != (100, 100)
            lose(Kind.DEDUP, len(shown["iids"]) + changed)
            lose(Kind.DEDUP_COUNTERS, shown["iids-counted"] != (0, 0))
            shown |= {"idmp": (100, 100), "iids": [], "iids-ahead": [], "iids-counted": (0, 0)}
        else:
            lose(Kind.DEDUP_GONE, len(shown["iids"]) - len(iids))
            named = {record[:2] for record in iids}
            lose(Kind.DEDUP_TIMES, sum(record in named for record in shown["iids-ahead"]))
            lose(Kind.DEDUP_COUNTERS, shown["iids-counted"] != (len(iids), 0))
            shown |= {"iids": iids, "iids-ahead": [], "iids-counted": (len(iids), 0)}
        if (db, key) in got:
            theirs = got[db, key][1]["nodes"]
            if shown["nodes"] != theirs:
                lost[Kind.NODES, db, key] = -1  # some
            shown["nodes"] = theirs
        if (db, key) in wanted:
            wanted[db, key] = (wanted[db, key][0], shown)
    return Owed(wanted, lost)


def _forget(group: dict[str, Any], live: set[int], old: bool, lose: Any) -> None:
    before = len(group["pending"]) + len(group["nacked"])
    group["pending"] = [row for row in group["pending"] if row[0] in live]
    group["nacked"] = [row for row in group["nacked"] if row[0] in live]
    lose(Kind.PENDING_GONE, before - len(group["pending"]) - len(group["nacked"]))
    owners = {row[2] for row in group["pending"]}
    for name, active in group["consumers"].items():
        lose(Kind.SEEN_TIME)
        lose(Kind.ACTIVE_TIME, active != -1 or name in owners)
    if old and group["nacked"]:
        lose(Kind.NACKED, len(group["nacked"]))
        group["pending"] += [(id, 0, b"", count) for id, count in group["nacked"]]
        group["pending"].sort()
        group["nacked"] = []
        owners.add(b"")
    group["consumers"] = {name: name in owners for name in {*group["consumers"], *owners}}


def timeless(found: Facts, now: int) -> Facts:
    """Facts of an import: active-time as whether it is that of the import."""
    for _, shown in found.values():
        if not isinstance(shown, bytes):
            for group in shown["groups"].values():
                active = group["consumers"]
                assert set(active.values()) <= {-1, now}
                group["consumers"] = {name: at == now for name, at in active.items()}
    return found


def assert_told(lost: Lost, owing: Owed) -> None:
    told = Counter(lost.counts)
    for (kind, db, key), count in owing.lost.items():
        if count == -1:
            assert told[kind, db, key] > 0, f"{kind} of {key!r} is not told"
            told[kind, db, key] = -1
    # Of a key whose time has passed the nodes are not known here: no import shows it.
    unknown = {at for at in told if at[0] is Kind.NODES and at[1:] not in owing.facts}
    assert {at: n for at, n in told.items() if at not in unknown} == dict(owing.lost)
