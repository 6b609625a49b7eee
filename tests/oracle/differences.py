"""Where tidelog, which behaves as Redis 8.8, differs from the redis-server 7.0 it is compared with.

`TABLE` is the only place a difference may come from. Nothing is masked: for every row the 7.0 answer is
*computed* from tidelog's state and demanded of the server; where the two states would drift apart a *mend*
brings the server to tidelog's state, after a probe that saw the 7.0 value. The single thing that is only
bounded is a consumer's seen-time (row `seen-time`).

`expected` gives the reply 7.0 owes for a command that tidelog decided, `mends` the commands sent to the
server after it. Both run before the effects are applied, so they see the state the command saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.oracle.render import form as render
from tests.oracle.wire import Form, error, is_error

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.effects import effect as op
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.errors import CommandError
from tidelog.engine.groups.group import Group
from tidelog.engine.ids import parse
from tidelog.engine.streams import reading
from tidelog.engine.streams.stream import Stream


class Difference(NamedTuple):
    section: str  # of docs/reference/streams.md
    since: str  # the release that changed it
    says: str


TABLE: dict[str, Difference] = {
    "xinfo-idmp": Difference("8.1", "8.6", "XINFO STREAM has the six idempotency pairs"),
    "nacked-count": Difference("8.2", "8.8", "XINFO STREAM FULL has nacked-count in each group"),
    "active-time": Difference(
        "2.3, 8.2, 8.4", "7.2", "consumers have active-time, shown as inactive by XINFO CONSUMERS"
    ),
    "seen-time": Difference(
        "2.3", "7.2", "seen-time is the last attempt; it was the last time the consumer was served"
    ),
    "radix-tree-nodes": Difference(
        "2.4", "-", "the inner size of the tree means nothing beyond one node"
    ),
    "entries-read": Difference("9", "8.2", "entries-read of a delivery is computed another way"),
    "lag": Difference("9", "8.0", "lag is computed another way"),
    "entries-read-cap": Difference("7.1", "8.2.2", "ENTRIESREAD is lowered to entries-added"),
    "consumer-created": Difference(
        "7.2.1, 7.6, 7.7", "7.2", "reads and claims create their consumer even without result"
    ),
    "unbalanced": Difference(
        "6.3, 7.2", "8.0", "the text about unbalanced lists names the command and what it takes"
    ),
    "xread-plus": Difference("6.3", "7.4", "XREAD takes + as an ID"),
    "xreadgroup-plus": Difference("7.2", "7.4", "XREADGROUP explains why + is meaningless"),
    "xsetid-max-deleted": Difference(
        "5.6", "7.2", "XSETID refuses an ID below max-deleted-entry-id"
    ),
    "xadd-auto-seq": Difference(
        "5.1", "7.2", "XADD ms-* past the last sequence has the error of a too small ID"
    ),
    "block-overflow": Difference("4", "7.2", "a BLOCK beyond the end of time is refused"),
    "help": Difference("7.1, 8.4", "7.2", "HELP ends with `Print this help.`"),
    "xsetid-lowers": Difference(
        "5.6", "after 8.8", "XSETID lowers every group's entries-read to its ENTRIESADDED"
    ),
    "entries-added-max": Difference(
        "2.1", "-", "entries-added stops at 2^63-1; on the 7.0 server it turns negative"
    ),
    "memory-usage": Difference("14", "-", "MEMORY USAGE is the implementation's own number"),
    "refcount": Difference("14", "-", "OBJECT REFCOUNT is 1; Redis shares small integers"),
    "empty-node": Difference(
        "5.2",
        "after 8.8",
        "a node that a trim empties entry by entry goes; up to 8.8 it stayed, empty",
    ),
    "dbsize": Difference(
        "14", "-", "DBSIZE counts a key whose time has passed until something deletes it"
    ),
}

used: Counter[str] = Counter()  # how often each row was needed

# Whether the server lowers ENTRIESREAD to entries-added, so that commands cannot carry a higher one.
CAPS_ENTRIES_READ = False


class Between:
    """Equal to every integer from low to high: for what 7.0 does not keep exactly as 8.8 does."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.low <= other <= self.high

    def __repr__(self) -> str:
        return f"{self.low}..{self.high}"


class Anything:
    """Equal to every reply but an error."""

    def __eq__(self, other: object) -> bool:
        return not is_error(other)

    def __repr__(self) -> str:
        return "anything"


class Unordered:
    """Equal to a list of the same elements."""

    def __init__(self, items: list[Form]) -> None:
        self.items = sorted(items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and self.items == sorted(other)

    def __repr__(self) -> str:
        return f"unordered {self.items}"


class OneOf:
    """Equal to each of some replies."""

    def __init__(self, choices: list[Form]) -> None:
        self.choices = choices

    def __eq__(self, other: object) -> bool:
        return other in self.choices

    def __repr__(self) -> str:
        return f"one of {self.choices}"


class EntriesRead:
    """Equal to an XINFO GROUPS reply in which this group has this entries-read."""

    def __init__(self, group: bytes, value: int) -> None:
        self.group, self.value = group, None if value == -1 else value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list):
            return False
        found = {
            items[b"name"]: items[b"entries-read"]
            for items in (dict(pairs(each)) for each in other)
        }
        return self.group in found and found[self.group] == self.value

    def __repr__(self) -> str:
        return f"{self.group!r} with entries-read {self.value}"


class Mend(NamedTuple):
    """A command for the server alone, and the reply it must give."""

    args: list[bytes]
    row: str
    expect: Form


# --- counters as 7.0 computes them (t_stream.c of 7.0; spec 9, version differences)


class Facts(NamedTuple):
    """The facts of a stream that the formulas use."""

    first: int
    max_deleted: int
    added: int
    length: int
    last: int


def facts(stream: Stream) -> Facts:
    return Facts(
        stream.first_id(),
        stream.max_deleted_id,
        stream.entries_added,
        stream.length,
        stream.last_id,
    )


def tombstone_after_7_0(f: Facts, id: int) -> bool:
    if not f.length or not f.max_deleted or f.first > f.max_deleted:
        return False
    return id <= f.max_deleted


def estimate_7_0(f: Facts, id: int) -> int:
    if not f.added:
        return 0
    if not f.length and id <= f.last:
        return f.added
    if id == f.last:
        return f.added
    if id > f.last:
        return -1
    if not f.max_deleted or f.max_deleted < f.first:
        if id < f.first:
            return f.added - f.length
        if id == f.first:
            return f.added - f.length + 1
    return -1


def lag_7_0(f: Facts, last_delivered: int, entries_read: int) -> int | None:
    if not f.added:
        return 0
    if entries_read == -1 or tombstone_after_7_0(f, last_delivered):
        entries_read = estimate_7_0(f, last_delivered)
    return None if entries_read == -1 else f.added - entries_read


def entries_read_7_0(f: Facts, entries_read: int, delivered: list[int]) -> int:
    for id in delivered:
        if entries_read != -1 and not tombstone_after_7_0(f, id):
            entries_read += 1
        elif f.added:
            entries_read = estimate_7_0(f, id)
    return entries_read


# --- the same counters as 8.8 computes them (spec 9): what tidelog is held to where the server cannot say


def tombstone_after_8_8(f: Facts, id: int) -> bool:
    return bool(f.length and f.max_deleted and id <= f.max_deleted)


def estimate_8_8(f: Facts, id: int) -> int:
    if f.added and not (not f.length and id <= f.last) and id and id < f.max_deleted:
        return -1
    return estimate_7_0(f, id)


def lag_8_8(f: Facts, last_delivered: int, entries_read: int) -> int | None:
    if not f.added or not f.length:
        return 0
    if last_delivered < f.first and f.max_deleted < f.first:
        return f.length
    if entries_read == -1 or tombstone_after_8_8(f, last_delivered):
        entries_read = estimate_8_8(f, last_delivered)
    return None if entries_read == -1 else f.added - entries_read


def entries_read_8_8(f: Facts, last_id: int, entries_read: int, delivered: list[int]) -> int:
    for id in delivered:
        if entries_read != -1 and last_id >= f.first and not tombstone_after_8_8(f, last_id):
            entries_read += 1
        elif f.added:
            entries_read = estimate_8_8(f, id)
        last_id = id
    return entries_read


# --- replies


IDMP_DEFAULTS: list[tuple[bytes, int]] = [
    (b"idmp-duration", 100),
    (b"idmp-maxsize", 100),
    (b"pids-tracked", 0),
    (b"iids-tracked", 0),
    (b"iids-added", 0),
    (b"iids-duplicates", 0),
]
I64_MAX = (1 << 63) - 1
BLOCK_OVERFLOW = error(b"ERR timeout is out of range")
INVALID_ID = error(b"ERR Invalid stream ID specified as stream command argument")
UNBALANCED_8 = (
    error(
        b"ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
    ),
    error(
        b"ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
    ),
)
UNBALANCED_7 = error(
    b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
)


def row(name: str) -> None:
    assert name in TABLE
    used[name] += 1


def pairs(flat: list[Form]) -> Iterator[tuple[bytes, Form]]:
    return zip(flat[::2], flat[1::2], strict=True)


def flat(items: list[tuple[bytes, Form]]) -> list[Form]:
    return [word for item in items for word in item]


def expected(ctx: Context, args: list[bytes], form: Form, effects: list[Effect]) -> Form:
    """The reply that 7.0 owes where tidelog answers `form`."""
    name = args[0].upper()
    if name in (b"XREAD", b"XREADGROUP"):
        return read_7_0(ctx, args, form)
    if name == b"XINFO" and isinstance(form, list):
        sub = args[1].upper()
        if sub == b"STREAM":
            return xinfo_stream_7_0(ctx, args[2], form)
        if sub == b"GROUPS":
            return [group_7_0(ctx, args[2], group) for group in form]
        if sub == b"CONSUMERS":
            return [consumer_7_0(consumer) for consumer in form]
    if len(args) > 1 and args[1].upper() == b"HELP" and isinstance(form, list):
        if form[-1] == ("+", b"    Print this help."):
            row("help")
            return [*form[:-1], ("+", b"    Prints this help.")]
    if name == b"XSETID" and is_error(form) and b"current max_deleted_entry_id" in form[1]:
        row("xsetid-max-deleted")
        return xsetid_7_0(ctx, args)
    if name == b"RANDOMKEY" and isinstance(form, bytes):
        return OneOf(what_if(ctx, [b"KEYS", b"*"]))
    if name == b"MEMORY" and isinstance(form, int) and form > 0:
        row("memory-usage")
        return Between(1, 1 << 62)
    if name == b"OBJECT" and form == 1 and args[1].upper() == b"REFCOUNT":
        return refcount_7_0(ctx, args[2])
    if name == b"XADD" and is_error(form) and b"equal or smaller" in form[1]:
        return xadd_7_0(ctx, args, form)
    if name == b"KEYS" and isinstance(form, list):
        return Unordered(form)
    if name == b"DBSIZE" and isinstance(form, int):
        passed = sum(at < ctx.now for at in ctx.database.expires.values())
        if passed:
            row("dbsize")
            return Between(form - passed, form)
    if name == b"SCAN" and isinstance(form, list):
        return [form[0], Unordered(form[1])]
    return form


def read_7_0(ctx: Context, args: list[bytes], form: Form) -> Form:
    if form in UNBALANCED_8:
        row("unbalanced")
        return UNBALANCED_7
    if is_error(form) and form[1].startswith(b"ERR The + ID is meaningless"):
        row("xreadgroup-plus")
        return INVALID_ID
    if form == BLOCK_OVERFLOW:
        # A read of a group that serves something would part the states: the grammar does not make any.
        row("block-overflow")
        return block_overflow_7_0(ctx, args)
    if args[0].upper() == b"XREAD" and b"+" in args:
        return xread_plus_7_0(ctx, args, form)
    return form


def xread_plus_7_0(ctx: Context, args: list[bytes], form: Form) -> Form:
    """7.0 refuses the first `+`, unless what stands before it is refused earlier."""
    words = [arg.upper() for arg in args]
    if b"STREAMS" not in words:
        return form
    at = words.index(b"STREAMS") + 1
    count, odd = divmod(len(args) - at, 2)
    ids = args[at + count :]
    if odd or b"+" not in ids:
        return form
    first = ids.index(b"+")
    before = what_if(ctx, [*args[:at], *args[at : at + first + 1], *ids[:first], b"0"])
    if is_error(before):
        return before
    row("xread-plus")
    return INVALID_ID


def xsetid_7_0(ctx: Context, args: list[bytes]) -> Form:
    """The checks that 7.0 makes after the one it lacks."""
    stream = ctx.stream(args[1])
    assert stream is not None
    last_id = parse(args[2])
    if stream.length and last_id < stream.last_live_id():
        return error(b"ERR The ID specified in XSETID is smaller than the target stream top item")
    words = [arg.upper() for arg in args]
    if stream.length and b"ENTRIESADDED" in words:
        added = max(i for i, word in enumerate(words) if word == b"ENTRIESADDED")
        if int(args[added + 1]) < stream.length:
            return error(
                b"ERR The entries_added specified in XSETID is smaller than the target stream length"
            )
    return ("+", b"OK")


def xadd_7_0(ctx: Context, args: list[bytes], form: Form) -> Form:
    stream = ctx.stream(args[1])
    if stream is not None:
        ms, seq = divmod(stream.last_id, 1 << 64)
        if seq == (1 << 64) - 1 and b"%d-*" % ms in args:
            row("xadd-auto-seq")
            return error(b"ERR Elements are too large to be stored")
    return form


def xinfo_stream_7_0(ctx: Context, key: bytes, form: list[Form]) -> list[Form]:
    items = list(pairs(form))
    assert items[7:13] == IDMP_DEFAULTS, items
    row("xinfo-idmp")
    del items[7:13]
    nodes = items[1][1]
    if nodes > 1:
        row("radix-tree-nodes")
        items[2] = (items[2][0], Between(nodes, 4 * nodes))
    if items[-1][0] == b"groups":
        items[-1] = (b"groups", [group_7_0(ctx, key, group) for group in items[-1][1]])
    return flat(items)


def group_7_0(ctx: Context, key: bytes, form: list[Form]) -> list[Form]:
    """One group of XINFO GROUPS or XINFO STREAM FULL."""
    items = dict(pairs(form))
    if b"nacked-count" in items:
        row("nacked-count")
        assert items.pop(b"nacked-count") == 0
    stream = ctx.stream(key)
    assert stream is not None
    group = stream.groups[items[b"name"]]
    known = facts(stream)
    assert items[b"lag"] == lag_8_8(known, group.last_id, group.entries_read), (known, form)
    lag = lag_7_0(known, group.last_id, group.entries_read)
    if lag != items[b"lag"]:
        row("lag")
        items[b"lag"] = lag
    if isinstance(items[b"consumers"], list):
        items[b"consumers"] = [consumer_7_0(consumer) for consumer in items[b"consumers"]]
    return flat(list(items.items()))


def consumer_7_0(form: list[Form]) -> list[Form]:
    """One consumer of XINFO CONSUMERS (idle, inactive) or XINFO STREAM FULL (seen-time, active-time).

    7.0's seen-time is the last time the consumer was served: not after the last attempt, and not before the
    last time it received something.
    """
    items = dict(pairs(form))
    row("active-time")
    if b"inactive" in items:
        idle, inactive = items[b"idle"], items.pop(b"inactive")
        if idle != inactive:
            row("seen-time")
            items[b"idle"] = Between(idle, inactive if inactive >= 0 else 1 << 62)
    else:
        seen, active = items[b"seen-time"], items.pop(b"active-time")
        if seen != active:
            row("seen-time")
            items[b"seen-time"] = Between(max(active, 0), seen)
    return flat(list(items.items()))


def what_if(ctx: Context, args: list[bytes]) -> Form:
    """The answer that tidelog would give; nothing changes."""
    other = Context(ctx.state, ctx.settings)
    other.db, other.now, other.may_block = ctx.db, ctx.now, False
    try:
        return render(decide(other, args))
    except CommandError as refused:
        return error(refused.line)


def refcount_7_0(ctx: Context, key: bytes) -> Form:
    """A small integer is shared unless it came by COPY, which tidelog cannot know."""
    value = ctx.lookup(key)
    if (
        isinstance(value, bytes)
        and what_if(ctx, [b"OBJECT", b"ENCODING", key]) == b"int"
        and 0 <= int(value) < 10_000
    ):
        row("refcount")
        return OneOf([1, 2**31 - 1])
    return 1


def block_overflow_7_0(ctx: Context, args: list[bytes]) -> Form:
    """7.0 adds the timeout to its clock unchecked and goes on."""
    args = [b"0" if arg.isdigit() and int(arg) > I64_MAX - ctx.now else arg for arg in args]
    return read_7_0(ctx, args, what_if(ctx, args))


# --- mends


def mends(ctx: Context, args: list[bytes], form: Form, effects: list[Effect]) -> list[Mend]:
    """Commands that bring the server to the state that `effects` are about to give tidelog."""
    name = args[0].upper()
    if name == b"XSETID" and is_error(form) and b"current max_deleted_entry_id" in form[1]:
        return [undo_xsetid(ctx, args)] if xsetid_7_0(ctx, args) == ("+", b"OK") else []
    if name == b"XSETID":
        return list(lowered(effects))
    if name == b"XREAD":
        return list(expired_by_plus(effects))
    if name == b"XADD":
        return list(counter_saturated(ctx, effects))
    if name == b"XGROUP":
        return list(counters_mended(ctx, args, effects, explicit=True))
    if name == b"XREADGROUP":
        return [*consumers_created(effects), *counters_mended(ctx, args, effects, explicit=False)]
    if name in (b"XCLAIM", b"XAUTOCLAIM"):
        return list(consumers_created(effects))
    return []


def expired_by_plus(effects: list[Effect]) -> Iterator[Mend]:
    """Where 7.0 stops at a `+`, tidelog may have met a key beyond it whose time has passed, and deleted it."""
    for effect in effects:
        if effect[0] & OPCODE == op.DEL:
            yield Mend([b"EXISTS", *effect[2]], "xread-plus", 0)


def counter_saturated(ctx: Context, effects: list[Effect]) -> Iterator[Mend]:
    for effect in effects:
        if effect[0] & OPCODE in (op.XADD, op.XADD_NODE):
            key, ms, seq = effect[2:5]
            stream = ctx.stream(key)
            if stream is not None and stream.entries_added == I64_MAX:
                row("entries-added-max")
                setid = [b"XSETID", key, b"%d-%d" % (ms, seq), b"ENTRIESADDED", b"%d" % I64_MAX]
                yield Mend(setid, "entries-added-max", ("+", b"OK"))


def lowered(effects: list[Effect]) -> Iterator[Mend]:
    """The commands that do to the groups what an XSETID of tidelog does to them, one for each."""
    for effect in effects:
        if effect[0] & OPCODE == op.XGROUP_SETID:
            key, group, ms, seq, read = effect[2:7]
            row("xsetid-lowers")
            at = b"%d-%d" % (ms, seq)
            setid = [b"XGROUP", b"SETID", key, group, at, b"ENTRIESREAD", b"%d" % read]
            yield Mend(setid, "xsetid-lowers", ("+", b"OK"))


def nodes_emptied(ctx: Context, effects: list[Effect]) -> list[Mend]:
    """To be asked after the effects were applied: a trim of nothing that drops the nodes tidelog has dropped.

    All it can drop are nodes without a live entry that come before the first node of tidelog.
    """
    out: list[Mend] = []
    for effect in effects:
        if effect[0] & OPCODE == op.XTRIM:
            key = effect[2]
            stream = ctx.state.databases[effect[1]].keys[key]
            assert isinstance(stream, Stream)
            first = next(stream.walk()).first if stream.nodes() else (1 << 128) - 1
            row("empty-node")
            out.append(Mend([b"XTRIM", key, b"MINID", b"=", id_text(first)], "empty-node", 0))
    return out


def id_text(id: int) -> bytes:
    return b"%d-%d" % (id >> 64, id & (1 << 64) - 1)


def undo_xsetid(ctx: Context, args: list[bytes]) -> Mend:
    stream = ctx.stream(args[1])
    assert stream is not None
    command = [
        b"XSETID", args[1], id_text(stream.last_id), b"ENTRIESADDED", b"%d" % stream.entries_added,
        b"MAXDELETEDID", id_text(stream.max_deleted_id),
    ]  # fmt: skip
    return Mend(command, "xsetid-max-deleted", ("+", b"OK"))


def consumers_created(effects: list[Effect]) -> Iterator[Mend]:
    for effect in effects:
        code = effect[0] & OPCODE
        if code == op.XGROUP_CREATECONSUMER or (code == op.DELIVER and not effect[5]):
            key, group, consumer = effect[2:5]
            row("consumer-created")
            command = [b"XGROUP", b"CREATECONSUMER", key, group, consumer]
            yield Mend(command, "consumer-created", Anything())


def counters_mended(
    ctx: Context, args: list[bytes], effects: list[Effect], explicit: bool
) -> Iterator[Mend]:
    """A probe that sees 7.0's entries-read, and a SETID that replaces it, where 8.8's is another."""
    # Of each group: last ID and entries-read of 7.0 so far, and entries-read of tidelog. A key may be read twice.
    reached: dict[tuple[bytes, bytes], tuple[int, int, int]] = {}
    for effect in effects:
        code = effect[0] & OPCODE
        if code == op.DELIVER and len(effect) > 9:
            key, name = effect[2:4]
            last_id, entries_read = effect[9] << 64 | effect[10], effect[11]
        elif code in (op.XGROUP_SETID, op.XGROUP_CREATE):
            key, name = effect[2:4]
            last_id, entries_read = effect[4] << 64 | effect[5], effect[6]
        else:
            continue
        if explicit:
            yield from capped(args, key, name, last_id, entries_read)
            continue
        stream = ctx.stream(key)
        assert stream is not None
        group: Group = stream.groups[name]
        at = (key, name)
        start = (group.last_id, group.entries_read, group.entries_read)
        before_id, old, new = reached.get(at, start)
        delivered = [id for id, _ in reading.between(stream, before_id + 1, last_id)]
        known = facts(stream)
        assert entries_read == entries_read_8_8(known, before_id, new, delivered), (
            known,
            new,
            entries_read,
        )
        reached[at] = last_id, entries_read_7_0(known, old, delivered), entries_read
    for (key, name), (last_id, old, new) in reached.items():
        if old != new:
            yield from replaced("entries-read", key, name, last_id, old, new)


def capped(
    args: list[bytes], key: bytes, name: bytes, last_id: int, entries_read: int
) -> Iterator[Mend]:
    words = [arg.upper() for arg in args]
    if b"ENTRIESREAD" not in words[5:]:
        return
    at = max(i for i, word in enumerate(words) if word == b"ENTRIESREAD")
    given = int(args[at + 1])
    if given != entries_read:
        yield from replaced("entries-read-cap", key, name, last_id, given, entries_read)


def replaced(why: str, key: bytes, name: bytes, last_id: int, old: int, new: int) -> Iterator[Mend]:
    row(why)
    yield Mend([b"XINFO", b"GROUPS", key], why, EntriesRead(name, old))
    setid = [b"XGROUP", b"SETID", key, name, id_text(last_id), b"ENTRIESREAD", b"%d" % new]
    yield Mend(setid, why, ("+", b"OK"))
