"""MULTI, EXEC and WATCH where the comparison with a real Redis does not reach: bounds, ends, the registry."""

from __future__ import annotations

import pytest

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.transaction import Exec, Transaction, Watches
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.reply import NULL_ARRAY, OK, QUEUED


@pytest.fixture
def ctx() -> Context:
    context = Context(State(), Settings())
    context.now = 1000
    return context


def submit(transaction: Transaction, ctx: Context, text: str) -> object:
    return transaction.submit(ctx, text.encode().split())


def test_exec_hands_out_what_was_queued(ctx: Context) -> None:
    transaction = Transaction(Watches())
    assert submit(transaction, ctx, "SET a 1") is None
    assert submit(transaction, ctx, "MULTI") is OK
    assert submit(transaction, ctx, "SET a 1") is QUEUED
    assert submit(transaction, ctx, "unwatch") is QUEUED
    answer = submit(transaction, ctx, "EXEC")
    assert isinstance(answer, Exec)
    assert answer.commands == [[b"SET", b"a", b"1"], [b"unwatch"]]
    assert not transaction.active


def test_more_bytes_than_allowed_doom_the_transaction(ctx: Context) -> None:
    transaction = Transaction(Watches(), queued_bytes_max=100)
    submit(transaction, ctx, "MULTI")
    assert submit(transaction, ctx, "SET a " + "x" * 60) is QUEUED
    with pytest.raises(CommandError, match="transaction too large: more than 100 bytes"):
        submit(transaction, ctx, "SET a " + "x" * 60)
    with pytest.raises(CommandError, match="EXECABORT Transaction discarded because of previous"):
        submit(transaction, ctx, "EXEC")
    # The bound is one of a transaction, not of a session.
    submit(transaction, ctx, "MULTI")
    assert submit(transaction, ctx, "SET a " + "x" * 60) is QUEUED


def test_a_touch_breaks_those_who_watch_and_nobody_else(ctx: Context) -> None:
    watches = Watches()
    one, two = Transaction(watches), Transaction(watches)
    submit(one, ctx, "WATCH a b a")
    submit(two, ctx, "WATCH b")
    assert set(watches.keys) == {(0, b"a"), (0, b"b")}
    watches.touch([(0, b"a"), (1, b"b"), (0, b"c")])
    assert one.broken and not two.broken
    submit(one, ctx, "MULTI")
    assert submit(one, ctx, "EXEC") is NULL_ARRAY
    assert set(watches.keys) == {(0, b"b")}
    two.reset()
    assert not watches.keys


def test_unwatch_and_discard_forget(ctx: Context) -> None:
    watches = Watches()
    transaction = Transaction(watches)
    for ending in ("UNWATCH", "DISCARD"):
        submit(transaction, ctx, "WATCH a")
        if ending == "DISCARD":
            submit(transaction, ctx, "MULTI")
        watches.touch([(0, b"a")])
        assert submit(transaction, ctx, ending) is OK
        assert not transaction.broken and not watches.keys


def test_a_watched_key_that_expires_breaks_without_being_deleted(ctx: Context) -> None:
    database = ctx.state.databases[0]
    database.keys[b"a"] = b"1"
    database.expires.put(b"a", 2000)
    transaction = Transaction(Watches())
    submit(transaction, ctx, "WATCH a")
    submit(transaction, ctx, "MULTI")
    ctx.now = 2001
    assert submit(transaction, ctx, "EXEC") is NULL_ARRAY


def test_a_key_that_had_expired_when_it_was_watched_may_be_deleted(ctx: Context) -> None:
    database = ctx.state.databases[0]
    database.keys[b"a"] = b"1"
    database.expires.put(b"a", 999)
    watches = Watches()
    transaction = Transaction(watches)
    submit(transaction, ctx, "WATCH a")
    submit(transaction, ctx, "MULTI")
    watches.touch([(0, b"a")])
    database.expires.drop(b"a")
    assert isinstance(submit(transaction, ctx, "EXEC"), Exec)

    database.expires.put(b"a", 999)
    submit(transaction, ctx, "WATCH a")
    submit(transaction, ctx, "MULTI")
    watches.touch([(0, b"a")])
    watches.touch([(0, b"a")])
    assert submit(transaction, ctx, "EXEC") is NULL_ARRAY
