"""Check that the pending entries of a group are consistent, as stored in the rows of a checkpoint.

`Pending.check` checks entry by entry and says what is wrong. This checks the same on whole columns, at a tenth of the
cost, and only says whether something is wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import lt
from typing import Any, Final

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.groups.by_id import IdOrder
from tidelog.engine.groups.by_owner import Owned
from tidelog.engine.groups.by_time import TimeOrder
from tidelog.engine.groups.chunk_rows import Chunk, column_of, unpack_chunk
from tidelog.engine.groups.chunks import LOAD
from tidelog.engine.groups.pending import NOBODY
from tidelog.engine.rowkeys import chunk_row

_EMPTY: Final = b""


class _NotSo(Exception):
    """The pending entries are inconsistent."""


def pending_adds_up(rows: ColdStore, stream: int, group: int, directory: Sequence[Any]) -> bool:
    """Whether the chunks that a directory names exist, are sound, and agree with it and with each other.

    directory: as `engine.groups.frozen_pending` packs it. Also False for a group in the wide form, and whenever this
    function cannot tell.
    """
    try:
        _check(rows, stream, group, directory)
    except (_NotSo, CorruptBlock, ValueError, TypeError, IndexError, KeyError, OverflowError):
        return False
    return True


def _need(so: bool) -> None:
    if not so:
        raise _NotSo


def _ascends(column: Sequence[int]) -> bool:
    return all(map(lt, column, column[1:]))


def _check(rows: ColdStore, stream: int, group: int, directory: Sequence[Any]) -> None:
    n, wide, nack_time, next_serial, free, by_id, by_time, by_owner = directory
    _need(not wide)
    used: set[int] = set()

    def order(codes: str, top: int, tops: bytes, serials: bytes) -> list[Chunk]:
        numbers, last = column_of(serials), column_of(tops)
        _need(len(numbers) == len(last))
        used.update(numbers)
        chunks = []
        for serial, end in zip(numbers, last):
            row = rows.get(chunk_row(stream, group, serial))
            _need(row is not None and 0 < serial < next_serial)
            chunk = unpack_chunk(row or _EMPTY, codes, False)
            _need(chunk[top][-1] == end and len(chunk[0]) < 2 * LOAD)
            chunks.append(chunk)
        return chunks

    entries = order(IdOrder.CODES, IdOrder.TOP, *by_id)
    aged = order(TimeOrder.CODES, TimeOrder.TOP, *by_time[:2])
    _need(list(column_of(by_time[2])) == [chunk[0][-1] for chunk in aged])

    ids, times = array("q"), array("q")
    held: dict[int, array[int]] = {}
    for chunk_ids, chunk_times, owners, _ in entries:
        ids.extend(chunk_ids)
        times.extend(chunk_times)
        owner = owners[0]
        if owners.count(owner) == len(owners):
            held.setdefault(owner, array("q")).extend(chunk_ids)
            _need(max(chunk_times) < 0 if owner == NOBODY else min(chunk_times) >= 0)
        else:
            for key, time, owner in zip(chunk_ids, chunk_times, owners):
                held.setdefault(owner, array("q")).append(key)
                _need((time < 0) == (owner == NOBODY))
    _need(len(ids) == n and _ascends(ids))

    by_age_ids, by_age_times = array("q"), array("q")
    for chunk_ids, chunk_times in aged:
        by_age_ids.extend(chunk_ids)
        by_age_times.extend(chunk_times)
    if by_age_ids.tobytes() == ids.tobytes() and by_age_times.tobytes() == times.tobytes():
        _need(all(map(lt, zip(times, ids), zip(times[1:], ids[1:]))))
    else:
        _need(sorted(zip(times, ids)) == list(zip(by_age_times, by_age_ids)))
    nacked = len(held.pop(NOBODY, ()))
    _need(not nacked or by_age_times[nacked - 1] < nack_time)

    for owner, told in enumerate(by_owner):
        theirs = held.pop(owner, array("q"))
        if told is None:
            _need(owner == NOBODY or (not theirs and owner in free))
            continue
        found = array("q")
        for (chunk_ids,) in order(Owned.CODES, Owned.TOP, *told[1:]):
            found.extend(chunk_ids)
        _need(told[0] == len(theirs) and found.tobytes() == theirs.tobytes())
    _need(not held)
    orders = [by_id, by_time, *[told[1:] for told in by_owner if told is not None]]
    _need(len(used) == sum(len(column_of(each[1])) for each in orders))
