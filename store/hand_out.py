"""Handing out: messages that were just added go straight to the consumers of the group that wait for them.

Where nobody waits at a key but consumers of one group, and the group has read all there is, it is known beforehand
whom an XADD serves, and with what: the first who waits gets that message, and of further XADDs the next ones theirs.
Then there is nothing to look for and nobody to ask. `Core.serve` would come to the same, message by message.

    takers      before the XADDs are applied: who will get their messages; None where `Core.serve` is to find out
    hand_out    after that: each gets one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.engine.apply_groups import apply_xclaim
from tidelog.engine.block import Row
from tidelog.engine.effects import END, XCLAIM, Effect
from tidelog.engine.entries import Entries, RowsPart
from tidelog.engine.group import Group
from tidelog.engine.idlist import pack_one
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.keyspace import resident
from tidelog.engine.reply import Streams
from tidelog.engine.stream import Stream
from tidelog.engine.waiting import Waiter

if TYPE_CHECKING:
    from tidelog.store.core import Core


Consumes = tuple[Waiter, bytes]  # who waits, as which consumer
Takers = tuple[Group, list[Consumes]]


def takers(core: Core, db: int, key: bytes, count: int) -> Takers | None:
    """[lock] Who gets the messages of the next `count` XADDs to a key, one each, in this order. Each XADD is a unit."""
    place = db, key
    waiting = core.waiting
    name = waiting.groups.get(place)
    if name is None or core.watches.keys or core.listener or core.now >= core.state.next_expiry:
        return None
    stream = resident(core.state.databases[db].keys, key)
    if not isinstance(stream, Stream):
        return None
    group = stream.groups.get(name)
    # Only then the next message of the stream is the next one of the group, and counted as one more.
    if (
        group is None
        or group.entries_read != stream.entries_added  # first: of a lost group no more is known
        or group.last_id != stream.last_id
    ):
        return None
    found: list[Consumes] = []
    for waiter in waiting.at(place):
        reader, caller = waiter.reader, waiter.owner
        if reader is None or reader[2] is None or caller.gone or caller.done:
            return None
        found.append((waiter, reader[1]))
        if len(found) == count:
            break
    return (group, found) if found else None


def hand_out(
    core: Core,
    db: int,
    key: bytes,
    given: Takers,
    entries: Sequence[tuple[int, Row | None]],
    flush: bool,
) -> None:
    """[lock] Deliver to each of the takers, in order, one of as many messages that were added to the key, each delivery
    a unit of its own. The key is signalled, and is not any more afterwards.
    """
    waiting, log, state, now = core.waiting, core.log, core.state, core.now
    place = db, key
    group, consumers = given
    lsn = before = log.next_lsn
    try:
        name, read = group.name, group.entries_read
        effects: list[Effect] = []
        for (waiter, consumer), (entry_id, _) in zip(consumers, entries):
            waiting.remove(waiter)
            read += 1
            packed, ms, seq = pack_one(entry_id), entry_id >> 64, entry_id & SEQ_MAX
            effects.append(
                (XCLAIM + END, db, key, name, consumer, packed, now, 1, now, ms, seq, read)
            )
        if state.changes.cold is not None:
            core.ready(effects)
        body = b"".join(map(core.pack_one, effects))
        if log.offset + len(body) > log.room:  # as `reserve`
            core.reserve(log, len(body))
        adding = False
        try:
            for effect in effects:
                apply_xclaim(state, effect)
            adding = True
            log.add(body, len(effects), now, flush and (core.relaxed or not log.syncing))
        except BaseException as error:
            raise core.broken(error, adding)
        for (waiter, _), (entry_id, row) in zip(consumers, entries):
            one = Entries((RowsPart([entry_id], [row]),), 1)
            waiter.owner.deliver(Streams(([key, one],)), (log, lsn, True))
            lsn += 1
    except BaseException as error:
        for waiter, _ in consumers:
            if not waiter.owner.done:
                waiting.remove(waiter)
                core.interrupted(waiter, error, before)
        if core.trouble is not None:
            core.mend_for_others()
        else:
            core.serve(flush)  # others may have more luck
        if not isinstance(error, Exception):
            raise
        return
    others = waiting.at(place)
    seen = not others or group.all_seen == (now, place)
    if seen or core.idle([*others], 0, True) == len(others):
        del waiting.signalled[place]
    if waiting.signalled:  # or there are other keys, which an interrupt left
        core.serve(flush)
