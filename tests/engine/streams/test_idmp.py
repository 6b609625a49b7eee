"""The tables of dedup IDs: a checkpoint has those of its moment, whatever is recorded while it is written."""

from __future__ import annotations

import pytest
from tests.engine.driver import Engine

from tidelog.engine.streams.idmp import FREED, HELD, Idmp
from tidelog.engine.streams.stream import Stream

NOW = 1_700_000_000_000


def entry(number: int) -> int:
    return NOW << 64 | number


@pytest.mark.parametrize("change", ["record", "expire"])
def test_a_frozen_table_stays_as_it_was(change: str) -> None:
    table = Idmp(duration=10, maxsize=2)
    table.record(b"ann", b"first", entry(1))
    frozen = table.freeze()
    if change == "record":
        table.record(b"ann", b"second", entry(2))
        table.record(b"ann", b"third", entry(3))
    else:
        table.expire(b"ann", NOW + 11_000)
    assert [*frozen.records()] == [(b"ann", b"first", entry(1), None)]
    left = [(b"ann", b"second", entry(2), None), (b"ann", b"third", entry(3), None)]
    assert [*table.records()] == (left if change == "record" else [])


def test_a_freed_iid_is_forgotten_and_a_frozen_table_keeps_it() -> None:
    table = Idmp(duration=10, maxsize=2)
    table.record(b"ann", b"first", entry(1))
    table.record(b"ann", b"second", entry(2), HELD)
    frozen = table.freeze()
    table.record(b"ann", b"first", entry(1), FREED)
    table.record(b"ann", b"third", entry(3), FREED)  # nobody knows it
    table.record(b"ben", b"first", entry(1), FREED)
    assert [*table.records()] == [(b"ann", b"second", entry(2), HELD)]
    assert len([*frozen.records()]) == 2 and table.added == 2
    table.record(b"ann", b"second", entry(2), FREED)
    assert [*table.records()] == [] and table.producers == {}


def test_a_held_iid_does_not_expire() -> None:
    table = Idmp(duration=10, maxsize=2)
    table.record(b"ann", b"held", entry(1), HELD)
    late = NOW + 10**9
    table.expire(b"ann", late)
    assert table.lookup(b"ann", b"held", late) == entry(1) and table.tracked(late) == (1, 1)
    kept = Idmp.unpack(table.pack())
    assert [*kept.records()] == [*table.records()] == [(b"ann", b"held", entry(1), HELD)]


def test_the_iid_of_an_entry() -> None:
    table = Idmp(duration=10, maxsize=2)
    assert table.owned(b"ann", entry(1)) is None
    for number in range(1, 12):
        table.record(b"ann", b"%d" % number, entry(number))
        known = {entry(n) for n in (number - 1, number)}
        for n in range(1, 12):
            iid = b"%d" % n if entry(n) in known else None
            assert table.owned(b"ann", entry(n)) == iid
        assert len(table._owners[b"ann"]) <= 2 * table.maxsize + 1
    table.record(b"ann", b"11", entry(20))  # another entry has it now
    assert table.owned(b"ann", entry(11)) is None and table.owned(b"ann", entry(20)) == b"11"
    table.record(b"ann", b"11", entry(20), FREED)
    assert table.owned(b"ann", entry(20)) is None
    table.configure(20, 3)
    table.record(b"ann", b"new", entry(20))
    assert table.owned(b"ann", entry(20)) == b"new" and table.owned(b"ann", entry(10)) is None


ADD = "XADD s IDMP p i * f v"
AHEAD = "9000000000000"


@pytest.fixture
def ahead() -> Engine:
    """A stream whose IDs are ahead of the clock, and which remembers an iid for two seconds."""
    engine = Engine()
    engine(f"XADD s {AHEAD}-0 f v")
    engine("XCFGSET s IDMP-DURATION 2")
    return engine


def _table(engine: Engine, key: bytes) -> Idmp:
    stream = engine.state.databases[0].keys[key]
    assert isinstance(stream, Stream) and stream.idmp is not None
    return stream.idmp


def test_an_iid_expires_although_the_ids_are_ahead_of_the_clock(ahead: Engine) -> None:
    first = ahead(ADD)
    assert ahead(ADD) == first == f"{AHEAD}-1"
    ahead.now += 1999
    assert ahead(ADD) == first
    ahead.now += 1
    assert ahead("XINFO STREAM s")["iids-tracked"] == 0
    assert ahead(ADD) == f"{AHEAD}-2"  # a new message
    assert ahead(ADD) == f"{AHEAD}-2"
    ahead.check()


def test_an_iid_lives_as_long_when_the_ids_jump_forward(ahead: Engine) -> None:
    first = ahead(ADD)
    ahead("XADD s 9100000000000-0 f v")
    assert ahead("XADD s IDMP p j * f v") == "9100000000000-1"
    assert ahead(ADD) == first
    ahead.check()


def test_an_iid_recorded_for_an_entry_ahead_of_the_clock_expires(ahead: Engine) -> None:
    assert ahead(f"XIDMPRECORD s p i {AHEAD}-0") == "OK"
    assert ahead(ADD) == f"{AHEAD}-0"
    ahead.now += 2000
    assert ahead(ADD) == f"{AHEAD}-1"
    ahead.check()


def test_memory_of_expired_iids_is_freed(ahead: Engine) -> None:
    ahead(ADD)
    ahead.now += 2000
    ahead("XADD s IDMP q j * f v")
    assert [*_table(ahead, b"s").producers] == [b"q"]


def test_a_copy_and_a_checkpoint_keep_the_times(ahead: Engine) -> None:
    ahead(ADD)
    ahead("XADD s IDMP q i * f v")
    ahead.now += 1000
    ahead("XADD s IDMP p j * f v")
    ahead("COPY s t")
    idmp, copied = _table(ahead, b"s"), _table(ahead, b"t")
    again = Idmp.unpack(idmp.pack())
    for table in (again, copied, idmp.freeze()):
        assert [*table.records()] == [*idmp.records()]
        assert table.lookup(b"p", b"i", ahead.now + 1000) is None
        assert table.lookup(b"p", b"j", ahead.now + 1000) is not None
    assert again.producers == idmp.producers
    ahead.check()


def test_tables_without_times_are_packed_as_before() -> None:
    table = Idmp()
    table.record(b"p", b"i", entry(1))
    assert table.pack()[4] == [[b"p", [b"i"], entry(1).to_bytes(16, "big")]]
    assert Idmp.unpack(table.pack()).producers == table.producers
