"""The oracle tells a lost unit, a wrong state and a refusal apart, and accepts every prefix that is legal."""

from __future__ import annotations

import pytest

from tidelog.crash.errors import WrongId
from tidelog.crash.model import Model
from tidelog.crash.oracle import Kind, Oracle, Served
from tidelog.crash.trace import Promised, Unit

UNITS: list[Unit] = [
    [["add", b"s", b"1-0", [b"f", b"1"]]],
    [["add", b"s", b"2-0", [b"f", b"2"]], ["set", b"cursor", b"2"]],
    [["group", b"s", b"g"], ["read", b"s", b"g", b"ann", 2]],
    [["ack", b"s", b"g", [b"1-0"]]],
]


def after(count: int) -> Served:
    model = Model()
    for unit in UNITS[:count]:
        model.apply(unit)
    return Served(model.contents())


@pytest.mark.parametrize("found", range(5))
def test_every_whole_number_of_units_from_the_acknowledged_to_the_issued(found: int) -> None:
    oracle = Oracle(UNITS)
    fault = oracle.judge(after(found), Promised(1, 2, 3), power=True)
    if found < 1:
        assert fault is not None and fault.kind is Kind.LOST
        assert "add s 1-0" in fault.words
    elif found > 3:
        assert fault is not None and fault.kind is Kind.WRONG
        assert "not given yet" in fault.words
    else:
        assert fault is None
    killed = oracle.judge(after(found), Promised(1, 2, 3), power=False)
    assert (killed is None) == (2 <= found <= 3)


def test_half_a_unit_is_wrong() -> None:
    model = Model()
    model.apply(UNITS[0])
    model.apply(UNITS[1][:1])
    fault = Oracle(UNITS).judge(Served(model.contents()), Promised(0, 0, 4), power=True)
    assert fault is not None and fault.kind is Kind.WRONG


def test_an_acknowledged_entry_that_is_pending_again_is_lost() -> None:
    fault = Oracle(UNITS).judge(after(3), Promised(4, 4, 4), power=True)
    assert fault is not None and fault.kind is Kind.LOST
    assert "ack s g" in fault.words


def test_a_store_that_does_not_open_is_refused() -> None:
    fault = Oracle(UNITS).judge(Served(None, "StoreDamaged: no"), Promised(0, 0, 0), power=True)
    assert fault is not None and fault.kind is Kind.REFUSED


def test_ids_grow() -> None:
    model = Model()
    model.apply([["add", b"s", b"9-1", []]])
    for entry_id in (b"9-1", b"9-0", b"8-5"):
        with pytest.raises(WrongId):
            model.apply([["add", b"s", entry_id, []]])
    model.apply([["add", b"s", b"10-0", []]])
