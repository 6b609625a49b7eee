"""OBJECT IDLETIME: seconds since a command named the key; looking from outside leaves it idle."""

import pytest

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.commands.streams.add import decide_xadd_auto
from tidelog.engine.effects.apply import apply
from tidelog.engine.keys.state import Settings, State

START = 1_700_000_000_000


class Keys:
    """An engine whose clock the test moves."""

    def __init__(self) -> None:
        self.ctx = Context(State(), Settings())
        self.ctx.now = START

    def run(self, line: str) -> object:
        self.ctx.effects = []
        reply = decide(self.ctx, line.encode().split())
        for effect in self.ctx.effects:
            apply(self.ctx.state, effect)
        return reply

    def idle_after(self, line: str) -> object:
        """Idle seconds of key `k`, seven seconds old, after a command."""
        self.run("SET k v")
        assert self.run("OBJECT IDLETIME k") == 0
        self.ctx.now += 7000
        self.run(line)
        return self.run("OBJECT IDLETIME k")


@pytest.mark.parametrize("line", ["GET k", "TOUCH k", "APPEND k x", "SET k w", "EXPIRE k 100"])
def test_a_command_that_uses_the_key_ends_its_idleness(line: str) -> None:
    assert Keys().idle_after(line) == 0


@pytest.mark.parametrize(
    "line", ["TYPE k", "TTL k", "EXISTS k", "OBJECT ENCODING k", "KEYS *", "SCAN 0", "GET other"]
)
def test_looking_from_outside_leaves_a_key_idle(line: str) -> None:
    assert Keys().idle_after(line) == 7


def test_the_direct_path_of_xadd_counts_as_use() -> None:
    keys = Keys()
    for _ in range(2):
        keys.ctx.now += 5000
        effect = decide_xadd_auto(
            keys.ctx.state, keys.ctx.settings, 0, b"s", (b"f", b"v"), keys.ctx.now
        )
        assert effect is not None
        apply(keys.ctx.state, effect)
    keys.ctx.now += 2999
    assert keys.run("OBJECT IDLETIME s") == 2
    keys.run("DEL s")
    assert keys.run("OBJECT IDLETIME s") is None
    assert not keys.ctx.database.keys.accessed
