"""tidelog import of what a redis-server has written: its dump file, and its append-only file in every form.

The store then shows what that server shows. Seen-times are left out for a log of commands, which does not have them.
Every round has a random history and a server of its own, a 7.0 or an 8.2.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.oracle import differences, differences_8_2
from tests.oracle.appending import Appending
from tests.oracle.driver import VIEWED_DATABASES
from tests.oracle.driver import shown as brief
from tests.oracle.engine_side import Differences, Tidelog
from tests.oracle.export import any_times
from tests.oracle.grammar import Command, Grammar, Grammar82
from tests.oracle.server import EIGHT, SEVEN, Release, eight_is_not_here
from tests.oracle.wire import OK, Connection, Form
from tests.rounds import some_slow_and_soak

from tidelog.disk.real import RealDisk
from tidelog.engine.commands.context import Context
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.rdb.facts import Node
from tidelog.engine.rdb.file import dumped
from tidelog.engine.rdb.stream import read_stream
from tidelog.snapshot.rows.opened import open_copy
from tidelog.tools import cli

FAR = 4_000_000_000_000
LEFT_OUT = (
    *(b"XADDMANY", b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"CONFIG", b"DEBUG"),
    *(b"EXPIRE", b"PEXPIRE", b"SETEX", b"PSETEX"),
)
Views = dict[tuple[int, bytes], Form]


class Kind(NamedTuple):
    """A release of Redis as the source of an import: the commands that it knows, and what its replies owe."""

    release: Release
    grammar: type[Grammar]
    owes: Differences


KIND_7_0 = Kind(SEVEN, Grammar, differences)
KIND_8_2 = Kind(EIGHT, Grammar82, differences_8_2)
both_releases = pytest.mark.parametrize(
    "kind", [KIND_7_0, KIND_8_2], ids=["7.0", "8.2"], indirect=True
)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    reason = eight_is_not_here() if found is KIND_8_2 else None
    if reason is not None:
        pytest.skip(f"not run: {reason}")
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path, for the socket."""
    with tempfile.TemporaryDirectory(prefix="import-") as name:
        yield Path(name)


@contextmanager
def appending(place: Path, release: Release = SEVEN, **options: str) -> Iterator[Appending]:
    server = Appending(place, release, **options)
    try:
        yield server
    finally:
        server.kill()


def history(seed: int, turns: int, grammar: type[Grammar] = Grammar) -> Iterator[Command]:
    """Random commands that do not block, without those that end with an error on purpose in a transaction.

    No key expires meanwhile: relative times are left out, and absolute ones are of the past, or far away.
    """
    for turn in grammar(random.Random(seed)).sequence(turns):
        for args in turn.commands:
            words = {word.upper() for word in args[1:]}
            if args[0].upper() not in LEFT_OUT and words.isdisjoint((b"BLOCK", b"EX", b"PX")):
                yield args


def views(link: Connection) -> Views:
    """The views of every key of the server."""
    found: Views = {}
    for db in VIEWED_DATABASES:
        link.call(b"SELECT", b"%d" % db)
        for key in sorted(link.call(b"KEYS", b"*")):
            if link.call(b"TYPE", key) == ("+", b"stream"):
                shown = [link.call(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0")]
                without_empty_nodes(shown[0], link.call(b"DUMP", key))
            else:
                shown = [link.call(b"GET", key)]
            found[db, key] = [*shown, link.call(b"PEXPIRETIME", key)]
    return found


def without_empty_nodes(shown: list[Form], payload: bytes) -> None:
    """Leave out nodes that a trim has emptied: a server up to 8.8 keeps them, the codec steps over them."""
    kind, source = dumped(payload)
    left = sum(isinstance(fact, Node) for fact in read_stream(source, kind))
    keys, inner = (shown.index(name) + 1 for name in (b"radix-tree-keys", b"radix-tree-nodes"))
    if shown[keys] > left:
        shown[keys], shown[inner] = left, 2 * left or 1


def shown_by(state: State, owes: Differences, times: bool) -> Views:
    """The views of every key of a state, as the server owes them; `times` for seen- and active-times too."""
    tidelog = Tidelog(owes=owes)
    tidelog.state = state
    tidelog.ctx = Context(state, Settings())
    now = time.time_ns() // 1_000_000
    found: Views = {}
    for db in VIEWED_DATABASES:
        for key, _, expire_at in state.databases[db].keys.walk():
            if 0 <= expire_at <= now:
                continue

            def look(*args: bytes) -> Any:
                return tidelog.look(now, db, list(args)).expect

            if look(b"TYPE", key) == ("+", b"stream"):
                shown = look(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0")
            else:
                shown = look(b"GET", key)
            found[db, key] = [shown if times else any_times(shown), look(b"PEXPIRETIME", key)]
    return found


def imported(
    target: Path,
    source: Path | str,
    *options: str,
    owes: Differences = differences,
    times: bool = False,
) -> Views:
    """The views of every key of the new store, as the server owes them."""
    assert cli.run(["import", str(target), str(source), *options]) == 0
    opened = open_copy(RealDisk(), target / "checkpoint")
    try:
        return shown_by(opened.state(), owes, times)
    finally:
        opened.close()


def agree(ours: Views, theirs: Views, told: object = "") -> None:
    assert ours.keys() == theirs.keys(), told
    for at, form in theirs.items():
        assert ours[at] == form, f"{told} {at}\n{brief(ours[at])}\n{brief(form)}"


def as_commands_carry(found: Views) -> Views:
    """The views without the facts that differ on purpose where a log of 7.0 is replayed as commands.

    A delivery counts in entries-read, which a Redis 7.0 forgets when it loads its log, and which is never above
    entries-added, as in Redis 8.8. A consumer whose pending entries are all of deleted messages is kept, where a Redis
    7.0 that loads its own rewritten log loses it.
    """
    for stream, _ in found.values():
        if not isinstance(stream, list):
            continue
        for group in stream[stream.index(b"groups") + 1]:
            read, lag, consumers = (
                group.index(n) + 1 for n in (b"entries-read", b"lag", b"consumers")
            )
            group[read] = group[lag] = None
            group[consumers] = [
                each for each in group[consumers] if each[each.index(b"pel-count") + 1]
            ]
    return found


def moved_behind_a_deletion(ours: Views, theirs: Views) -> list[tuple[int, bytes]]:
    """The streams whose last ID they moved below a deleted one.

    XSETID of Redis 7.0 does that; from 7.2 on it refuses, so an import reports the command as refused.
    """

    def id_of(stream: Form, name: bytes) -> list[int]:
        return [int(half) for half in stream[stream.index(name) + 1].split(b"-")]

    return [
        at
        for at, (stream, _) in theirs.items()
        if isinstance(stream, list)
        and at in ours
        and id_of(stream, b"last-generated-id") < id_of(ours[at][0], b"max-deleted-entry-id")
    ]


class Kept(NamedTuple):
    """How a server keeps its append-only file."""

    preamble: str
    timestamps: str


FORMS = [Kept("yes", "no"), Kept("no", "no"), Kept("no", "yes")]


def killed_server(place: Path, kind: Kind, seed: int) -> tuple[Path, Views]:
    """A random history ends with SIGKILL. Returns a copy of the log, and what a server that loads it shows.

    The log has a base and one increment. By chance it was rewritten meanwhile; or the kill comes in the middle of a
    rewrite, and the log has two increments. Commands are on their way when the kill comes.
    """
    r = random.Random(seed)
    form = FORMS[seed % len(FORMS)]
    options = {"aof_use_rdb_preamble": form.preamble, "aof_timestamp_enabled": form.timestamps}
    folder = place / f"{seed}"
    folder.mkdir()
    with appending(folder, kind.release, hz="500", **options) as server:
        link = server.connect()
        commands = list(history(seed, 60, kind.grammar))
        cuts = sorted(r.sample(range(len(commands)), 2))
        for args in commands[: cuts[0]]:
            link.call(*args)
        if r.random() < 0.4:
            rewritten(link)
        elif r.random() < 0.6:
            # The child would save its keys for hours: it ends with the server.
            link.call(b"CONFIG", b"SET", b"rdb-key-save-delay", b"1000000000")
            assert link.call(b"BGREWRITEAOF")[0] == "+"
        for args in commands[cuts[0] : cuts[1]]:
            link.call(*args)
        link.call(b"SELECT", b"0")
        link.call(b"SET", b"far", b"x", b"PXAT", b"%d" % FAR)
        link.call(b"INCRBY", b"number", b"41")
        link.send(commands[cuts[1] :])
        for _ in range(r.randint(0, len(commands) - cuts[1])):
            link.receive()
        server.kill()
        link.close()
        # A log of commands does not have all that a live server holds (spec 11.2), so compare with one that loads it.
        source = shutil.copytree(folder / "appendonlydir", place / f"{seed}-log")
        server.start()
        link = server.connect()
        theirs = views(link)
        link.close()
    return source, theirs


def rewritten(link: Connection) -> None:
    """Wait until the server has rewritten its log."""
    assert link.call(b"BGREWRITEAOF")[0] == "+"
    while b"aof_rewrite_in_progress:0" not in link.call(b"INFO", b"persistence"):
        pass


def carried(kind: Kind, found: Views) -> Views:
    return as_commands_carry(found) if kind is KIND_7_0 else found


@both_releases
@pytest.mark.parametrize(
    "seeds", some_slow_and_soak(range(6), range(1000, 1250), range(10_000, 13_000))
)
def test_append_only_files(place: Path, tmp_path: Path, kind: Kind, seeds: range) -> None:
    increments = 0
    for seed in seeds:
        source, theirs = killed_server(place, kind, seed)
        increments += len(list(source.glob("*.incr.aof"))) > 1
        ours = imported(tmp_path / f"{seed}", source, owes=kind.owes)
        for at in moved_behind_a_deletion(ours, theirs):
            del ours[at], theirs[at]
        agree(carried(kind, ours), carried(kind, theirs), f"seed {seed}")
        shutil.rmtree(source)
    assert increments


@both_releases
@pytest.mark.parametrize(
    "seeds", some_slow_and_soak(range(6), range(1000, 1500), range(10_000, 13_000))
)
def test_dump_files(place: Path, tmp_path: Path, kind: Kind, seeds: range) -> None:
    with appending(place, kind.release, appendonly="no") as server:
        link = server.connect()
        for seed in seeds:
            link.call(b"SELECT", b"0")
            link.call(b"FLUSHALL")
            for args in history(seed, 60, kind.grammar):
                link.call(*args)
            link.call(b"SELECT", b"0")
            link.call(b"SET", b"far", b"x", b"PXAT", b"%d" % FAR)
            link.call(b"INCRBY", b"number", b"41")
            assert link.call(b"SAVE") == OK
            source = place / "dump.rdb"
            # The view of 7.0 leaves seen-times open, since its seen-time is another fact.
            ours = imported(tmp_path / f"{seed}", source, owes=kind.owes, times=True)
            agree(ours, views(link), f"seed {seed}")
        link.close()
