"""Commands: the steps of a workload beside the twelve of crash/workloads.py. Together they try all commands that write.

The numbers of a step are a stream, or a string, and then a count or a choice. A step that has nothing to do does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.crash.asking import ANN, BOB, PAD, Asking, WorkloadKey, flat
from tidelog.crash.lives import Step
from tidelog.crash.model import ACKED, DELREF, KEEPREF, database_of, number, place
from tidelog.crash.trace import Unit

OTHER: Final = b"h"  # a second group
PRODUCER: Final = "p"
POLICIES: Final = (KEEPREF, DELREF, ACKED)
MODES: Final = ("SILENT", "FAIL", "FATAL")
FAR_MS: Final = 9_000_000_000_000  # no clock of these workloads comes so far
LAPSE_S: Final = 60
DAY_MS: Final = 86_400_000
DAY_S: Final = 86_400  # the longest time for which a stream knows an iid

# What may be drawn for each step: its numbers behind the stream.
COMMANDS: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "trimmed": ((1, 3),),
    "above": ((1, 2),),
    "minid": ((1, 3),),
    "roughly": ((1, 20),),
    "unless": ((0, 1, 2),),
    "alike": ((0, 1),),
    "remember": ((1, 2, 50),),
    "setid": ((1, 7),),
    "delex": ((1, 2), (0, 1, 2)),
    "rewind": ((0, 1, 2),),
    "ungroup": ((0, 1),),
    "consumer": ((0, 1, 2),),
    "unconsumer": ((0, 1),),
    "other": ((1, 2, 5),),
    "noack": ((1, 2),),
    "autoclaim": ((1, 3),),
    "retried": ((1, 2), (1, 7)),
    "force": ((1, 2),),
    "ackdel": ((1, 2), (0, 1, 2)),
    "nack": ((1, 2), (0, 1, 2)),
    "expire": ((0, 1, 2),),
    "persist": (),
    "lapse": (),
    "rename": ((0, 1, 10),),
    "copy": ((0, 1, 10),),
    "move": (),
    "text": ((0, 1, 2, 3, 4, 5, 6, 7, 8),),
    "flushdb": (),
    "flushall": (),
    "swapdb": (),
}
# the steps after which the passing of time changes a stream
TIMED: Final = (
    "unless",
    "alike",
    "lapse",
)
# Each of these leaves little to be lost, so few are drawn.
RARE: Final = ("flushdb", "flushall", "swapdb", "lapse", "ungroup")


class Commands(Asking):
    """A store that takes these steps."""

    # --- entries

    def _trimmed(self, stream: int, maxlen: int) -> None:
        """XADD MAXLEN."""
        self._add_and(stream, lambda at: ["trim", at.name, maxlen], maxlen=maxlen)

    def _above(self, stream: int, count: int) -> None:
        """XADD MINID."""
        ids = self._entries(self._at(stream).name)
        least = ids[min(count, len(ids) - 1)] if ids else b"0-1"
        self._add_and(stream, lambda at: ["minid", at.name, least], minid=least)

    def _add_and(
        self, stream: int, trim: Callable[[WorkloadKey], list[Any]], **options: Any
    ) -> None:
        at, fields = self._at(stream), self._fields(20)
        self._ask_ids(
            at.name,
            1,
            lambda ids: [["add", at.name, ids[0], flat(fields)], trim(at)],
            lambda: [at.db.xadd(at.key, fields, approximate=False, **options)],
        )

    def _minid(self, stream: int, count: int) -> None:
        """XTRIM MINID."""
        at = self._at(stream)
        ids = self._entries(at.name)[count:]
        if ids:
            self._ask(
                [["minid", at.name, ids[0]]],
                lambda: at.db.xtrim(at.key, minid=ids[0], approximate=False),
            )

    def _roughly(self, stream: int, maxlen: int) -> None:
        """XTRIM MAXLEN ~: the reply says how many entries it removed."""
        at = self._at(stream)
        count = len(self._entries(at.name))
        if count and not self._predicts:
            self._begin(None)
            left = count - at.db.xtrim(at.key, maxlen=maxlen)
            if left < min(count, maxlen):
                self._wrong(f"XTRIM left {left} of {count} entries, and not {maxlen}")
            self._done([["trim", at.name, left]])

    def _unless(self, stream: int, number: int) -> None:
        """XADD IDMP: an entry that the stream may know already."""
        self._add_once(
            stream, b"iid%d" % number, self._fields(10), idmp=(PRODUCER, b"iid%d" % number)
        )

    def _alike(self, stream: int, number: int) -> None:
        """XADD IDMPAUTO: the fields tell whether the stream knows the entry."""
        fields = {b"same": b"%d" % number}
        self._add_once(stream, b"auto%d" % number, fields, idmpauto=PRODUCER)

    def _add_once(
        self, stream: int, iid: bytes, fields: dict[bytes, bytes], **options: Any
    ) -> None:
        at = self._at(stream)
        producer = PRODUCER.encode()
        stored = self._model.streams.get(at.name)
        if stored is None:
            self._group(stream)  # XCFGSET asks for a stream
            stored = self._model.streams[at.name]
        if stored.remembers[0] != DAY_S:
            self._remember(stream, stored.remembers[1])
        known = stored.producers.get(producer, {}).get(iid)

        def add() -> Any:
            return at.db.xadd(at.key, fields, **options)

        if known is not None:
            if self._ask([["again", at.name]], add) != known:
                self._wrong(f"an entry that {at.name!r} knows as {known!r} was added again")
        else:
            self._ask_ids(
                at.name,
                1,
                lambda ids: [["once", at.name, ids[0], producer, iid, flat(fields)]],
                lambda: [add()],
            )

    def _remember(self, stream: int, maxsize: int) -> None:
        """XCFGSET."""
        at = self._at(stream)
        if at.name in self._model.streams:
            self._ask(
                [["remember", at.name, DAY_S, maxsize]],
                lambda: at.db.execute_command(
                    "XCFGSET", at.key, "IDMP-DURATION", DAY_S, "IDMP-MAXSIZE", maxsize
                ),
            )

    def _setid(self, stream: int, count: int) -> None:
        """XSETID: the last ID and the number of entries added grow."""
        at = self._at(stream)
        found = self._model.streams.get(at.name)
        if found is not None:
            ms, sequence = number(found.last)
            last, added = b"%d-%d" % (ms, sequence + count), found.added + count
            self._ask(
                [["setid", at.name, last, added]],
                lambda: at.db.execute_command("XSETID", at.key, last, "ENTRIESADDED", added),
            )

    def _delex(self, stream: int, count: int, policy: int) -> None:
        """XDELEX of the second entry and further ones."""
        at = self._at(stream)
        ids = self._entries(at.name)[1 : 1 + count]
        if ids:
            self._ask(
                [["delex", at.name, POLICIES[policy], ids]],
                lambda: at.db.xdelex(at.key, *ids, ref_policy=POLICIES[policy]),
            )

    # --- groups

    def _rewind(self, stream: int, count: int) -> None:
        """XGROUP SETID: the group gets entries again, or not at all."""
        at = self._group(stream)
        ids = [b"0-0", *self._entries(at.name)]
        entry_id = ids[min(count, len(ids) - 1)]
        self._ask(
            [["rewind", at.name, b"g", entry_id]], lambda: at.db.xgroup_setid(at.key, "g", entry_id)
        )

    def _ungroup(self, stream: int, other: int) -> None:
        """XGROUP DESTROY."""
        at, group = self._at(stream), OTHER if other else b"g"
        found = self._model.streams.get(at.name)
        if found is not None and group in found.groups:
            self._ask(
                [["ungroup", at.name, group]],
                lambda: at.db.xgroup_destroy(at.key, group.decode()),
            )

    def _consumer(self, stream: int, number: int) -> None:
        """XGROUP CREATECONSUMER."""
        at, name = self._group(stream), ("carol", "dave", ANN)[number]
        known = name.encode() in self._model.streams[at.name].groups[b"g"].consumers
        if not known:
            self._ask(
                [["consumer", at.name, b"g", name.encode()]],
                lambda: at.db.xgroup_createconsumer(at.key, "g", name),
            )

    def _unconsumer(self, stream: int, number: int) -> None:
        """XGROUP DELCONSUMER: what it has pending is gone too."""
        at, name = self._group(stream), (ANN, BOB)[number]
        if name.encode() in self._model.streams[at.name].groups[b"g"].consumers:
            self._ask(
                [["unconsumer", at.name, b"g", name.encode()]],
                lambda: at.db.xgroup_delconsumer(at.key, "g", name),
            )

    def _other(self, stream: int, count: int) -> None:
        """XREADGROUP of a second group."""
        at = self._group(stream, OTHER)
        self._ask(
            [["read", at.name, OTHER, BOB.encode(), count]],
            lambda: at.db.xreadgroup("h", BOB, {at.key: ">"}, count=count),
        )

    def _noack(self, stream: int, count: int) -> None:
        """XREADGROUP NOACK."""
        at = self._group(stream)
        self._ask(
            [["noack", at.name, b"g", ANN.encode(), count]],
            lambda: at.db.xreadgroup("g", ANN, {at.key: ">"}, count=count, noack=True),
        )

    def _autoclaim(self, stream: int, count: int) -> None:
        at = self._group(stream)
        if self._pending(at.name):
            self._ask(
                [["autoclaim", at.name, b"g", BOB.encode(), count]],
                lambda: at.db.xautoclaim(at.key, "g", BOB, 0, count=count),
            )

    def _retried(self, stream: int, count: int, deliveries: int) -> None:
        """XCLAIM RETRYCOUNT."""
        at = self._group(stream)
        ids = self._pending(at.name)[:count]
        if ids:
            self._ask(
                [["retried", at.name, b"g", BOB.encode(), ids, deliveries]],
                lambda: at.db.xclaim(at.key, "g", BOB, 0, [*ids], retrycount=deliveries),
            )

    def _force(self, stream: int, count: int) -> None:
        """XCLAIM FORCE of the last entries, which may not be pending."""
        at = self._group(stream)
        ids = self._entries(at.name)[-count:]
        if ids:
            self._ask(
                [["force", at.name, b"g", BOB.encode(), ids]],
                lambda: at.db.xclaim(at.key, "g", BOB, 0, [*ids], force=True),
            )

    def _ackdel(self, stream: int, count: int, policy: int) -> None:
        at = self._group(stream)
        ids = self._pending(at.name)[:count]
        if ids:
            self._ask(
                [["ackdel", at.name, b"g", POLICIES[policy], ids]],
                lambda: at.db.xackdel(at.key, "g", *ids, ref_policy=POLICIES[policy]),
            )

    def _nack(self, stream: int, count: int, mode: int) -> None:
        at = self._group(stream)
        ids = self._pending(at.name)[:count]
        if ids:
            self._ask(
                [["nack", at.name, b"g", MODES[mode], ids]],
                lambda: at.db.xnack(at.key, "g", MODES[mode], *ids),
            )

    # --- keys

    def _stored(self, stream: int) -> WorkloadKey | None:
        at = self._at(stream)
        return at if at.name in self._model.streams else None

    def _expire(self, stream: int, days: int) -> None:
        """PEXPIREAT, far in the future."""
        at, ms = self._stored(stream), FAR_MS + days * DAY_MS
        if at is not None:
            db, key = at.db, at.key
            self._ask([["expire", at.name, ms]], lambda: db.pexpireat(key, ms))

    def _persist(self, stream: int) -> None:
        at = self._at(stream)
        if at.name in self._model.expiries:
            self._ask([["persist", at.name]], lambda: at.db.persist(at.key))

    def _lapse(self, stream: int) -> None:
        """A key expires: its time comes, or had come before."""
        at = self._stored(stream)
        if at is None:
            return
        db, key, name = at.db, at.key, at.name
        if self._clock is None:
            self._ask([["drop", name]], lambda: db.pexpireat(key, 1))
            return
        seconds, micros = self.db.time()
        ms = seconds * 1000 + micros // 1000 + LAPSE_S * 1000
        self._ask([["expire", name, ms]], lambda: db.pexpireat(key, ms))
        # The store may be ahead of the clock, if an earlier life had set it forward.
        self._clock.jump(2 + (ms - self._clock.time_ns() // 1_000_000) // 1000)
        # The next call of any kind deletes the key.
        if self._ask([["drop", name]], lambda: db.exists(key)):
            self._wrong(f"{name!r} did not expire")

    def _rename(self, stream: int, target: int) -> None:
        """RENAME, within a database."""
        at, to = self._at(stream), self._at(target)
        if at.name in self._model.streams and at.db is to.db and at.name != to.name:
            self._ask([["rename", at.name, to.name]], lambda: at.db.rename(at.key, to.key))

    def _copy(self, stream: int, target: int) -> None:
        """COPY REPLACE, also between databases."""
        at, to = self._at(stream), self._at(target)
        if at.name in self._model.streams and at.name != to.name:
            database = database_of(to.name)
            self._ask(
                [["copy", at.name, to.name]],
                lambda: at.db.copy(
                    at.key.decode(), to.key.decode(), destination_db=str(database), replace=True
                ),
            )

    def _move(self, stream: int) -> None:
        """MOVE to the other database, if the key is free there."""
        at = self._at(stream)
        database = 1 - database_of(at.name)
        target = place(database, at.key)
        if at.name in self._model.streams and target not in self._model.streams:
            self._ask([["rename", at.name, target]], lambda: at.db.move(at.key, database))

    def _text(self, stream: int, way: int) -> None:
        """A command on strings."""
        key, other = b"string%d" % (stream % 2), b"number%d" % (stream % 2)
        value = b"%d " % len(self.units) + PAD[:20]
        old = self._model.strings.get(key)
        count = int(self._model.strings.get(other, b"0"))
        ways: tuple[tuple[Unit, Callable[[], object]], ...] = (
            ([["append", key, value]], lambda: self.db.append(key, value)),
            ([["set", other, b"%d" % (count + 1)]], lambda: self.db.incr(other)),
            ([["set", other, b"%d" % (count - 3)]], lambda: self.db.decrby(other, 3)),
            (
                [["set", key, value], ["expire", key, FAR_MS]],
                lambda: self.db.set(key, value, pxat=FAR_MS),
            ),
            ([["set", key, value]], lambda: self.db.getset(key, value)),
            ([["set", key, value], ["set", other, b"7"]], lambda: self._mset(key, value, other)),
            ([["drop", key]], lambda: self.db.getdel(key)),
            ([["expire", key, FAR_MS]], lambda: self.db.getex(key, pxat=FAR_MS)),
            ([["drop", key], ["drop", other]], lambda: self.db.delete(key, other)),
        )
        unit, call = ways[way]
        if way < 6 or old is not None:
            if way in (1, 2) and other in self._model.expiries:
                return
            self._ask(unit, call)

    def _mset(self, key: bytes, value: bytes, other: bytes) -> object:
        return self.db.mset({key: value, other: b"7"})

    # --- databases

    def _flushdb(self, database: int) -> None:
        number = int(database >= 10)
        self._ask([["flush", number]], lambda: self.db.db(number).flushdb())

    def _flushall(self, _: int) -> None:
        self._ask([["flushall", b""]], self.db.flushall)

    def _swapdb(self, _: int) -> None:
        self._ask([["swap", 0, 1]], lambda: self.db.swapdb(0, 1))


def drawn(choose: Callable[[Any], Any], stream: int) -> Step:
    """A step, drawn."""
    name = choose([*COMMANDS])
    if name in RARE:
        name = choose([*COMMANDS])
    return [name, stream, *(choose(choices) for choices in COMMANDS[name])]
