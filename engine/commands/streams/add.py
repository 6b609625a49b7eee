"""XADD of one entry and of many (spec 5.1). This module decides where a node ends; apply follows the decision.

Three functions bypass the general parser:

    decide_xadd_auto   one `XADD key * field value ...` without options. The general path is `xadd`; a test compares the
                       effects of both.
    decide_xadd_run    one record for several such commands, as many as fit into the open node
    decide_xadd_many   one record for many rows, with full nodes already sealed. Nodes end where single adds end them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, Final

from tidelog.engine import idlist, ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.streams.idempotent import recorded_at, settle_limits
from tidelog.engine.commands.streams.trim import TrimOptions, log_trim, plan_trim
from tidelog.engine.commands.table import command
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END, XADD, XADD_MANY, XADD_NODE, Effect
from tidelog.engine.errors import WRONGTYPE, CommandError
from tidelog.engine.fast_path import fast_path
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.reply import Reply
from tidelog.engine.streams import listpack
from tidelog.engine.streams.block import EntryRow, encode, encode_run
from tidelog.engine.streams.idmp import auto_iid
from tidelog.engine.streams.node import (
    NODE_BYTES_BASE,
    SEPARATOR,
    SEQ_LARGE_BYTES,
    SEQ_SMALL_MAX,
    Node,
    rows_bytes_max,
)
from tidelog.engine.streams.stream import Stream

# the most bytes that the fields and values of one entry may have; the same limit holds for one node
ELEMENTS_BYTES_MAX: Final = 1 << 30

HEAD_ROWS: Final = 16  # how many rows `_head` measures at once

ARITY: Final = b"ERR wrong number of arguments for 'xadd' command"
ZERO_ID: Final = b"ERR The ID specified in XADD must be greater than 0-0"
EXHAUSTED: Final = b"ERR The stream has exhausted the last possible ID, unable to add more items"
NOT_GREATER: Final = (
    b"ERR The ID specified in XADD is equal or smaller than the target stream top item"
)
TOO_LARGE: Final = b"ERR Elements are too large to be stored"
IDMP_TWICE: Final = b"ERR syntax error, IDMP/IDMPAUTO specified multiple times"
IDMP_EMPTY_PID: Final = b"ERR syntax error, %b requires a non-empty producer ID"
IDMP_EMPTY_IID: Final = b"ERR syntax error, IDMP requires a non-empty idempotent ID"
IDMP_EXPLICIT: Final = b"ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"


# --- one entry, no options


@fast_path(
    of="engine.commands.streams.add:_add",
    held_by="tests/engine/streams/test_stream.py::test_many_cuts_nodes_where_single_adds_do",
)
def decide_xadd_auto(
    state: State,
    settings: Settings,
    db: int,
    key: bytes,
    row: EntryRow,
    now: int,
    end: int = END,
) -> Effect | None:
    """Decide `XADD key * field value ...`. Returns its one effect, a unit by itself; the ID is effect[3], effect[4].

    The caller has already logged the DEL of an expired key. Returns None in the rare case that needs more than one
    effect; the caller then uses `xadd`. `end` is 0 if the effect is not the last of its unit. Raises CommandError.
    """
    keys = state.databases[db].keys
    try:
        stream: Stream | bytes | None = keys[key]
    except KeyError:
        stream = None
    keys.accessed[key] = now
    if stream.__class__ is Stream:
        last_id = stream.last_id
        ms = last_id >> 64
        if now > ms:
            ms, seq = now, 0
        else:
            seq = (last_id & SEQ_MAX) + 1
            if seq > SEQ_MAX:
                last_id = next_id(last_id, now)
                ms, seq = last_id >> 64, last_id & SEQ_MAX
        # This is the fast path of `place`. It is taken if the upper bound of the size shows that the entry fits.
        if ms < stream.tail_until and len(stream.tail_ids) < settings.stream_node_max_entries:
            bound = stream.tail_bound + len(SEPARATOR.join(row))
            if bound < settings.stream_node_max_bytes and bound < ELEMENTS_BYTES_MAX:
                return (XADD + end, db, key, ms, seq, row)
        new_node, reopened = place(stream, settings, ms << 64 | seq, row)
        if reopened is not None:
            return None
        return ((XADD_NODE if new_node else XADD) + end, db, key, ms, seq, row)
    if stream is not None:
        raise CommandError(WRONGTYPE)
    if sum(map(len, row)) > ELEMENTS_BYTES_MAX:
        raise CommandError(TOO_LARGE)
    first = next_id(0, now)
    return (XADD_NODE + end, db, key, first >> 64, first & SEQ_MAX, row)


@fast_path(
    of="engine.commands.streams.add:decide_xadd_auto",
    held_by="tests/store/test_fast_paths.py::test_pipelines_of_plain_xadds",
)
def decide_xadd_run(
    state: State,
    settings: Settings,
    db: int,
    key: bytes,
    rows: Sequence[EntryRow],
    now: int,
    end: int = END,
) -> Effect | None:
    """Decide several `XADD key * field value ...`, as many as certainly fit into the open node.

    Returns one effect, a unit by itself; effect[5] has its rows. Returns None if fewer than two fit; the caller then
    decides the first command by `decide_xadd_auto`. Same precondition and same nodes as that function.
    """
    stream = state.databases[db].keys.get(key)
    if stream.__class__ is not Stream:
        return None
    entry_id = stream.last_id + 1
    ms, seq = entry_id >> 64, entry_id & SEQ_MAX
    if now > ms:
        ms, seq = now, 0
    slots = len(stream.tail_ids)
    room = min(settings.stream_node_max_entries - slots, len(rows))
    if not slots or ms >= stream.tail_until or seq + room > stream.tail_small:
        return None
    bytes_max = min(settings.stream_node_max_bytes, ELEMENTS_BYTES_MAX) - stream.tail_bound
    while room > 1:
        most = rows_bytes_max(rows[:room], room)
        if most < bytes_max:
            state.databases[db].keys.accessed[key] = now
            return (XADD_MANY + end, db, key, ms, seq, tuple(rows[:room]), (), ())
        room = min(room - 1, room * bytes_max // most)
    return None


def next_id(last_id: int, now: int) -> int:
    """The ID that `*` stands for. `now`: unix ms. Raises CommandError if the stream has used the last ID."""
    if now > last_id >> 64:
        return now << 64
    if last_id == ids.MAX:
        raise CommandError(EXHAUSTED)
    return last_id + 1


def place(
    stream: Stream, settings: Settings, entry_id: int, row: EntryRow
) -> tuple[bool, Node | None]:
    """(whether the entry starts a new node, the sealed node that must be reopened for it or None).

    Exactly Redis's decision (spec 2.4). Raises CommandError if the entry is too large for any node, and CorruptBlock.
    """
    size = sum(map(len, row))
    if size > ELEMENTS_BYTES_MAX:
        raise CommandError(TOO_LARGE)
    slots_max = settings.stream_node_max_entries
    bytes_max = _node_bytes_max(settings)
    if stream.tail_ids:
        if len(stream.tail_ids) >= slots_max > 0 or entry_id <= stream.tail_ids[-1]:
            return True, None
        if entry_id >> 64 < stream.tail_until and stream.tail_bound + size < bytes_max:
            return False, None
        return stream.tail_bytes() + size >= bytes_max, None
    node = stream.last_sealed()
    if node is None or node.count >= slots_max > 0 or entry_id <= node.last:
        return True, None
    if node.node_bytes() + size >= bytes_max:
        return True, None
    return False, node


def reopen_effect(db: int, key: bytes, node: Node) -> Effect:
    """The XREOPEN effect for a sealed node. Raises CorruptBlock."""
    deleted = node.deleted.to_bytes((node.count + 7) // 8, "little")
    return (e.XREOPEN, db, key, idlist.pack(node.ids()), tuple(node.rows()), deleted)


def _node_bytes_max(settings: Settings) -> int:
    given = settings.stream_node_max_bytes
    return given if 0 < given < ELEMENTS_BYTES_MAX else ELEMENTS_BYTES_MAX


# --- one entry, any options


@command("xadd", -5, "write denyoom fast")
def xadd(ctx: Context, args: list[bytes]) -> Reply:
    """XADD key [NOMKSTREAM] [policy] [IDMPAUTO pid | IDMP pid iid] [trimming] <* | id> field value [...]"""
    key = args[1]
    if args[2] == b"*":
        row = tuple(args[3:])
        if len(row) & 1:
            raise CommandError(ARITY)
        database = ctx.state.databases[ctx.db]
        if not database.expires.count or database.keys.expire_at(key) > ctx.now:
            effect = decide_xadd_auto(ctx.state, ctx.settings, ctx.db, key, row, ctx.now, 0)
            if effect is not None:
                ctx.effects.append(effect)
                return b"%d-%d" % (effect[3], effect[4])
        return _add(ctx, key, None, row, TrimOptions(), False, None)
    return _xadd_with_options(ctx, args)


def _xadd_with_options(ctx: Context, args: list[bytes]) -> Reply:
    options = TrimOptions()
    may_create = True
    idmp: tuple[bytes, bytes | None] | None = None
    given: tuple[int, int | None] | None = None
    at = 2
    while at < len(args) and args[at] != b"*":
        taken = options.take(args, at)
        if not taken:
            word = args[at].upper()
            more = len(args) - 1 - at
            if word == b"NOMKSTREAM":
                may_create = False
                taken = 1
            elif word == b"IDMPAUTO" and more or word == b"IDMP" and more >= 2:
                taken = 2 if word == b"IDMPAUTO" else 3
                idmp = _take_idmp(word, args[at + 1 : at + taken], idmp)
            else:
                if idmp is not None and args[at][:1] != b"*":
                    raise CommandError(IDMP_EXPLICIT)
                given = ids.parse_add(args[at])
                break
        at += taken
    options.finish(strategy_required=False)
    row = tuple(args[at + 1 :])
    if not row or len(row) & 1:
        raise CommandError(ARITY)
    if given == (0, 0):
        raise CommandError(ZERO_ID)
    return _add(ctx, args[1], given, row, options, not may_create, idmp)


def _take_idmp(
    word: bytes, values: list[bytes], before: tuple[bytes, bytes | None] | None
) -> tuple[bytes, bytes | None]:
    if before is not None:
        raise CommandError(IDMP_TWICE)
    if not values[0]:
        raise CommandError(IDMP_EMPTY_PID % word)
    if word == b"IDMPAUTO":
        return values[0], None
    if not values[1]:
        raise CommandError(IDMP_EMPTY_IID)
    return values[0], values[1]


def _add(
    ctx: Context,
    key: bytes,
    given: tuple[int, int | None] | None,
    row: EntryRow,
    options: TrimOptions,
    existing_only: bool,
    idmp: tuple[bytes, bytes | None] | None,
) -> Reply:
    """Decide an XADD whose arguments are parsed.

    given: the ID as (ms, seq), None for `*`; seq None for `ms-*`. idmp: (pid, iid) or None; iid None: IDMPAUTO, which
    takes a digest of the row.
    """
    stream = ctx.stream(key)
    if stream is None and existing_only:
        return None
    pid = iid = b""
    if idmp is not None:
        pid, iid = idmp[0], idmp[1] if idmp[1] is not None else auto_iid(row)
        known = stream.idmp.lookup(pid, iid, ctx.now) if stream and stream.idmp else None
        if known is not None:
            ctx.effects.append((e.IDMP_DUPLICATE, ctx.db, key, pid, iid))
            return ids.text(known)
    entry_id = _new_id(stream.last_id if stream is not None else 0, given, ctx.now)
    new_node, reopened = True, None
    if stream is not None:
        new_node, reopened = place(stream, ctx.settings, entry_id, row)
        if reopened is not None:
            ctx.effects.append(reopen_effect(ctx.db, key, reopened))
    elif sum(map(len, row)) > ELEMENTS_BYTES_MAX:
        raise CommandError(TOO_LARGE)
    place_of = (ctx.db, key, entry_id >> 64, entry_id & SEQ_MAX, row)
    if idmp is None:
        ctx.effects.append((XADD_NODE if new_node else XADD, *place_of))
    else:
        settle_limits(ctx, key, stream)
        time = recorded_at(ctx, entry_id >> 64)
        ctx.effects.append((e.XADD_IDMP, *place_of, int(new_node), pid, iid, *time))
    if options.strategy is not None:
        before = stream if stream is not None else Stream(0)
        nodes = _NodesAfter(before, new_node, entry_id, row)
        plan = plan_trim(before, nodes, before.length + 1, options, ctx.settings)
        log_trim(ctx, key, before, nodes, options, before.length + 1, plan)
    return ids.text(entry_id)


def _new_id(last_id: int, given: tuple[int, int | None] | None, now: int) -> int:
    if last_id == ids.MAX:
        raise CommandError(EXHAUSTED)
    if given is None:
        return next_id(last_id, now)
    ms, seq = given
    if seq is None:
        same_ms = ms == last_id >> 64
        if same_ms and last_id & SEQ_MAX == SEQ_MAX:
            raise CommandError(NOT_GREATER)
        entry_id = last_id + 1 if same_ms else ms << 64
    else:
        entry_id = ms << 64 | seq
    if entry_id <= last_id:
        raise CommandError(NOT_GREATER)
    return entry_id


class _NodesAfter:
    """The nodes of a stream as they will be after the add. Implements `trim.Nodes`."""

    __slots__ = ("_stream", "_new_node", "_entry_id", "_row")

    def __init__(self, stream: Stream, new_node: bool, entry_id: int, row: EntryRow) -> None:
        self._stream = stream
        self._new_node = new_node or not stream.nodes()
        self._entry_id = entry_id
        self._row = row

    def nodes(self) -> int:
        """The number of nodes after the add."""
        return self._stream.nodes() + self._new_node

    def walk(self) -> Iterator[Node]:
        """Yield the nodes, ascending. May raise CorruptBlock."""
        last: Node | None = None
        for node in self._stream.walk():
            if last is not None:
                yield last
            last = node
        yield from self._ending(last)

    def walk_back(self) -> Iterator[Node]:
        """Yield the nodes, descending. May raise CorruptBlock."""
        nodes = self._stream.walk_back()
        yield from reversed(self._ending(next(nodes, None)))
        yield from nodes

    def _ending(self, last: Node | None) -> list[Node]:
        """The nodes that replace the last node: one or two."""
        entry_id, row = self._entry_id, self._row
        if last is not None and not self._new_node:
            slot_ids, rows = [*last.ids(), entry_id], [*last.rows(), row]
            return [Node(last.ordinal, last.deleted, last.first, entry_id, None, slot_ids, rows)]
        if last is None:
            return [
                Node(self._stream.first_ordinal, 0, entry_id, entry_id, None, [entry_id], [row])
            ]
        return [last, Node(last.ordinal + 1, 0, entry_id, entry_id, None, [entry_id], [row])]


# --- many entries


def decide_xadd_many(
    ctx: Context, key: bytes, rows: Sequence[Any] | Alike, first: int | None = None
) -> tuple[int, int, int]:
    """Add many entries with auto IDs of one millisecond. Returns (ms, seq of the first, number of entries).

    first: the ID of the first entry, above the stream's last ID; the others follow it without a gap. None: auto IDs.

    A row is a dict, or a flat sequence (field, value, ...), of bytes or str; int and float work too, but slower. `rows`
    may also be an `Alike`. Appends one XADD_MANY to ctx.effects, after an XREOPEN if a sealed node must be reopened.
    Nodes end where single adds would end them. Raises CommandError, TypeError for other values, UnicodeEncodeError.
    """
    stream = ctx.stream(key)
    if not rows:
        return 0, 0, 0
    if first is None:
        first = _first_of_many(stream.last_id if stream is not None else 0, ctx.now, len(rows))
    ms, seq = first >> 64, first & SEQ_MAX
    batch = _batch(rows)
    head: tuple[EntryRow, ...] = ()
    reopened: Node | None = None
    if stream is not None:
        new_node, reopened = place(stream, ctx.settings, first, batch.row(0))
        if not new_node:
            head = _head(ctx.settings, stream, reopened, first, batch)
    blocks, start = _seal(ctx.settings, ms, seq, batch, len(head))
    tail = tuple(batch.rows_of(start, len(rows)))
    if reopened is not None:
        ctx.effects.append(reopen_effect(ctx.db, key, reopened))
    ctx.effects.append((XADD_MANY, ctx.db, key, ms, seq, head, tuple(blocks), tail))
    return ms, seq, len(rows)


def decide_xadd_at(ctx: Context, key: bytes, entry_id: int, row: EntryRow) -> None:
    """`XADD key ms-seq field value ...`. Raises CommandError if the ID is not above the stream's last ID."""
    given = entry_id >> 64, entry_id & SEQ_MAX
    _add(ctx, key, given, row, TrimOptions(), False, None)


def _first_of_many(last_id: int, now: int, count: int) -> int:
    first = next_id(last_id, now)
    if (first & SEQ_MAX) + count - 1 > SEQ_MAX:
        first = (first >> 64) + 1 << 64
        if first > ids.MAX:
            raise CommandError(EXHAUSTED)
    return first


class _Batch:
    """The rows of many adds.

    names    the fields, bytes or str, if all rows have the same ones; `values` then has the values of all rows, flat
    rows     the rows, if `names` is None
    """

    __slots__ = (
        *("count", "names", "values", "rows", "texts", "sized"),
        *("_costs", "_lengths", "_ends", "_longest", "_master", "_fields_length"),
    )

    def __init__(
        self,
        count: int,
        names: tuple[bytes | str, ...] | None,
        values: list[Any],
        rows: list[EntryRow],
        texts: bool = False,
    ) -> None:
        self.count, self.names, self.values, self.rows = count, names, values, rows
        self.texts = texts  # some values are str
        # Whether `measure` was called. The first node whose cheap bound exceeds the limit causes the call, because
        # later nodes probably exceed it too.
        self.sized = False
        # Sizes in bytes. `measure` sets them; without `names` it sets only `_lengths` and `_longest`.
        #   _lengths        for each row: its values; without `names` also its fields
        #   _costs          for each row: its size in Redis, if its node has up to 128 slots
        #   _ends           for each row: the sum of `_costs` of all rows before it
        #   _longest        the greatest of `_lengths`
        #   _master         the node's master entry
        #   _fields_length  the field names
        self._lengths: list[int] = []
        self._costs: list[int] = []
        self._ends: list[int] = []
        self._longest = self._master = self._fields_length = 0

    def row(self, at: int) -> EntryRow:
        """One row, converted to bytes."""
        return self.rows_of(at, at + 1)[0]

    def rows_of(self, start: int, stop: int) -> list[EntryRow]:
        """Rows start..stop-1, converted to bytes."""
        if self.names is None:
            return self.rows[start:stop]
        width = len(self.names)
        columns: list[Iterable[bytes]] = []
        values = self.values[start * width : stop * width]
        if self.texts:
            values = list(map(to_bytes, values))
        for at, name in enumerate(map(to_bytes, self.names)):
            columns += (repeat(name), values[at::width])
        return list(zip(*columns))

    def seal(self, ms: int, seq: int, start: int, stop: int) -> bytes:
        """Rows start..stop-1 as a sealed block with IDs ms-seq, ms-(seq+1), ..."""
        if self.names is None:
            first = ms << 64 | seq
            return encode(range(first, first + stop - start), self.rows[start:stop])
        width = len(self.names)
        return encode_run(
            ms, seq, stop - start, self.names, self.values[start * width : stop * width]
        )

    def bytes_max(self, count: int, sealed_bytes: int) -> int:
        """An upper bound of the size that Redis compares with the byte limit for the last of `count` entries.

        A sealed block stores each value with a header of 1 to 5 bytes. A listpack adds at most 2 bytes for each value,
        or 1/32 of its length; per entry flags 2, ms diff 2, seq diff 3, lp-count 3; and the fields twice.
        """
        if self.names is None or count > SEQ_SMALL_MAX:
            return ELEMENTS_BYTES_MAX
        width = len(self.names)
        fields = 2 * sum(4 * len(name) + 10 for name in self.names)  # 4: of a str, UTF-8
        return (
            sealed_bytes + (sealed_bytes >> 5) + count * (10 + 2 * width) + fields + NODE_BYTES_BASE
        )

    def longer_than(self, length: int, start: int, stop: int) -> bool:
        """True if the values of rows start..stop-1 certainly have more than `length` bytes together; else False."""
        if self.names is None:
            return False
        width = len(self.names)
        return sum(map(len, self.values[start * width : stop * width])) > length

    def cut(self, first: int, start: int, stop: int, bytes_max: int) -> int:
        """The row after the last one of the node that starts at row `start` with ID `first`; at most `stop`. Exact."""
        if not self.sized:
            self.measure()
        lengths = self._lengths
        if self.names is not None:
            used = self._master
            if stop - start <= 128:
                # `_ends` includes the flags, an ms diff of 0, the seq diff and lp-count of each row. The two counters
                # of a node take 4 bytes for up to 127 slots.
                ends = self._ends
                limit = bytes_max - used - 4 - self._fields_length + ends[start]
                at = bisect_left(ends, limit - self._longest, start + 1, stop)
                while at < stop and ends[at] + lengths[at] < limit:
                    at += 1
                return at
            used += self._fields_length
            seq_diff, counters = 2, 4  # up to 127
            both = zip(lengths[start:stop], self._costs[start:stop])
            for slots, (length, cost) in enumerate(both):
                if slots > 127:
                    seq_diff, counters = listpack.int_size(slots), listpack.counters_size(slots, 0)
                if used + counters + length >= bytes_max and slots:
                    return start + slots
                used += cost - 2 + seq_diff
        else:
            fields = self.row(start)[::2]
            used = listpack.master_size(fields)
            rows = self.rows[start:stop]
            ids_of = range(first, first + stop - start)
            for slots, cost in enumerate(listpack.entry_sizes(ids_of, rows, first, fields)):
                length = lengths[start + slots]
                if used + listpack.counters_size(slots, 0) + length >= bytes_max and slots:
                    return start + slots
                used += cost
        return stop

    def measure(self) -> None:
        """Compute the sizes of all rows, once. Converts str to bytes. Raises CommandError for a row too large."""
        self.sized = True
        if self.names is None:
            self._lengths = [sum(map(len, row)) for row in self.rows]
        else:
            width = len(self.names)
            self.names = tuple(map(to_bytes, self.names))
            if self.texts:
                self.values, self.texts = list(map(to_bytes, self.values)), False
            own = listpack.FLAGS + listpack.int_size(0) + listpack.int_size(width + 3) + 2
            lengths = list(map(len, self.values))
            costs = listpack.sizes(self.values, lengths, own if width == 1 else 0)
            if width > 1:
                lengths = list(map(sum, zip(*[iter(lengths)] * width)))
                costs = list(map(own.__add__, map(sum, zip(*[iter(costs)] * width))))
            self._lengths, self._costs = lengths, costs
            self._ends = list(accumulate(costs, initial=0))
            self._fields_length = sum(map(len, self.names))
            self._master = listpack.master_size(self.names)
        self._longest = max(self._lengths)
        if self._longest + self._fields_length > ELEMENTS_BYTES_MAX:
            raise CommandError(TOO_LARGE)


class Alike:
    """Rows that all have the same single field: the field's name, and the value of each row."""

    __slots__ = ("name", "values")

    def __init__(self, name: bytes, values: list[bytes]) -> None:
        self.name, self.values = name, values

    def __len__(self) -> int:
        return len(self.values)


_PLAIN: Final = frozenset((bytes, str))


def _batch(rows: Sequence[Any] | Alike) -> _Batch:
    """Make a batch of rows: at C speed if all have the same fields, otherwise one by one."""
    count = len(rows)
    if isinstance(rows, Alike):
        return _Batch(count, (rows.name,), rows.values, [])
    values: list[Any]
    if rows[0].__class__ is dict and set(map(type, rows)) == {dict}:
        names = tuple(rows[0])
        if names and list(map(tuple, rows)).count(names) == count:
            values = list(chain.from_iterable(map(dict.values, rows)))
            kinds = set(map(type, values))
            if kinds <= _PLAIN and set(map(type, names)) <= _PLAIN:
                return _Batch(count, names, values, [], str in kinds)
    elif rows[0].__class__ is tuple and set(map(type, rows)) == {tuple}:
        width = len(rows[0])
        if width and not width & 1 and set(map(len, rows)) == {width}:
            flat = list(chain.from_iterable(rows))
            kinds = set(map(type, flat))
            if kinds <= _PLAIN and flat[::2] == flat[:width:2] * count:
                return _Batch(count, tuple(flat[:width:2]), flat[1::2], [], str in kinds)
    return _Batch(count, None, [], [_row(row) for row in rows])


def _row(row: Any) -> EntryRow:
    if isinstance(row, Mapping):
        parts: Iterable[Any] = chain.from_iterable(row.items())
    elif isinstance(row, (list, tuple)):
        parts = row
    else:  # a str is refused too: it is iterable, but its characters are not fields
        raise TypeError(f"Invalid row of type: {type(row).__name__!r}. Give a dict of its fields.")
    flat = tuple(map(to_bytes, parts))
    if not flat or len(flat) & 1:
        raise CommandError(ARITY)
    return flat


def to_bytes(value: Any) -> bytes:
    """Encode a field or value by redis-py's rules. Raises TypeError."""
    kind = value.__class__
    if kind is bytes:
        return value  # type: ignore[no-any-return]
    if kind is str:
        return value.encode()  # type: ignore[no-any-return]
    if isinstance(value, (bytes, memoryview, bytearray)):
        return bytes(value)
    if isinstance(value, (int, float)) and kind is not bool:
        return repr(value).encode()
    raise TypeError(
        f"Invalid input of type: {kind.__name__!r}. Convert to a bytes, string, int or float first."
    )


def _head(
    settings: Settings, stream: Stream, reopened: Node | None, first: int, batch: _Batch
) -> tuple[EntryRow, ...]:
    """The rows that fit into the open node. The caller knows that the first one does."""
    slots_max = settings.stream_node_max_entries
    bytes_max = _node_bytes_max(settings)
    node = reopened or stream.tail_node()
    room = batch.count if slots_max <= 0 else min(slots_max - node.count, batch.count)
    rows = batch.rows_of(0, room)
    if reopened is None and first >> 64 < stream.tail_until:
        large = SEQ_LARGE_BYTES if (first & SEQ_MAX) + room > stream.tail_small else 0
        most = stream.tail_bound + rows_bytes_max(rows, room) + room * large
        if most + max(sum(map(len, row)) for row in rows) < bytes_max:
            return tuple(rows)
    deleted = node.count - node.live
    fields = node.rows()[0][::2]
    body = listpack.body_size(node.ids(), node.rows())
    for start in range(0, room, HEAD_ROWS):  # few rows may fit; do not measure the others
        some = rows[start : start + HEAD_ROWS]
        ids_of = range(first + start, first + start + len(some))
        costs = listpack.entry_sizes(ids_of, some, node.first, fields)
        for at, cost in enumerate(costs, start):
            counters = listpack.counters_size(node.live + at, deleted)
            if body + counters + sum(map(len, rows[at])) >= bytes_max:
                return tuple(rows[:at])
            body += cost
    return tuple(rows)


def _seal(
    settings: Settings, ms: int, seq: int, batch: _Batch, start: int
) -> tuple[list[tuple[int, bytes]], int]:
    """Seal the rows from `start` on into full nodes. Returns (slots, block) of each, and the open node's first row.

    If the sealed bytes show that the byte limit did not end a node, the node's exact size is not computed.
    """
    slots_max = settings.stream_node_max_entries
    bytes_max = _node_bytes_max(settings)
    count = batch.count
    blocks: list[tuple[int, bytes]] = []
    if batch.longer_than(bytes_max, start, start + slots_max):
        # The first `slots_max` rows are too long for one node. Compute all sizes now: to seal these rows first, and see
        # whether they fit, would be wasted work.
        batch.measure()
    while start < count:
        stop = min(start + slots_max, count) if slots_max > 0 else count
        if not batch.sized:
            data = batch.seal(ms, seq + start, start, stop)
            if batch.bytes_max(stop - start, len(data)) < bytes_max:
                if stop - start != slots_max:
                    break
                blocks.append((slots_max, data))
                start = stop
                continue
        cut = batch.cut(ms << 64 | seq + start, start, stop, bytes_max)
        if cut == count and cut - start != slots_max:
            break
        blocks.append((cut - start, batch.seal(ms, seq + start, start, cut)))
        start = cut
    return blocks, start
