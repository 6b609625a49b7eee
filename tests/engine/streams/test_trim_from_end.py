"""Trims that are planned from the end: the same plan as from the head, and nothing is read of what goes."""

from __future__ import annotations

import random

import pytest
from tests.engine.streams.cold import (
    NODES,
    SLOTS,
    Store,
    entry,
    lose_page,
    scramble_page,
    spoil_page,
    stored,
)
from tests.rounds import rest_slow

from tidelog.engine import ids
from tidelog.engine.commands.streams import trim
from tidelog.engine.effects.digest import digest
from tidelog.engine.rowkeys import DATA, PAGE
from tidelog.engine.streams import pages, reading
from tidelog.engine.streams.stream import Stream

BEYOND = NODES * SLOTS


def grown(seed: int) -> Store:
    """A stream with holes, of which part is cold; its IDs may have come again after an XSETID."""
    chance = random.Random(seed)
    store = Store(0)
    number = 0
    for _ in range(chance.randrange(40, 300)):
        number += 1
        store.add(number)
        if chance.random() < 0.2:
            store.raw(b"XDEL", b"s", b"%d-1" % chance.randrange(max(number - 30, 1), number + 1))
        if chance.random() < 0.1:
            live = store.stream.last_live_id() >> 64
            if live:
                number = live
                top = ids.text(store.stream.last_id)
                store.raw(b"XSETID", b"s", top, b"ENTRIESADDED", b"1000", b"MAXDELETEDID", b"0-1")
                store.raw(b"XSETID", b"s", b"%d-1" % number)
        if chance.random() < 0.03:
            store.commit()
    return store


def planned(stream: Stream, words: list[bytes], store: Store) -> tuple[object, ...]:
    options = trim.TrimOptions()
    at = 0
    while at < len(words):
        at += options.take(words, at)
    plan = trim.plan_trim(stream, stream, stream.length, options, store.ctx.settings)
    return plan.removed, plan.drop, plan.floor, plan.slots


@pytest.mark.parametrize("seed", rest_slow(range(60), 10))
def test_both_ways_come_to_the_same_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    store = grown(seed)
    stream = store.stream
    last = (stream.last_id >> 64) + 2
    commands = [[b"MAXLEN", sign, b"%d" % n] for n in range(0, 300, 7) for sign in (b"=", b"~")]
    commands += [[b"MINID", sign, b"%d-1" % n] for n in range(0, last, 3) for sign in (b"=", b"~")]
    for words in commands:
        if words[1] == b"~":
            words += [b"LIMIT", b"0"]
        found = planned(stream, words, store)
        with monkeypatch.context() as only:
            only.setattr(trim, "_keeps_less", lambda *of: False)
            assert planned(stream, words, store) == found, words


@pytest.mark.parametrize("words", ["MAXLEN 100", "MINID 700-1", "MAXLEN 0", "MAXLEN ~ 101 LIMIT 0"])
def test_what_goes_is_not_read(words: str) -> None:
    store = stored()
    pages.forget_pages()
    store.rows.reads = store.rows.data_read = 0
    store(f"XTRIM s {words}")
    assert store.rows.data_read == 0
    assert store.rows.reads <= 4  # of ten: five pages, decided and applied
    store.stream.check()


@pytest.mark.parametrize("damage", [spoil_page, lose_page, scramble_page])
@pytest.mark.parametrize("words", ["MAXLEN 100", "MINID 700-1", "MAXLEN = 131"])
def test_damage_in_what_goes_goes_with_it(damage: object, words: str) -> None:
    store = stored()
    damage(store)  # type: ignore[operator]
    pages.forget_pages()
    left = {"MINID 700-1": 100}.get(words) or int(words.split()[-1])
    assert store(f"XTRIM s {words}") == BEYOND - left
    store.rows.bad.clear()
    store.stream.check()
    store.rows.bad |= {key for key in store.rows.all() if key[:1] == PAGE and len(key) > 9}
    store.rows.bad = {key for key in store.rows.bad if int.from_bytes(key[9:], "big") >> 64 < 500}
    store.commit()
    assert store.pages() == [640]
    assert store.of_kind(DATA) == 1
    store.rows.bad.clear()
    assert reading.between(store.stream, 0, ids.MAX).ids() == [
        entry(n) for n in range(BEYOND - left, BEYOND)
    ]


def test_an_xadd_trims_from_the_end_too() -> None:
    plain, store = Store(), stored()
    for engine in (plain, store):
        pages.forget_pages()
        store.rows.reads = 0
        engine.raw(b"XADD", b"s", b"MAXLEN", b"15", b"%d-1" % BEYOND, b"f", b"v")
        engine.stream.check()
    assert store.rows.reads <= 3
    assert digest(plain.state) == digest(store.state)


def test_ids_that_came_again_are_trimmed_as_from_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored()
    store.raw(b"XDEL", b"s", *[b"%d-1" % number for number in range(BEYOND - 5, BEYOND)])
    top = b"%d-1" % (BEYOND - 1)
    store.raw(b"XSETID", b"s", top, b"ENTRIESADDED", b"1000", b"MAXDELETEDID", b"0-1")
    store.raw(b"XSETID", b"s", b"%d-1" % (BEYOND - 6))
    for number in range(BEYOND - 5, BEYOND - 2):
        store.add(number)  # a new node, behind deleted slots with greater IDs
    words = [b"MINID", b"%d-1" % (BEYOND - 1)]
    found = planned(store.stream, words, store)
    monkeypatch.setattr(trim, "_keeps_less", lambda *of: False)
    assert planned(store.stream, words, store) == found
