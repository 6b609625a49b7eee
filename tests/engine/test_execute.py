"""Finding and running a command: spellings, arity, containers, and what is left behind after an error."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

from tidelog.engine import commands
from tidelog.engine.commands import execute
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide, expire_due
from tidelog.engine.commands.table import COMMANDS, SPELLINGS_MAX, TABLE, Command
from tidelog.engine.effects.apply import APPLY, apply
from tidelog.engine.effects.effect import DEL, END, SET
from tidelog.engine.errors import CommandError
from tidelog.engine.keys.expiries import NEVER
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.reply import NULL_ARRAY, OK, Park, Reply, Status


@pytest.fixture
def ctx() -> Context:
    context = Context(State(), Settings())
    context.now = 1_000_000
    return context


def run(ctx: Context, *args: bytes) -> Reply:
    """Decide and apply."""
    ctx.effects = []
    reply = decide(ctx, list(args))
    for effect in ctx.effects:
        apply(ctx.state, effect)
    return reply


def test_every_module_of_commands_is_imported() -> None:
    for found in pkgutil.iter_modules(commands.__path__):
        module = import_module(f"{commands.__name__}.{found.name}")
        registers = any(c.decide.__module__ == module.__name__ for c in COMMANDS.values())
        assert registers == (getattr(execute, found.name, None) is module), found.name


def test_every_effect_that_ends_a_unit_is_applied_alike() -> None:
    assert len(APPLY) == 128
    assert all(APPLY[opcode] is APPLY[opcode | END] for opcode in range(64))


def test_a_name_may_be_spelled_in_any_case(ctx: Context) -> None:
    for name in (b"ping", b"PING", b"PiNg", b"pINg"):
        assert run(ctx, name) == Status(b"PONG")
        with pytest.raises(CommandError, match="ERR wrong number of arguments for 'ping' command"):
            run(ctx, name, b"a", b"b")
    assert run(ctx, b"oBjEcT", b"rEfCoUnT", b"a") is None


def test_spellings_do_not_pile_up(ctx: Context) -> None:
    name = b"unlink"
    for n in range(1 << 6):
        run(ctx, bytes(c ^ (32 * (n >> i & 1)) for i, c in enumerate(name)), b"k")
    assert len(TABLE.spellings) <= SPELLINGS_MAX


def test_an_error_leaves_no_effects(ctx: Context) -> None:
    run(ctx, b"SET", b"a", b"x", b"PX", b"5")
    ctx.now += 100
    with pytest.raises(CommandError):
        decide(ctx, [b"RENAME", b"a", b"b"])
    assert ctx.effects == []
    assert decide(ctx, [b"GET", b"a"]) is None
    assert ctx.effects == [(DEL, 0, (b"a",))]


def test_a_read_that_may_not_block_gets_the_null_array(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    park = Park([(0, b"k")], [b"wait"], 0, None)
    parks = Command(b"wait", 1, frozenset(), 0, 0, 0, lambda ctx, args: park)
    monkeypatch.setitem(COMMANDS, b"wait", parks)
    monkeypatch.setattr(TABLE, "spellings", {})
    assert decide(ctx, [b"wait"]) is park
    ctx.may_block = False
    assert decide(ctx, [b"wait"]) is NULL_ARRAY


def test_what_is_due_is_deleted_in_every_database(ctx: Context) -> None:
    for db in (0, 3):
        ctx.db = db
        for n in range(10):
            run(ctx, b"SET", b"k%d" % n, b"v", b"PX", b"%d" % (10 + n))
    assert ctx.state.next_expiry == ctx.now + 10
    ctx.now += 15
    ctx.effects = []
    expire_due(ctx, 7)
    assert [(effect[1], len(effect[2])) for effect in ctx.effects] == [(0, 5), (3, 2)]
    while ctx.effects:
        for effect in ctx.effects:
            apply(ctx.state, effect)
        ctx.effects = []
        expire_due(ctx, 7)
    assert ctx.state.next_expiry == ctx.now
    assert len(ctx.state.databases[3].keys) == 5


def test_next_expiry_follows_every_way_a_time_goes(ctx: Context) -> None:
    def set_it(key: bytes, ms: int) -> None:
        run(ctx, b"SET", key, b"v", b"PX", b"%d" % ms)

    start = ctx.now
    # fmt: off
    for command, left in (
        ([b"PERSIST", b"a"],              20), ([b"DEL", b"a"],             20),
        ([b"SET", b"a", b"x"],            20), ([b"PEXPIRE", b"a", b"30"],  20),
        ([b"RENAME", b"a", b"c"],         10), ([b"RENAME", b"b", b"a"],    20),
        ([b"MOVE", b"a", b"1"],           10), ([b"SWAPDB", b"0", b"1"],    10),
        ([b"COPY", b"a", b"b", b"REPLACE"], 10), ([b"COPY", b"b", b"a", b"REPLACE"], 20),
        ([b"FLUSHDB"],                    None), ([b"FLUSHALL"],            None),
        ([b"GETEX", b"a", b"PERSIST"],    20), ([b"SET", b"a", b"x", b"KEEPTTL"], 10),
        ([b"APPEND", b"a", b"x"],         10),
    ):
        run(ctx, b"FLUSHALL")
        set_it(b"a", 10)
        set_it(b"b", 20)
        run(ctx, *command)
        wanted = NEVER if left is None else start + left
        assert ctx.state.next_expiry == wanted, command
    # fmt: on


def test_effects_of_a_command_are_outcomes(ctx: Context) -> None:
    assert decide(ctx, [b"SET", b"a", b"v", b"EX", b"10"]) is OK
    assert ctx.effects == [(SET, 0, b"a", b"v", ctx.now + 10_000)]


def test_a_copied_stream_goes_its_own_way(ctx: Context) -> None:
    for n in range(250):
        run(ctx, b"XADD", b"s", b"%d-1" % (n + 1), b"f", b"v")
    run(ctx, b"XGROUP", b"CREATE", b"s", b"g", b"5")
    assert run(ctx, b"COPY", b"s", b"t") == 1
    source, target = (ctx.state.databases[0].keys[key] for key in (b"s", b"t"))
    assert source.number != target.number  # type: ignore[union-attr]
    run(ctx, b"XDEL", b"t", b"1-1", b"150-1", b"250-1")
    run(ctx, b"XGROUP", b"DESTROY", b"t", b"g")
    run(ctx, b"XADD", b"t", b"300-1", b"f", b"v")
    assert run(ctx, b"XLEN", b"s") == 250
    assert run(ctx, b"XLEN", b"t") == 248
    assert run(ctx, b"XGROUP", b"DESTROY", b"s", b"g") == 1


def test_randomkey_reaches_every_key(ctx: Context) -> None:
    for n in range(20):
        run(ctx, b"SET", b"k%d" % n, b"v")
    found = set()
    for _ in range(2000):
        ctx.now += 1
        found.add(run(ctx, b"RANDOMKEY"))
    assert len(found) == 20
    for n in range(20):
        run(ctx, b"PEXPIRE", b"k%d" % n, b"1")
    ctx.now += 2
    assert run(ctx, b"RANDOMKEY") is None
    assert run(ctx, b"KEYS", b"*") == []
    assert run(ctx, b"SCAN", b"0", b"COUNT", b"100") == [b"0", []]
