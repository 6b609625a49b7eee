"""One command after a checkpoint, alone: the next checkpoint holds what it changed.

In long histories one change hides another: an acknowledgement that no checkpoint were told of would go unnoticed, since
its stream is delivered from as well. Here every kind of change comes by itself: after a checkpoint, while one is being
written, and before one that fails.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.driver import Engine
from tests.engine.rows_in_memory import RowsInMemory

from tidelog.engine.commands.execute import decide
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import OPCODE
from tidelog.engine.effects.prepare import prepare
from tidelog.engine.keys.freeze import Frozen, freeze, load_state, settle, thaw
from tidelog.engine.keys.state import State
from tidelog.engine.rowkeys import data_prefix, page_prefix
from tidelog.engine.streams.stream import Stream

ENTRIES = 400
BEFORE = [
    "XGROUP CREATE s g 0",
    "XGROUP CREATE s h 0",
    "XREADGROUP GROUP g c COUNT 150 STREAMS s >",
    "XREADGROUP GROUP g d COUNT 5 STREAMS s >",
    "XGROUP CREATECONSUMER s g idle",
    "XADD other 5-1 f v",
    "XADD third 5-1 f v",
    "XGROUP CREATE third g 0",
    "SET k v",
    "SET due v PXAT 5000000",
    "XADD kept IDMP p i * f v",
]
COMMANDS = [
    "XADD s 900000-1 f v",
    "XADD s MAXLEN = 150 900000-1 f v",
    "XADD other 900000-1 f v",  # into the open node
    "XADD new 900000-1 f v",
    "XADD kept IDMP p j * f v",
    "XDEL s 399-1",  # in the open node
    "XDEL s 20-1",  # in a sealed one
    "XDEL s " + " ".join(f"{n}-1" for n in range(200, 300)),  # of whole nodes
    "XDEL s " + " ".join(f"{n}-1" for n in range(350, 400)),  # at the end
    "XTRIM s MAXLEN = 77",
    "XTRIM s MAXLEN 0",
    "XSETID s 900000-1",
    "XSETID s 900000-1 ENTRIESADDED 5000 MAXDELETEDID 3-3",
    "XCFGSET s IDMP-DURATION 77",
    "XGROUP CREATE s i 5",
    "XGROUP DESTROY s g",
    "XGROUP SETID s g 7",
    "XGROUP CREATECONSUMER s g new",
    "XGROUP DELCONSUMER s g idle",
    "XGROUP DELCONSUMER s g c",
    "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
    "XREADGROUP GROUP h c COUNT 200 STREAMS s >",
    "XACK s g 3-1",
    "XACK s g 152-1",
    "XACK s g " + " ".join(f"{n}-1" for n in range(30, 110)),
    "XACKDEL s g ACKED IDS 1 3-1",
    "XCLAIM s g d 0 3-1",
    "XCLAIM s g d 0 3-1 JUSTID TIME 77",
    "XCLAIM s g c 0 3-1 TIME 1000000 RETRYCOUNT 77 JUSTID",  # nothing but the count
    "XCLAIM s g c 0 152-1 TIME 1000000 RETRYCOUNT 77 JUSTID",
    "XCLAIM s g d 0 " + " ".join(f"{n}-1" for n in range(30, 110)),
    "XAUTOCLAIM s g d 0 0 COUNT 90",
    "XNACK s g FAIL IDS 1 3-1",
    "SET k w",
    "SET new v",
    "DEL k",
    "DEL s",
    "PEXPIREAT k 7000000",
    "PEXPIREAT due 7000000",
    "PERSIST due",
    "RENAME s t",
    "COPY s t",
    "MOVE s 1",
    "SWAPDB 0 1",
    "FLUSHDB",
]

each_command = pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line[:40])


class Stored(Engine):
    """An engine whose checkpoints go into rows."""

    def __init__(self) -> None:
        super().__init__()
        self.ctx.settings.stream_node_max_entries = 10
        self.rows = RowsInMemory()
        self.meta: dict[str, Any] = {}
        for number in range(ENTRIES):
            self.raw(b"XADD", b"s", b"%d-1" % number, b"f", b"%d" % number)
        for line in BEFORE:
            self.done(line)
        self.commit(self.freeze())

    def done(self, line: str) -> None:
        reply = self(line)
        assert not str(reply).startswith("-"), f"{line}: {reply}"

    def freeze(self) -> Frozen:
        self.frozen_meta = self.state.tables_meta()
        return freeze(self.state)

    def commit(self, frozen: Frozen) -> None:
        while frozen.take_some(1):
            pass
        self.rows.write(list(frozen.rows(self.rows)))
        settle(self.state, frozen)
        self.state.changes.cold = self.rows
        self.meta = self.frozen_meta

    def fail(self, frozen: Frozen) -> None:
        while frozen.take_some(1):
            pass
        list(frozen.rows(self.rows))
        thaw(self.state, frozen)

    def reopen(self) -> None:
        """Nothing is in memory."""
        self.state = self.ctx.state = load_state(self.rows, self.meta)

    def loaded(self) -> State:
        return load_state(self.rows, self.meta)


class Prepared(Stored):
    """One that brings into memory what effects change, as a store does."""

    def raw(self, *words: bytes | str | int) -> Any:
        if self.state.changes.cold is None:
            return super().raw(*words)

        args = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.ctx.now, self.ctx.effects = self.now, []
        reply = decide(self.ctx, args)
        prepare(self.state, self.ctx.effects)
        for effect in self.ctx.effects:
            assert effect[0] & OPCODE
            apply(self.state, effect)
        return reply


@pytest.fixture
def store() -> Stored:
    return Prepared()


@each_command
def test_after_a_checkpoint(store: Stored, line: str) -> None:
    before = digest(store.state)
    assert digest(store.loaded()) == before
    store.done(line)
    assert digest(store.state) != before, "it changes nothing"
    store.commit(store.freeze())
    assert digest(store.loaded()) == digest(store.state)


@each_command
def test_after_a_reopening(store: Stored, line: str) -> None:
    store.reopen()
    store.done(line)
    store.commit(store.freeze())
    assert digest(store.loaded()) == digest(store.state)


@each_command
def test_while_one_is_written(store: Stored, line: str) -> None:
    """A checkpoint has the state at the freeze; the next one has the change."""
    store.done("XADD s 800000-1 f v")
    store.done("SET k changed")
    store.done("PEXPIREAT due 6000000")
    before = digest(store.state)
    frozen = store.freeze()
    store.done(line)
    store.commit(frozen)
    assert digest(store.loaded()) == before
    store.commit(store.freeze())
    assert digest(store.loaded()) == digest(store.state)


@each_command
def test_before_one_that_fails(store: Stored, line: str) -> None:
    """It is written by the next one, and the rows are as if none had failed."""
    beside = Prepared()
    for each in (store, beside):
        each.done(line)
    store.fail(store.freeze())
    for each in (store, beside):
        each.done("SET after it")
        each.done("XADD s 950000-1 f v" if line != "RENAME s t" else "XADD t 950000-1 f v")
        each.commit(each.freeze())
        assert digest(each.loaded()) == digest(each.state)
    assert kinds(store) == kinds(beside), "rows are left over"


@each_command
def test_while_one_is_written_that_fails(store: Stored, line: str) -> None:
    store.done("XADD s 800000-1 f v")
    frozen = store.freeze()
    store.done(line)
    store.fail(frozen)
    store.commit(store.freeze())
    assert digest(store.loaded()) == digest(store.state)


def kinds(store: Stored) -> list[bytes]:
    """The first byte of each row's key."""
    return [key[:1] for key in store.rows.all()]


def test_stored_nodes_that_are_no_more_leave_the_file_though_a_checkpoint_failed(
    store: Stored,
) -> None:
    """All nodes of a stream that were stored went, and it has none by now: their rows go with the next checkpoint."""
    for number in range(30):
        store.done(f"XADD p {number + 1}-1 f v")
    store.commit(store.freeze())
    stream = store.state.databases[0].keys[b"p"]
    assert isinstance(stream, Stream)
    prefixes = page_prefix(stream.number), data_prefix(stream.number)
    assert all(list(store.rows.rows(prefix)) for prefix in prefixes)
    store.done("XDEL p " + " ".join(f"{number + 1}-1" for number in range(10, 30)))
    store.ctx.settings.stream_node_max_entries = 100
    store.done("XADD p 900000-1 f v")  # the first node is open again
    assert not stream.blocks
    store.fail(store.freeze())
    stream.check()
    store.commit(store.freeze())
    assert not any(list(store.rows.rows(prefix)) for prefix in prefixes)
    assert digest(store.loaded()) == digest(store.state)


def test_trimmed_nodes_leave_the_file(store: Stored) -> None:
    stream = store.state.databases[0].keys[b"s"]
    assert isinstance(stream, Stream)
    prefixes = page_prefix(stream.number), data_prefix(stream.number)
    before = [len(list(store.rows.rows(prefix))) for prefix in prefixes]
    store.done("XTRIM s MAXLEN = 77")
    store.commit(store.freeze())
    after = [len(list(store.rows.rows(prefix))) for prefix in prefixes]
    assert all(now < then for now, then in zip(after, before)), (before, after)
