"""Asking: calls to a store under test. Each is a unit of the model, and is noted as promised when it returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from tidelog.api.sync import Store
from tidelog.crash.errors import Mismatch
from tidelog.crash.model import Model, number, place
from tidelog.crash.oracle import unit_text
from tidelog.crash.served import Jumping, Still
from tidelog.crash.trace import Unit

GROUP: Final = b"g"
ANN: Final = "ann"
BOB: Final = "bob"
PAD: Final = bytes(range(65, 91)) * 400
ELSEWHERE: Final = 10  # streams from this number on are in another database

Units = Callable[[list[bytes]], Unit]


class WorkloadKey(NamedTuple):
    """A key of a workload: its name in the model, the database, and its name there."""

    name: bytes
    db: Store
    key: bytes


class Asking:
    """A store, the model of what it has, and what was promised.

    units      what the store was asked to do and has done
    unknown    the unit of the call that is under way; None for none, or if the IDs cannot be told in advance
    promise    called with each promise: units fsynced, written and issued
    predicts   the clock of the store stands still, so the IDs of entries can be told before they are added
    clock      of the store, if it can be set
    """

    def __init__(
        self,
        db: Store,
        policy: str,
        promise: Callable[[int, int, int], object],
        before: list[Unit] | None,
        *,
        predicts: bool,
        clock: Jumping | None,
    ) -> None:
        self.db = db
        self.policy = policy
        self.promise = promise
        self.units: list[Unit] = list(before or [])
        self.unknown: Unit | None = None
        self.fsynced = self.written = len(self.units)
        # Further units that may be in the store, while threads write, or while a call of several units is told.
        self._under_way = 0
        self._predicts = predicts
        self._clock = clock
        self._model = Model()
        for unit in self.units:
            self._model.apply(unit)

    # --- promises

    def _promise(self, issued: int) -> None:
        self.promise(self.fsynced, self.written, max(issued, self._under_way))

    def _begin(self, unit: Unit | None) -> None:
        """A call begins that is this unit, if it can be told in advance."""
        self.unknown = unit
        self._promise(len(self.units) + 1)

    def _done(self, unit: Unit, *, fsynced: bool = False) -> None:
        """A call returned that was this unit."""
        if self.unknown is not None and unit != self.unknown:
            raise Mismatch(
                f"without any crash, {unit_text(unit)}, and not {unit_text(self.unknown)}"
            )
        self.unknown = None
        self._model.apply(unit)
        self.units.append(unit)
        self.written = len(self.units)
        if fsynced or self.policy == "always":
            self.fsynced = len(self.units)
        self._promise(len(self.units))

    def _ask(self, unit: Unit, call: Callable[[], object]) -> Any:
        """Make a call that is this unit. Returns its reply."""
        self._begin(unit)
        reply = call()
        self._done(unit)
        return reply

    def _ask_ids(
        self, key: bytes, count: int, units: Units, call: Callable[[], Iterable[Any]]
    ) -> None:
        """Make a call that adds entries: the IDs that it returns complete its unit."""
        ids = self._ids(key, count)
        self._begin(None if ids is None else units(ids))
        self._done(units([*call()]))

    def _wrong(self, words: str) -> None:
        """Say that the store was wrong without any crash. Raises Mismatch."""
        raise Mismatch(f"without any crash, {words}")

    # --- keys, entries and groups

    def _at(self, stream: int) -> WorkloadKey:
        """The key of a stream."""
        database, key = divmod(stream, ELSEWHERE)[0], b"stream%d" % (stream % ELSEWHERE)
        return WorkloadKey(place(database, key), self.db.db(database) if database else self.db, key)

    def _fields(self, nbytes: int) -> dict[bytes, bytes]:
        return {b"unit": b"%d" % len(self.units), b"pad": PAD[:nbytes]}

    def _ids(self, name: bytes, count: int) -> list[bytes] | None:
        """The IDs that a stream gives to its next entries; None if they depend on the time."""
        if not self._predicts:
            return None
        ms, sequence = Still.ms, -1
        if name in self._model.streams:
            ms, sequence = max((ms, sequence), number(self._model.streams[name].last))
        return [b"%d-%d" % (ms, sequence + n) for n in range(1, count + 1)]

    def _entries(self, name: bytes) -> list[bytes]:
        """The IDs of a stream; none if it is missing."""
        stream = self._model.streams.get(name)
        return [] if stream is None else list(stream.entries)

    def _group(self, stream: int, group: bytes = GROUP) -> WorkloadKey:
        """Have a group. Returns the key of its stream."""
        at = self._at(stream)
        if at.name not in self._model.streams or group not in self._model.streams[at.name].groups:
            self._ask(
                [["group", at.name, group]],
                lambda: at.db.xgroup_create(at.key, group, id="0", mkstream=True),
            )
        return at

    def _pending(self, name: bytes, group: bytes = GROUP) -> list[bytes]:
        return list(self._model.streams[name].groups[group].pending)


def flat(fields: dict[bytes, bytes]) -> list[bytes]:
    """Fields as the model has them."""
    return [part for pair in fields.items() for part in pair]
