"""Effects: every change of state as a tuple, and the records of the AOF.

An effect is a tuple whose first element is an opcode below; the log record is the msgpack of that tuple.
Opcodes and field orders are numbered by hand and never renumbered; 0 means "nothing was written here".

The last effect of a unit has `END` added to its opcode, so the end of a unit takes no extra byte. `APPLY` has an entry
for both; other tables by opcode are indexed with `opcode & OPCODE`. Opcodes from `VOLATILE` on are applied but never
logged: a crash may lose their data (the seen-time of a call that changed nothing else).

Fields, by name:

    db          database number                    key, group, consumer, pid, iid   bytes
    ms, seq     the two halves of an entry ID      row     (field, value, field, value, ...) of bytes
    ids         an ID list as engine.idlist packs it; ascending and each ID once, except in XNACK, where order counts
    slots       (block ordinal, slot, block ordinal, slot, ...), one pair per deleted entry, ascending
    time, now   unix milliseconds                  entries_read   -1 = unknown

An effect holds the outcome: concrete IDs, absolute times, resulting counters. Apply trusts it.
"""

from __future__ import annotations

from typing import Any, Final

Effect = tuple[Any, ...]

END: Final = 64  # added to the opcode of the last effect of a unit
OPCODE: Final = 63  # mask: effect[0] & OPCODE
VOLATILE: Final = 48  # opcodes 48..63 are never logged

# fmt: off
# --- the life of a leader
EPOCH: Final = 1  # (op, number, incarnation)             a writer starts to append to the log; changes no data

# --- streams
XADD: Final = 2  # (op, db, key, ms, seq, row)            adds an entry to the open tail node
XADD_NODE: Final = 3  # (op, db, key, ms, seq, row)       starts a node; seals an open tail; creates a missing key
XADD_IDMP: Final = 4  # (op, db, key, ms, seq, row, new_node 0|1, pid, iid[, time])
#                        time: the time of the iid if ms, which is later, is not
XADD_MANY: Final = 5  # (op, db, key, ms, seq, head, blocks, tail)
#                       Adds the rows of `head`, `blocks` and `tail`, in this order, with IDs ms-seq, ms-(seq+1), ...
#                       head: rows added to the open tail node. blocks: ((count, sealed bytes), ...), one for each
#                       sealed node after it. tail: rows of the new open node
XREOPEN: Final = 6  # (op, db, key, ids, rows, deleted)   the last sealed node becomes the open tail again
#                      ids, rows: all its entries, deleted ones included.
#                      deleted: bit mask of its deleted slots, as little-endian bytes
XTRIM: Final = 7  # (op, db, key, length, removed, drop, floor, slots, ids)
#                    length: entries of the stream afterwards. removed: number of entries removed.
#                    drop: number of whole nodes dropped from the head. floor: a slot of the first node that
#                    remains; the slots below it are removed. slots, ids: the entries that a trim with the option ACKED
#                    removed one by one, else ()
XDEL: Final = 8  # (op, db, key, ids, slots)              deletes entries; raises max-deleted-entry-id
XSETID: Final = 9  # (op, db, key, ms, seq, entries_added, max_deleted_ms, max_deleted_seq)
XCFGSET: Final = 10  # (op, db, key, duration_s, maxsize) sets the limits; clears the dedup tables
XIDMPRECORD: Final = 11  # (op, db, key, pid, iid, ms, seq[, time])   time: as in XADD_IDMP, or FREED or HELD
#                           (engine/streams/idmp.py): the iid is forgotten, or does not expire
IDMP_DUPLICATE: Final = 12  # (op, db, key, pid, iid)     adds 1 to `iids-duplicates`
STREAM_CREATE: Final = 13  # (op, db, key)                creates an empty stream (MKSTREAM, oversized first XADD)

# --- consumer groups
XGROUP_CREATE: Final = 14  # (op, db, key, group, ms, seq, entries_read)
XGROUP_SETID: Final = 15  # (op, db, key, group, ms, seq, entries_read)
XGROUP_DESTROY: Final = 16  # (op, db, key, group)
XGROUP_CREATECONSUMER: Final = 17  # (op, db, key, group, consumer, now)
XGROUP_DELCONSUMER: Final = 18  # (op, db, key, group, consumer)
DELIVER: Final = 19  # (op, db, key, group, consumer, ids, time, counts, now[, ms, seq, entries_read])
#                      Makes each of `ids` pending for the consumer, even if it was pending before; creates a missing
#                      consumer. counts: delivery counts, one int for all or a tuple. now: the consumer's new active
#                      time; -1 leaves it unchanged (history re-read). ms, seq, entries_read: the group's new position
XACK: Final = 20  # (op, db, key, group, ids)             removes pending entries, even of deleted entries
XNACK: Final = 21  # (op, db, key, group, ids, counts)    moves `ids`, in this order, to the end of the NACK zone;
#                      removes their owner
XACKDEL: Final = 22  # (op, db, key, group, ids, slots)   acknowledges and deletes exactly these entries

# --- keys
DEL: Final = 24  # (op, db, keys)                         keys: a tuple
SET: Final = 25  # (op, db, key, value, expire_at)        expire_at: unix ms, -1 = none
PEXPIREAT: Final = 26  # (op, db, key, at)
PERSIST: Final = 27  # (op, db, key)
RENAME: Final = 28  # (op, db, source, target)            replaces the target
COPY: Final = 29  # (op, db, source, target_db, target)   replaces the target
MOVE: Final = 30  # (op, db, key, target_db)
SWAPDB: Final = 31  # (op, a, b)
FLUSHDB: Final = 32  # (op, db)
FLUSHALL: Final = 33  # (op,)
APPEND: Final = 34  # (op, db, key, suffix)               creates the string if missing
RESTORE: Final = 35  # (op, db, key, kind, value, expire_at)   replaces the key. expire_at: unix ms, -1 = none
#                      kind, value: the type of an RDB image, and the bytes of the value in that type (engine.rdb)

# --- applied, never logged
SEEN: Final = 48  # (op, db, key, group, consumer, now)   sets the seen-time; consumer: one name or a tuple
# fmt: on
