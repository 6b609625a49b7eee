"""The order of SCAN and the heap of expiries, against plain models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.driver import Engine

from tidelog.engine.effects.effect import DEL, OPCODE
from tidelog.engine.keys import keyspace as module
from tidelog.engine.keys.expiries import NEVER, Expiries
from tidelog.engine.keys.keyspace import PLACES, Keyspace, place
from tidelog.engine.keys.state import State

names = st.integers(0, 40).map(lambda n: b"k%d" % n)
changes = st.lists(st.tuples(st.sampled_from(["put", "del", "pop"]), names), max_size=6)


def change(keys: Keyspace, present: set[bytes], steps: list[tuple[str, bytes]]) -> set[bytes]:
    """Apply changes; the names that were missing at any moment or came anew."""
    touched = set()
    for what, name in steps:
        if what == "put":
            if name not in present:
                touched.add(name)
            keys[name] = b""
            present.add(name)
        elif what == "pop":
            assert keys.pop(name, None) == (b"" if name in present else None)
            present.discard(name)
            touched.add(name)
        elif name in present:
            del keys[name]
            present.discard(name)
            touched.add(name)
    return touched


@given(st.sets(names), st.integers(1, 5), st.lists(changes, max_size=30))
def test_a_scan_passes_every_key_that_stays(
    start: set[bytes], count: int, between: list[list[tuple[str, bytes]]]
) -> None:
    keys, present = Keyspace(), set(start)
    for name in start:
        keys[name] = b""
    moving: set[bytes] = set()
    returned: list[bytes] = []
    cursor, pages = 0, 0
    while True:
        cursor, page = keys.scan(cursor, count)
        returned += page
        assert set(page) <= present
        assert 0 <= cursor <= PLACES
        if cursor == 0:
            break
        assert len(page) >= count
        if pages < len(between):
            moving |= change(keys, present, between[pages])
        pages += 1
    staying = start - moving
    assert staying <= set(returned)
    assert all(returned.count(name) == 1 for name in staying)


@given(st.sets(names), st.lists(changes, max_size=60))
def test_the_order_stays_sorted_however_its_chunks_split_and_empty(
    start: set[bytes], steps: list[list[tuple[str, bytes]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", 2)
        keys, present = Keyspace(), set(start)
        for name in start:
            keys[name] = b""
        keys.scan(0, 1)
        for some in steps:
            change(keys, present, some)
            assert keys.scan(0, 100) == (0, sorted(present, key=place))


def test_keys_of_one_place_come_in_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_spot", lambda key: key[:1] + bytes(7) + key)
    keys = Keyspace()
    for name in (b"aa", b"ab", b"ac", b"ba", b"ca", b"cb"):
        keys[name] = b""
    at_b, page = keys.scan(0, 1)
    assert (at_b, page) == (place(b"b"), [b"aa", b"ab", b"ac"])
    assert keys.scan(at_b, 1) == (place(b"c"), [b"ba"])
    assert keys.scan(at_b, 2) == (0, [b"ba", b"ca", b"cb"])
    assert keys.scan(place(b"c"), 1) == (0, [b"ca", b"cb"])


def test_a_cursor_beyond_all_places_ends_the_scan() -> None:
    keys = Keyspace()
    keys[b"k"] = b""
    assert keys.scan(PLACES + 1, 10) == keys.scan((1 << 64) - 1, 10) == (0, [])


def test_a_place_is_the_same_for_ever() -> None:
    # A cursor may be held across a restart and an upgrade.
    assert place(b"") == 4022468892641180
    assert place(b"orders") == 3759018703485768


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), names, st.integers(0, 20)),
            st.tuples(st.just("drop"), names, st.just(0)),
            st.tuples(st.just("due"), names, st.integers(0, 21)),
        ),
        max_size=300,
    )
)
def test_expiries_agree_with_a_plain_dict(steps: list[tuple[str, bytes, int]]) -> None:
    expiries, model = Expiries(), dict[bytes, int]()
    for what, name, number in steps:
        if what == "put":
            expiries.put(name, number)
            model[name] = number
        elif what == "drop":
            assert expiries.drop(name) == model.pop(name, NEVER)
        else:
            due = expiries.due(number, 1000)
            assert len(due) == len(set(due))
            assert set(due) == {name for name, at in model.items() if at < number}
            few = expiries.due(number, 3)
            assert len(few) == min(3, len(due)) and set(few) <= set(due)
        assert expiries == model
    assert expiries.first() == min(model.values(), default=NEVER)


def test_a_time_set_again_and_again_takes_no_room() -> None:
    expiries = Expiries()
    for at in range(10_000):
        expiries.put(b"k", at)
    assert len(expiries._heap) < 200
    assert expiries.first() == 9_999


# --- many keys at once


@pytest.mark.parametrize("expiring", [False, True])
def test_a_del_of_many_keys_looks_for_the_next_expiry_once(
    expiring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    if expiring:
        engine("SET stays v PX 500000")
    keys = [b"k%d" % number for number in range(200)]
    for number in range(len(keys)):
        engine(f"SET k{number} v PX {1_000 + number}" if expiring else f"SET k{number} v")
    looked = 0
    find = State.find_next_expiry

    def counted(state: State) -> None:
        nonlocal looked
        looked += 1
        find(state)

    monkeypatch.setattr(State, "find_next_expiry", counted)
    assert engine("DEL", *keys, *keys[:7], "missing") == len(keys)
    assert looked == expiring
    assert engine.state.next_expiry == (engine.now + 500_000 if expiring else NEVER)
    # nothing void is left to be passed over
    assert len(engine.state.databases[0].expires._heap) <= 65
    engine.check()


def test_many_keys_are_found_whether_they_expire_or_not() -> None:
    engine = Engine()
    engine("SET", "a", "v")
    assert engine("EXISTS", "a", "b", "a") == engine("TOUCH", "a", "b", "a") == 2
    engine("SET", "b", "v", "PX", 10)
    assert engine("EXISTS", "a", "b", "a") == engine("TOUCH", "a", "b", "a") == 3
    engine.now += 11
    assert engine("EXISTS", "a", "b", "a") == 2
    assert [effect[0] & OPCODE for effect in engine.effects] == [DEL]
    assert engine("DEL", "b", "a", "a") == 1
    engine.check()
