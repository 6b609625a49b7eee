"""Sealed blocks: the entries of one sealed stream node as bytes. Memory, log and disk all hold this form.

     0                              n-4     n
    +-------------------------------+-------+
    | msgpack array                 | crc32c|     CRC-32C of the array, little-endian
    +-------------------------------+-------+

    [ids, names, values]               all entries have the same field names in the same order
    [ids, shapes, values, shape_of]    they differ: shapes = distinct name lists in order of appearance,
                                       shape_of = one index into shapes per entry

    ids     [ms, seq, n]               n IDs ms-seq, ms-(seq+1), ...
            [ms, 0, n, dms]            dms = ms of each entry less the first one's; every seq is 0
            [ms, seq, n, dms, seqs]    seqs = the seq of each entry
    values  of all entries, concatenated

Strings are msgpack raw strings (old types: a short one costs one byte), decoded as bytes. The form is canonical:
equal IDs and rows give equal bytes. Deleted entries stay in the bytes; `Block.deleted` is the mask of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, Final

import msgpack

from tidelog.engine import idlist
from tidelog.engine.crc32c import crc32c_of
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.fast_path import fast_path
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.streams.columns import EntryRow as EntryRow
from tidelog.engine.streams.columns import values_of

Pair = tuple[bytes, dict[bytes, bytes] | None]

CRC_BYTES: Final = 4
# if the first request to a block is for at most this many ID texts, the block makes only these texts
FEW_TEXTS: Final = 8

# All threads share one packer. This is safe, because with autoreset pack() keeps no state between calls and never
# releases the interpreter lock.
_pack = msgpack.Packer(use_bin_type=False, autoreset=True).pack


def encode(ids: Sequence[int], rows: Sequence[EntryRow]) -> bytes:
    """Seal entries: at least one, in ascending ID order."""
    names, span = rows[0][::2], _ids_form(ids)
    values = values_of(rows, names)
    if values is not None:
        packed: bytes = _pack((span, names, values))
    else:
        shapes: dict[EntryRow, int] = {}
        shape_of = [shapes.setdefault(row[::2], len(shapes)) for row in rows]
        packed = _pack((span, list(shapes), flat_values(rows), shape_of))
    return packed + crc32c_of(packed).to_bytes(CRC_BYTES, "little")


def encode_run(ms: int, seq: int, count: int, names: Sequence[Any], values: Sequence[Any]) -> bytes:
    """Seal `count` entries ms-seq, ms-(seq+1), ... with equal field names; names and values are bytes or str."""
    packed: bytes = _pack(((ms, seq, count), names, values))
    return packed + crc32c_of(packed).to_bytes(CRC_BYTES, "little")


def flat_values(rows: Sequence[EntryRow]) -> list[bytes]:
    """The values of all rows in one list."""
    return list(chain.from_iterable(row[1::2] for row in rows))


def rows_of(data: bytes) -> list[EntryRow]:
    """The rows of sealed bytes, deleted ones included. Raises CorruptBlock."""
    return Decoded(data).rows()


def _ids_form(ids: Sequence[int]) -> tuple[Any, ...]:
    first, last, count = ids[0], ids[-1], len(ids)
    ms, seq = first >> 64, first & SEQ_MAX
    if last - first == count - 1 and last >> 64 == ms:
        return (ms, seq, count)
    if ((last >> 64) - ms) * 8 < count:
        dms, seqs = _stretches(ids)
    else:
        dms, seqs = _id_by_id(ids)
    return (ms, seq, count, dms, seqs) if any(seqs) else (ms, 0, count, dms)


def _id_by_id(ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """dms and seqs."""
    base = ids[0] >> 64 << 64
    offsets = [entry_id - base for entry_id in ids]
    return [offset >> 64 for offset in offsets], [offset & SEQ_MAX for offset in offsets]


@fast_path(
    of="engine.streams.block:_id_by_id",
    held_by="tests/engine/test_fast_paths.py::test_ids_of_a_block_by_millisecond_are_those_id_by_id",
)
def _stretches(ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """dms and seqs of IDs that share few milliseconds: made per millisecond, at a fifth of the cost of ID by ID."""
    ms0 = ids[0] >> 64
    dms: list[int] = []
    seqs: list[int] = []
    start = 0
    while start < len(ids):
        first = ids[start]
        stop = bisect_right(ids, first | SEQ_MAX, start)
        count = stop - start
        dms += [(first >> 64) - ms0] * count
        if ids[stop - 1] - first == count - 1:
            seqs += range(first & SEQ_MAX, (first & SEQ_MAX) + count)
        else:
            seqs += [entry_id & SEQ_MAX for entry_id in ids[start:stop]]
        start = stop
    return dms, seqs


class Block:
    """A sealed node: its bytes, and the facts that are needed without decoding them.

    data        the bytes above            count       slots, deleted ones included
    last        ID of the last slot        deleted     bit i set = slot i is deleted
    """

    __slots__ = ("data", "count", "last", "deleted")

    def __init__(self, data: bytes, count: int, last: int, deleted: int = 0) -> None:
        self.data = data
        self.count = count
        self.last = last
        self.deleted = deleted

    @property
    def live(self) -> int:
        """Number of entries that are not deleted."""
        return self.count - self.deleted.bit_count()

    def decoded(self) -> Decoded:
        """The entries, decoded through a small cache. Raises CorruptBlock."""
        found = _cache.get(self)
        return found if found is not None else _remember(self)

    def listed(self) -> tuple[list[int], list[EntryRow]]:
        """(IDs, rows) of all slots; the caller must not change them. Cached with the decoded entries, for callers that
        read one entry at a time. Raises CorruptBlock.
        """
        decoded = _cache.get(self) or _remember(self)
        listed = decoded.listed
        if listed is None:
            listed = decoded.listed = decoded.ids(), decoded.rows()
        return listed

    def copy(self) -> Block:
        """A block that shares the bytes and has its own mask of deletions."""
        return Block(self.data, self.count, self.last, self.deleted)


# A cache of decoded blocks, oldest first. Readers walk forward, so a few dozen blocks serve many readers. Several
# threads render views at once, so the code uses only single dict operations, and expects changes between them.
#
# The number of blocks is limited, so blocks of up to LARGE_BYTES have at most CACHED_BYTES together. If a larger block
# is added, the oldest blocks are dropped until the rest and the new one have at most CACHED_BYTES, or only the new one
# is left. Only a node limit of more than 64 KiB makes larger blocks, so sizes are summed up only for these.
CACHED_BLOCKS: Final = 64
CACHED_BYTES: Final = 4 << 20
LARGE_BYTES: Final = CACHED_BYTES // CACHED_BLOCKS
_cache: dict[Block, Decoded] = {}


def _remember(block: Block) -> Decoded:
    decoded = Decoded(block.data)
    if len(block.data) > LARGE_BYTES:
        left = CACHED_BYTES - len(block.data)
        for other in reversed(list(_cache)):
            left -= len(other.data)
            if left < 0:
                _cache.pop(other, None)
    while len(_cache) >= CACHED_BLOCKS:
        try:
            _cache.pop(next(iter(_cache)), None)
        except (RuntimeError, StopIteration):  # another thread changed the cache in between
            continue
    _cache[block] = decoded
    return decoded


class Decoded:
    """The entries of sealed bytes by slot. IDs, texts and keys are computed on first use. Raises CorruptBlock."""

    __slots__ = (
        *("ms", "seq", "count", "dms", "seqs"),
        *("names", "values", "shapes", "shape_of", "_starts"),
        *("_ids", "_texts", "_looked_up", "_keys"),
        "listed",
    )

    def __init__(self, data: bytes) -> None:
        packed = data[:-CRC_BYTES]
        if crc32c_of(packed).to_bytes(CRC_BYTES, "little") != data[-CRC_BYTES:]:
            raise CorruptBlock(f"the sealed block of {len(data)} bytes does not match its checksum")
        span, names, values, *more = msgpack.unpackb(packed, raw=True, use_list=True)
        self.ms: int = span[0]
        self.seq: int = span[1]
        self.count: int = span[2]
        self.dms: list[int] | None = span[3] if len(span) > 3 else None
        self.seqs: list[int] | None = span[4] if len(span) > 4 else None
        self.values: list[bytes] = values
        self.shapes: list[EntryRow] = [tuple(shape) for shape in names] if more else [tuple(names)]
        self.shape_of: list[int] | None = more[0] if more else None
        self.names: EntryRow = self.shapes[0]  # of all entries, if shape_of is None
        self._starts: list[int] | None = None
        self._ids: list[int] | None = None
        self._texts: list[bytes] | None = None
        # whether a request for few ID texts was served without making all of them
        self._looked_up = False
        self._keys: array[int] | None = None
        self.listed: tuple[list[int], list[EntryRow]] | None = None  # cache of `Block.listed`

    # --- IDs

    def id_at(self, slot: int) -> int:
        """The ID of one slot."""
        if self.dms is None:
            return (self.ms << 64 | self.seq) + slot
        return (self.ms + self.dms[slot]) << 64 | (self.seqs[slot] if self.seqs else 0)

    def slot_from(self, entry_id: int) -> int:
        """The first slot whose ID is `entry_id` or greater; `count` if there is none."""
        if self.dms is None:
            return min(max(entry_id - (self.ms << 64 | self.seq), 0), self.count)
        dms, seq = (entry_id >> 64) - self.ms, entry_id & SEQ_MAX
        low = bisect_left(self.dms, dms)
        if not seq:
            return low
        high = bisect_right(self.dms, dms, low)
        if self.seqs is None:
            return high
        return bisect_left(self.seqs, seq, low, high)

    def find(self, entry_id: int) -> int:
        """The slot of an ID, deleted or not; -1 if the block does not have the ID."""
        ids = self._ids
        if ids is not None:
            slot = bisect_left(ids, entry_id)
            return slot if slot < self.count and ids[slot] == entry_id else -1
        slot = self.slot_from(entry_id)
        return slot if slot < self.count and self.id_at(slot) == entry_id else -1

    def ids(self) -> list[int]:
        """The IDs of all slots. The caller must not change the list."""
        ids = self._ids
        if ids is None:
            if self.dms is None:
                first = self.ms << 64 | self.seq
                ids = list(range(first, first + self.count))
            elif self.seqs is None:
                ms = self.ms
                ids = [(ms + dms) << 64 for dms in self.dms]
            else:
                ms = self.ms
                ids = [(ms + dms) << 64 | seq for dms, seq in zip(self.dms, self.seqs)]
            self._ids = ids
        return ids

    def texts(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """The IDs of slots start..stop-1 (to the end if None) as `ms-seq`.

        The first call for a few makes only those, since a reader may want a single entry of the block. A second call
        means that a reader walks through the block, so it makes all texts and keeps them.
        """
        stop = self.count if stop is None else stop
        texts = self._texts
        if texts is None:
            if stop - start <= FEW_TEXTS and not self._looked_up:
                self._looked_up = True
                return self._make_texts(start, stop)
            texts = self._texts = self._make_texts(0, self.count)
        return texts[start:stop]

    def _make_texts(self, start: int, stop: int) -> list[bytes]:
        ms = self.ms
        if self.dms is None:
            head = b"%d-" % ms
            return [head + b"%d" % seq for seq in range(self.seq + start, self.seq + stop)]
        if self.seqs is None:
            return [b"%d-0" % (ms + dms) for dms in self.dms[start:stop]]
        pairs = zip(self.dms[start:stop], self.seqs[start:stop])
        return [b"%d-%d" % (ms + dms, seq) for dms, seq in pairs]

    def idlist(self, start: int, stop: int) -> idlist.IdList:
        """The IDs of slots start..stop-1 as an ID list."""
        if self.dms is None:
            return idlist.pack_run(self.ms, self.seq + start, stop - start)
        keys = self._keys
        if keys is None:
            seqs = self.seqs or (0,)
            if (self.ms + self.dms[-1]) >> idlist.MS_BITS or max(seqs) >> idlist.SEQ_BITS:
                return idlist.pack(self.ids()[start:stop])  # these slots may still be narrow
            base, shift = (self.ms << idlist.SEQ_BITS) - idlist.KEY_BASE, idlist.SEQ_BITS
            if self.seqs is None:
                keys = array("q", [base + (dms << shift) for dms in self.dms])
            else:
                pairs = zip(self.dms, self.seqs)
                keys = array("q", [base + (dms << shift | seq) for dms, seq in pairs])
            self._keys = keys
        return idlist.from_keys(keys[start:stop])

    # --- rows

    def starts(self) -> list[int]:
        """Where each entry's values begin in `values`, and the end of the last; for entries of several shapes."""
        starts = self._starts
        if starts is None:
            shape_of = self.shape_of or [0] * self.count
            widths = [len(shape) for shape in self.shapes]
            starts = self._starts = list(
                accumulate((widths[shape] for shape in shape_of), initial=0)
            )
        return starts

    def row(self, slot: int) -> EntryRow:
        """One entry as (field, value, field, value, ...)."""
        if self.shape_of is None:
            names = self.names
            width = len(names)
            values = self.values[slot * width : (slot + 1) * width]
        else:
            names = self.shapes[self.shape_of[slot]]
            starts = self.starts()
            values = self.values[starts[slot] : starts[slot + 1]]
        return tuple(chain.from_iterable(zip(names, values)))

    def rows(self, start: int = 0, stop: int | None = None) -> list[EntryRow]:
        """The entries of slots start..stop-1 (to the end if None), each in the form of `row`."""
        stop = self.count if stop is None else stop
        if self.shape_of is not None or len(self.names) > 2:
            row = self.row
            return [row(slot) for slot in range(start, stop)]
        if len(self.names) == 1:
            (one,) = self.names
            return [(one, value) for value in self.values[start:stop]]
        one, two = self.names
        part = self.values[2 * start : 2 * stop]
        return [(one, first, two, second) for first, second in zip(part[::2], part[1::2])]

    def columns(self) -> tuple[EntryRow, list[bytes]] | None:
        """(fields, values of all slots one after the other), or None if the entries have several shapes."""
        return None if self.shape_of is not None else (self.names, self.values)

    @fast_path(
        of="engine.streams.block:Decoded.row",
        held_by="tests/engine/streams/test_block.py::test_round_trip",
    )
    def pairs(self, start: int, stop: int) -> list[Pair]:
        """The entries of slots start..stop-1 as redis-py shows them: (ID text, {field: value}).

        Unrolled for one and two fields, which takes a third of the time. The names are the same objects in all entries.
        """
        texts = self.texts(start, stop)
        names, width = self.names, len(self.names)
        if self.shape_of is not None:
            starts, shapes, shape_of = self.starts(), self.shapes, self.shape_of
            return [
                (
                    text,
                    dict(zip(shapes[shape_of[slot]], self.values[starts[slot] : starts[slot + 1]])),
                )
                for slot, text in enumerate(texts, start)
            ]
        part = self.values[width * start : width * stop]
        if width == 2:
            one, two = names
            return [
                (text, {one: first, two: second})
                for text, first, second in zip(texts, part[::2], part[1::2])
            ]
        if width == 1:
            (one,) = names
            return [(text, {one: value}) for text, value in zip(texts, part)]
        return [
            (text, dict(zip(names, part[at : at + width])))
            for text, at in zip(texts, range(0, len(part), width))
        ]
