"""Where tidelog, which behaves as Redis 8.8, differs from the redis-server 8.2 it is compared with.

The rules are those of `differences`, which is about 7.0: a row computes the answer of 8.2 from tidelog's state and
demands it of the server, and a mend brings the server to tidelog's state.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.oracle import differences
from tests.oracle.differences import (
    IDMP_DEFAULTS,
    Between,
    Difference,
    Mend,
    OneOf,
    Unordered,
    flat,
    pairs,
    what_if,
)
from tests.oracle.grammar import Command
from tests.oracle.wire import OK, Form

from tidelog.engine import idlist
from tidelog.engine.commands.context import Context
from tidelog.engine.effects import effect as op
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.ids import text

TABLE: dict[str, Difference] = {
    "xinfo-idmp": Difference("8.1", "8.6", "XINFO STREAM has the six idempotency pairs"),
    "nacked-count": Difference("8.2", "8.8", "XINFO STREAM FULL has nacked-count in each group"),
    "radix-tree-nodes": Difference(
        "2.4", "-", "the inner size of the tree means nothing beyond one node"
    ),
    "approximate-policy": Difference(
        "5.2", "8.6", "an approximate trim with DELREF or ACKED removes nothing up to 8.4"
    ),
    "delref-deleted": Difference(
        "5.2",
        "after 8.8",
        "a trim with DELREF drops the references of entries deleted earlier, too",
    ),
    "destroyed-minimum": Difference(
        "5.2",
        "8.6",
        "ACKED forgets a destroyed group; up to 8.4 its last ID could hold entries back",
    ),
    "xsetid-lowers": differences.TABLE["xsetid-lowers"],
    "entries-added-max": differences.TABLE["entries-added-max"],
    "memory-usage": differences.TABLE["memory-usage"],
    "empty-node": differences.TABLE["empty-node"],
    "dbsize": differences.TABLE["dbsize"],
}

used = differences.used

CAPS_ENTRIES_READ = True


def row(name: str) -> None:
    assert name in TABLE
    used[name] += 1


def expected(ctx: Context, args: Command, form: Form, effects: list[Effect]) -> Form:
    """The reply that 8.2 owes where tidelog answers `form`."""
    name = args[0].upper()
    if name == b"XINFO" and isinstance(form, list) and args[1].upper() == b"STREAM":
        return xinfo_stream(form)
    if name == b"RANDOMKEY" and isinstance(form, bytes):
        return OneOf(what_if(ctx, [b"KEYS", b"*"]))
    if name == b"MEMORY" and isinstance(form, int) and form > 0:
        row("memory-usage")
        return Between(1, 1 << 62)
    if name == b"DBSIZE" and isinstance(form, int):
        passed = sum(at < ctx.now for at in ctx.database.expires.values())
        if passed:
            row("dbsize")
            return Between(form - passed, form)
    if name == b"XTRIM" and isinstance(form, int) and form and policy_of_approximate(args):
        row("approximate-policy")
        return 0
    if name == b"KEYS" and isinstance(form, list):
        return Unordered(form)
    if name == b"SCAN" and isinstance(form, list):
        return [form[0], Unordered(form[1])]
    return form


def mends(ctx: Context, args: Command, form: Form, effects: list[Effect]) -> list[Mend]:
    """Commands that bring the server to the state that `effects` are about to give tidelog."""
    name = args[0].upper()
    if name == b"XADD":
        saturated = list(differences.counter_saturated(ctx, effects))
        return [*saturated, *trimmed(ctx, args, effects), *unreferenced(ctx, effects)]
    if name == b"XSETID":
        return list(differences.lowered(effects))
    if name == b"XGROUP":
        return minimum_forgotten(effects)
    if name == b"XTRIM":
        return [*trimmed(ctx, args, effects), *unreferenced(ctx, effects)]
    return []


def nodes_emptied(ctx: Context, effects: list[Effect]) -> list[Mend]:
    return differences.nodes_emptied(ctx, effects)


FORGOTTEN: list[tuple[list[bytes], Form]] = [
    ([b"CREATE", b"0"], OK),
    ([b"SETID", b"18446744073709551615-18446744073709551615"], OK),
    ([b"DESTROY"], 1),
]


def minimum_forgotten(effects: list[Effect]) -> list[Mend]:
    """A group that has the smallest last ID and moves on: the server looks for the smallest again."""
    out: list[Mend] = []
    for effect in effects:
        if effect[0] & OPCODE == op.XGROUP_DESTROY:
            row("destroyed-minimum")
            for words, reply in FORGOTTEN:
                args = [b"XGROUP", words[0], effect[2], b"mended", *words[1:]]
                out.append(Mend(args, "destroyed-minimum", reply))
    return out


def policy_of_approximate(args: Command) -> bytes | None:
    """DELREF or ACKED if the options ask for an approximate trim by that policy."""
    at, approximate, policy = 2, False, None
    while at < len(args):
        word = args[at].upper()
        if word in (b"MAXLEN", b"MINID"):
            at += 1
            approximate = args[at] == b"~"
            at += 1 + (args[at] in (b"~", b"="))
        elif word == b"LIMIT":
            at += 2
        elif word in (b"KEEPREF", b"DELREF", b"ACKED", b"NOMKSTREAM"):
            policy = word if word in (b"DELREF", b"ACKED") else policy
            at += 1
        else:
            break
    return policy if approximate else None


def trimmed(ctx: Context, args: Command, effects: list[Effect]) -> list[Mend]:
    """The trim that 8.2 did not do, as an exact one to the length that tidelog has after it."""
    out: list[Mend] = []
    for effect in effects:
        if effect[0] & OPCODE == op.XTRIM:
            policy = policy_of_approximate(args)
            if policy is None:
                continue
            key, length = effect[2:4]
            stream = ctx.stream(key)
            added = args[0].upper() == b"XADD"
            before = (0 if stream is None else stream.length) + added
            row("approximate-policy")
            command = [b"XTRIM", key, b"MAXLEN", b"=", b"%d" % length, policy]
            out.append(Mend(command, "approximate-policy", before - length))
    return out


def unreferenced(ctx: Context, effects: list[Effect]) -> Iterator[Mend]:
    """The references that a trim of tidelog drops, and 8.2 keeps: those of entries that were deleted earlier."""
    for effect in effects:
        if effect[0] & OPCODE == op.XACK:
            key, name, ids = effect[2:5]
            stream = ctx.stream(key)
            assert stream is not None
            left = [text(id) for id in idlist.unpack(ids) if not stream.contains(id)]
            if left:
                row("delref-deleted")
                yield Mend([b"XACK", key, name, *left], "delref-deleted", len(left))


def xinfo_stream(form: list[Form]) -> list[Form]:
    items = list(pairs(form))
    assert items[7:13] == IDMP_DEFAULTS, items
    row("xinfo-idmp")
    del items[7:13]
    nodes = items[1][1]
    if nodes > 1:
        row("radix-tree-nodes")
        items[2] = (items[2][0], Between(nodes, 4 * nodes))
    if items[-1][0] == b"groups":
        items[-1] = (b"groups", [group(each) for each in items[-1][1]])
    return flat(items)


def group(form: list[Form]) -> list[Form]:
    items = dict(pairs(form))
    if b"nacked-count" in items:
        row("nacked-count")
        assert items.pop(b"nacked-count") == 0
    return flat(list(items.items()))
