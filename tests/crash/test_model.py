"""The model agrees with real servers of Redis, and the workloads try every command that writes."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from tests.oracle.server import (
    EIGHT,
    SEVEN,
    Clock,
    RedisServer,
    Release,
    directory,
    eight_is_not_here,
)

from tidelog.crash.asking import ANN, BOB, WorkloadKey
from tidelog.crash.commands import COMMANDS
from tidelog.crash.errors import BenchError
from tidelog.crash.lives import Step
from tidelog.crash.model import DATABASES, Contents, Model, place
from tidelog.crash.oracle import difference
from tidelog.crash.served import Jumping, Memory, Still, be_quiet, keys_of, open_on
from tidelog.crash.trace import Unit
from tidelog.crash.workloads import OPERATIONS, Life, long
from tidelog.engine.commands.table import TABLE
from tidelog.store.commit.core import Core

STEPS = 1000
LAPSES: list[Step] = [["add", 0, 10], ["lapse", 0]] * 2
# Steps that only later releases have.
SINCE_8_2 = {"delex", "ackdel"}
SINCE_8_8 = {"nack", "unless", "alike", "remember"}
# Of the recorded disk, and of the store.
NEVER = {"meanwhile", "sync", "threads", "policy"}


class _Set(Jumping):
    """The clock of a server, which stands still unless it jumps."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._server = clock
        self._ms = Still.ms
        clock.set(self._ms)

    def time_ns(self) -> int:
        return self._ms * 1_000_000

    def jump(self, seconds: int) -> None:
        self._ms += seconds * 1000
        self._server.set(self._ms)


class _Redis(redis.Redis):
    """The face of a store for a workload, over a connection to a server."""

    def db(self, number: int) -> _Redis:
        path = self.connection_pool.connection_kwargs["path"]
        return _Redis(unix_socket_path=path, db=number)

    def xadd_many(self, key: bytes, rows: list[dict[Any, Any]]) -> list[bytes]:
        with self.pipeline(transaction=True) as call:
            for row in rows:
                call.xadd(key, row)
            return list(call.execute())


class _Beside(Life):
    """A server that takes the steps of a workload. Its consumers exist before they read, as they do since 7.2."""

    def _contents(self) -> Contents:
        return {
            place(number, key): _content(view, key)
            for number in range(DATABASES)
            for view in [self.db.db(number)]
            for key in keys_of(view)
        }

    def _same(self, found: Contents, when: str) -> None:
        expected: Contents = {}
        for key, content in self._model.contents().items():
            timed = content[0] == "expires"
            plain = content[2] if timed else content
            # without idempotent production
            plain = plain[:5] if isinstance(plain, tuple) else plain
            expected[key] = (*content[:2], plain) if timed else plain
        if found != expected:
            self._wrong(f"{when}: {difference(found, expected)}")

    def _group(self, stream: int, group: bytes = b"g") -> WorkloadKey:
        at = super()._group(stream, group)
        for name in (ANN, BOB):
            if name.encode() not in self._model.streams[at.name].groups[group].consumers:
                self._ask(
                    [["consumer", at.name, group, name.encode()]],
                    lambda name=name: at.db.xgroup_createconsumer(at.key, group, name),  # type: ignore[misc]
                )
        return at


def _content(db: Any, key: bytes) -> Any:
    ms = db.execute_command("PEXPIRETIME", key)
    content = db.get(key) if db.type(key) == b"string" else _stream(db, key)
    return content if ms < 0 else ("expires", ms, content)


def _stream(db: Any, key: bytes) -> Any:
    info = db.xinfo_stream(key)
    entries = tuple(
        (entry_id, tuple(part for pair in fields.items() for part in pair))
        for entry_id, fields in db.xrange(key)
    )
    groups = []
    for group in db.xinfo_groups(key):
        name = group["name"]
        consumers = sorted(each["name"] for each in db.xinfo_consumers(key, name))
        pending = db.xpending_range(key, name, "-", "+", 1 << 30)
        held = tuple(
            (each["message_id"], each["consumer"], each["times_delivered"]) for each in pending
        )
        groups.append((name, group["last-delivered-id"], tuple(consumers), held))
    deleted = info["max-deleted-entry-id"]
    return entries, info["last-generated-id"], info["entries-added"], tuple(groups), deleted


@pytest.fixture
def place_of_server() -> Iterator[Any]:
    found = directory()
    yield found
    shutil.rmtree(found)


@pytest.mark.parametrize(
    "release",
    [pytest.param(SEVEN, id="7.0"), pytest.param(EIGHT, id="8.2", marks=pytest.mark.slow)],
)
def test_the_model_agrees_with_a_real_server(release: Release, place_of_server: Any) -> None:
    reason = eight_is_not_here() if release is EIGHT else None
    if reason is not None:
        pytest.skip(f"not run: {reason}")
    clock = Clock(place_of_server)
    clock.set(Still.ms)
    server = RedisServer(place_of_server, clock, release=release)
    without = NEVER | SINCE_8_8 | (SINCE_8_2 if release is SEVEN else set())
    done: Counter[str] = Counter()
    try:
        client: Any = _Redis(unix_socket_path=str(server.socket))
        life = _Beside(client, "no", lambda *counts: None, clock=_Set(clock))
        for step in long(random.Random(20), 2 * STEPS, checkpoints=False):
            if step[0] not in without:
                units = len(life.units)
                life.run(step)
                done[step[0]] += len(life.units) > units
        client.close()
    finally:
        server.close()
    # Each step that the release has did something, so the comparison was of something.
    every = {*COMMANDS, *(step[0] for step in OPERATIONS)} - without
    assert {name for name in every if not done[name]} == set()


# Commands that write and are in no step, each with the reason.
NOT_TRIED = {
    b"xidmprecord": "written by a rewrite of the log of Redis, and only read from there",
    **dict.fromkeys(
        (b"setnx", b"setex", b"psetex", b"msetnx", b"decr", b"incr"),
        "the effect of SET",
    ),
    **dict.fromkeys((b"expire", b"pexpire", b"expireat"), "the effect of PEXPIREAT"),
    b"renamenx": "the effect of RENAME",
    b"unlink": "the effect of DEL",
    b"restore": "values that it stores are built by the loader of dump files, which tests/fuzz damages",
}


def test_every_command_that_writes_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quiet()
    tried: set[bytes] = set()
    real = Core.command

    def command(self: Core, db: int, args: list[bytes], *rest: Any) -> Any:
        name = args[0].lower()
        tried.update((name, name + b"|" + args[1].lower() if len(args) > 1 else name))
        return real(self, db, args, *rest)

    monkeypatch.setattr(Core, "command", command)
    disk, root = Memory().lay({})
    clock = Jumping()
    with open_on(disk, root, "no", clock) as db:
        life = Life(db, "no", lambda *counts: None, clock=clock)
        for step in long(random.Random(21), 6 * STEPS, checkpoints=False):
            life.run(step)
    writes = {each.name for each in TABLE.commands.values() if "write" in each.flags}
    # XADD without options and transactions have ways of their own.
    assert sorted(writes - tried - {b"xadd"}) == sorted(NOT_TRIED)


def test_a_key_expires_in_a_later_life_too() -> None:
    """The first life sets its clock forward, and the second one begins with the clock of the system."""
    inner, root = Memory().lay({})
    units: list[Unit] = []
    for _ in range(2):
        clock = Jumping()
        with open_on(inner, root, "no", clock) as db:
            life = Life(db, "no", lambda *counts: None, units, clock=clock)
            for step in LAPSES:
                life.run(step)
            units = life.units
    assert units.count([["drop", b"stream0"]]) == 4


def test_a_fault_of_apply_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """XNACK keeps the owner: live and replayed alike, so only the model can tell."""
    real = Model._groups

    def forgetful(self: Model, name: str, key: bytes, *rest: Any) -> bool:
        return True if name == "nack" else real(self, name, key, *rest)

    disk, root = Memory().lay({})
    with open_on(disk, root, "no", Still()) as db:
        life = Life(db, "no", lambda *counts: None, predicts=True)
        steps: list[Step] = [["add", 0, 10], ["read", 0, 1]]
        for step in steps:
            life.run(step)
        monkeypatch.setattr(Model, "_groups", forgetful)
        with pytest.raises(BenchError, match="after the step"):
            life.run(["nack", 0, 1, 1])
