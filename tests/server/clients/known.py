"""Results of redis-py's stream methods against redis-server 7.0, where tidelog, as 8.8, returns something else.

The rows are those of `tests.oracle.differences.TABLE`; here they stand for values instead of replies. Nothing is
masked: of a difference the older value is computed, and demanded of the server. Where the two states would part, a
mend brings the server to tidelog's; it is made after the value of 7.0 was seen.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from tests.oracle.differences import (
    Between,
    Facts,
    entries_read_7_0,
    entries_read_8_8,
    lag_7_0,
    lag_8_8,
    row,
)
from tests.server.clients.faces import Call, Face, Failed, typed

from tidelog.engine.ids import parse

IDMP = {
    "idmp-duration": 100,
    "idmp-maxsize": 100,
    "pids-tracked": 0,
    "iids-tracked": 0,
    "iids-added": 0,
    "iids-duplicates": 0,
}
GROUP_CALLS = ("xreadgroup", "xclaim", "xautoclaim", "xgroup_create", "xgroup_setid")


class Group(NamedTuple):
    """The fields of one group in XINFO GROUPS."""

    last_id: int
    entries_read: int
    consumers: int


class Before(NamedTuple):
    """A stream before a call, as both sides tell it."""

    facts: Facts
    groups: dict[bytes, Group]


def name(key: Any) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def id_of(text: Any) -> int:
    return parse(text.encode() if isinstance(text, str) else text)


def named(items: dict[Any, Any]) -> dict[str, Any]:
    """A dict of an XINFO reply, by names."""
    return {name(key): value for key, value in items.items()}


def keys_of(call: Call) -> list[Any]:
    return list(call.args[2]) if call.name == "xreadgroup" else [call.args[0]]


def bytes_of(word: Any) -> bytes:
    return word.encode() if isinstance(word, str) else bytes(word)


class Sides:
    """tidelog and a redis-server, to be called with the same words."""

    def __init__(self, ours: Face, theirs: Face) -> None:
        self.ours, self.theirs = ours, theirs

    def make(self, call: Call) -> tuple[Any, Any]:
        """The result of tidelog, and the right one, derived from the server's."""
        seen: dict[Any, Before] = {}
        if call.name in GROUP_CALLS:
            seen = {key: self.look(key) for key in keys_of(call)}
        found = self.ours.do(call.name, *call.args, **call.options)
        theirs = self.theirs.do(call.name, *call.args, **call.options)
        self.mend(call, found, seen)
        self.drop_empty_nodes([call])
        return found, self.expected(call, found, theirs)

    def pipeline(self, calls: list[Call], transaction: bool) -> tuple[Any, Any]:
        """The same for calls that are sent at once, of which both versions make the same."""
        found = self.ours.pipeline(calls, transaction)
        theirs = self.theirs.pipeline(calls, transaction)
        self.drop_empty_nodes(calls)
        return found, theirs

    # --- values

    def expected(self, call: Call, found: Any, theirs: Any) -> Any:
        """`theirs`, with what 8.8 adds to it and computes otherwise."""
        if isinstance(found, Failed) or isinstance(theirs, Failed):
            return theirs
        wanted = copy.deepcopy(theirs)
        if call.name == "xinfo_stream":
            return self.stream(call.args[0], found, wanted)
        if call.name == "xinfo_groups":
            facts = self.look(call.args[0]).facts
            return [self.group(facts, *each) for each in zip(found, wanted, strict=True)]
        if call.name == "xinfo_consumers":
            return [self.consumer(*each) for each in zip(found, wanted, strict=True)]
        return wanted

    def stream(self, key: Any, found: dict[Any, Any], wanted: dict[Any, Any]) -> dict[Any, Any]:
        row("xinfo-idmp")
        items = named(found)
        assert {key: items[key] for key in IDMP} == IDMP, items
        if items["radix-tree-keys"] > 1:
            row("radix-tree-nodes")
            nodes = items["radix-tree-keys"]
            assert Between(nodes, 4 * nodes) == named(wanted)["radix-tree-nodes"]
            replace(wanted, "radix-tree-nodes", items["radix-tree-nodes"])
        if "entries" in items:
            facts = self.look(key).facts
            both = zip(items["groups"], named(wanted)["groups"], strict=True)
            groups = [self.group(facts, *each) for each in both]
            replace(wanted, "groups", groups)
        out: dict[Any, Any] = {}
        for label, value in wanted.items():
            out[label] = value
            if name(label) == "recorded-first-entry-id":
                out |= {each: found[each] for each in found if name(each) in IDMP}
        return out

    def group(self, facts: Facts, found: dict[Any, Any], wanted: dict[Any, Any]) -> dict[Any, Any]:
        """One of XINFO GROUPS or of XINFO STREAM FULL."""
        ours, theirs = named(found), named(wanted)
        reached = id_of(theirs["last-delivered-id"]), read_count(theirs["entries-read"])
        assert theirs["lag"] == lag_7_0(facts, *reached), (facts, reached, theirs)
        if lag_8_8(facts, *reached) != theirs["lag"]:
            row("lag")
            replace(wanted, "lag", lag_8_8(facts, *reached))
        if isinstance(theirs["consumers"], list):
            both = zip(ours["consumers"], theirs["consumers"], strict=True)
            replace(wanted, "consumers", [self.consumer(*each) for each in both])
        if "nacked-count" in ours:
            row("nacked-count")
            assert ours["nacked-count"] == 0
            return in_order(found, wanted, {"nacked-count"})
        return wanted

    def consumer(self, found: dict[Any, Any], wanted: dict[Any, Any]) -> dict[Any, Any]:
        """One of XINFO CONSUMERS (idle, inactive) or of XINFO STREAM FULL (seen-time, active-time)."""
        row("active-time")
        ours, theirs = named(found), named(wanted)
        if "inactive" in ours:
            idle, inactive = ours["idle"], ours["inactive"]
            if idle != inactive:
                row("seen-time")
                most = inactive if inactive >= 0 else 1 << 62
                assert Between(idle, most) == theirs["idle"], (found, wanted)
                replace(wanted, "idle", idle)
        else:
            seen, active = ours["seen-time"], ours["active-time"]
            if seen != active:
                row("seen-time")
                assert Between(max(active, 0), seen) == theirs["seen-time"], (found, wanted)
                replace(wanted, "seen-time", seen)
        return in_order(found, wanted, {"inactive", "active-time"})

    # --- states

    def look(self, key: Any) -> Before:
        """The server's facts about a stream. Both tell the same, or the call before would have failed."""
        info, groups = self.theirs.do("xinfo_stream", key), self.theirs.do("xinfo_groups", key)
        if isinstance(info, Failed) or isinstance(groups, Failed):
            return Before(Facts(0, 0, 0, 0, 0), {})
        items = named(info)
        facts = Facts(
            id_of(items["recorded-first-entry-id"]),
            id_of(items["max-deleted-entry-id"]),
            items["entries-added"],
            items["length"],
            id_of(items["last-generated-id"]),
        )
        return Before(facts, by_name(groups))

    def mend(self, call: Call, found: Any, before: dict[Any, Before]) -> None:
        """Bring the server's groups to tidelog's, where the two versions are known to part."""
        if isinstance(found, Failed):
            return
        for key, known in before.items():
            ours, theirs = self.ours.do("xinfo_groups", key), self.theirs.do("xinfo_groups", key)
            if isinstance(ours, Failed):
                continue
            older = by_name(theirs)
            for label, group in by_name(ours).items():
                if group.consumers != older[label].consumers:
                    row("consumer-created")
                    assert call.name in ("xreadgroup", "xclaim", "xautoclaim"), call
                    consumer = call.args[1] if call.name == "xreadgroup" else call.args[2]
                    made = self.theirs.do("xgroup_createconsumer", key, label, consumer)
                    assert (made, older[label].consumers + 1) == (1, group.consumers), call
                if group.entries_read != older[label].entries_read:
                    self.explain(call, key, label, known, group, older[label], found)
                    last = f"{group.last_id >> 64}-{group.last_id & (1 << 64) - 1}"
                    count = group.entries_read
                    assert (
                        self.theirs.do("xgroup_setid", key, label, last, entries_read=count) is True
                    )

    def drop_empty_nodes(self, calls: list[Call]) -> None:
        """A trim that empties a node entry by entry leaves it there in 7.0. A further trim, of nothing, drops it."""
        for key in {call.args[0] for call in calls if {"maxlen", "minid"} & set(call.options)}:
            ours, theirs = (each.do("xinfo_stream", key) for each in (self.ours, self.theirs))
            if isinstance(ours, Failed) or isinstance(theirs, Failed):
                continue
            if named(ours)["radix-tree-keys"] != named(theirs)["radix-tree-keys"]:
                row("empty-node")
                first = named(ours)["first-entry"]
                minid = first[0] if first else "18446744073709551615-18446744073709551615"
                assert self.theirs.do("xtrim", key, minid=minid, approximate=False) == 0
                mended = named(self.theirs.do("xinfo_stream", key))["radix-tree-keys"]
                assert mended == named(ours)["radix-tree-keys"]

    def explain(
        self, call: Call, key: Any, label: bytes, known: Before, ours: Group, theirs: Group, found: Any
    ) -> None:  # fmt: skip
        """Both counters are those that the formulas of the two versions give."""
        if call.name == "xreadgroup":
            row("entries-read")
            mode = self.ours.mode
            entries = dict(found)[key if mode.decode else bytes_of(key)]
            if mode.legacy and mode.protocol == 3:
                (entries,) = entries
            delivered = [id_of(entry[0]) for entry in entries]
            was = known.groups[label]
            assert theirs.entries_read == entries_read_7_0(
                known.facts, was.entries_read, delivered
            ), call
            assert ours.entries_read == entries_read_8_8(
                known.facts, was.last_id, was.entries_read, delivered
            ), call
        else:
            row("entries-read-cap")
            assert theirs.entries_read == call.options["entries_read"] > ours.entries_read, call
            assert ours.entries_read == known.facts.added, call


def read_count(value: int | None) -> int:
    return -1 if value is None else value


def by_name(groups: list[dict[Any, Any]]) -> dict[bytes, Group]:
    out = {}
    for each in map(named, groups):
        count = read_count(each["entries-read"])
        out[bytes_of(each["name"])] = Group(
            id_of(each["last-delivered-id"]), count, each["consumers"]
        )
    return out


def replace(items: dict[Any, Any], label: str, value: Any) -> None:
    for key in items:
        if name(key) == label:
            items[key] = value


def in_order(found: dict[Any, Any], wanted: dict[Any, Any], new: set[str]) -> dict[Any, Any]:
    """`wanted`, and what is new of `found`, in the order of `found`."""
    rest = list(wanted.items())
    return dict(item if name(item[0]) in new else rest.pop(0) for item in found.items())


def same(found: Any, wanted: Any) -> bool:
    """Equal, types and order included."""
    return bool(typed(found) == typed(wanted))
