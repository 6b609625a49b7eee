"""tidelog import of what a redis-server 7.0 has written: its dump file, and its append-only file in every form.

The store then shows what that server shows. Seen-times are left out for a log of commands, which does not have them.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.appending import Appending
from tests.oracle.driver import VIEWED_DATABASES
from tests.oracle.driver import shown as brief
from tests.oracle.engine_side import Tidelog
from tests.oracle.export import any_seen_time
from tests.oracle.grammar import Command, Grammar
from tests.oracle.wire import OK, Connection, Form

from tidelog.disk.real import RealDisk
from tidelog.engine.commands.context import Context
from tidelog.engine.keys.state import Settings
from tidelog.snapshot.rows.opened import open_copy
from tidelog.tools import cli

FAR = 4_000_000_000_000


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path, for the socket."""
    with tempfile.TemporaryDirectory(prefix="import-") as name:
        yield Path(name)


@contextmanager
def appending(place: Path, **options: str) -> Iterator[Appending]:
    server = Appending(place, **options)
    try:
        yield server
    finally:
        server.kill()


def history(seed: int, turns: int) -> Iterator[Command]:
    """Random commands that do not block, without those that end with an error on purpose in a transaction."""
    for turn in Grammar(random.Random(seed)).sequence(turns):
        for args in turn.commands:
            name = args[0].upper()
            if name not in (b"XADDMANY", b"MULTI", b"EXEC", b"DISCARD", b"WATCH") and not any(
                word.upper() == b"BLOCK" for word in args
            ):
                yield args


def views(link: Connection) -> dict[tuple[int, bytes], Form]:
    """The views of every key of the server."""
    found: dict[tuple[int, bytes], Form] = {}
    for db in VIEWED_DATABASES:
        link.call(b"SELECT", b"%d" % db)
        for key in sorted(link.call(b"KEYS", b"*")):
            if link.call(b"TYPE", key) == ("+", b"stream"):
                shown = [link.call(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0")]
            else:
                shown = [link.call(b"GET", key)]
            found[db, key] = [*shown, link.call(b"PEXPIRETIME", key)]
    return found


def imported(target: Path, source: Path | str, *options: str) -> dict[tuple[int, bytes], Form]:
    """The views of every key of the new store, as 7.0 owes them."""
    assert cli.run(["import", str(target), str(source), *options]) == 0
    opened = open_copy(RealDisk(), target / "checkpoint")
    try:
        tidelog = Tidelog()
        tidelog.state = opened.state()
        tidelog.ctx = Context(tidelog.state, Settings())
        now = time.time_ns() // 1_000_000
        found: dict[tuple[int, bytes], Form] = {}
        for db in VIEWED_DATABASES:
            for key, _, expire_at in tidelog.state.databases[db].keys.walk():
                if 0 <= expire_at <= now:
                    continue

                def look(*args: bytes) -> Any:
                    return tidelog.look(now, db, list(args)).expect

                if look(b"TYPE", key) == ("+", b"stream"):
                    shown = any_seen_time(look(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"))
                else:
                    shown = look(b"GET", key)
                found[db, key] = [shown, look(b"PEXPIRETIME", key)]
        return found
    finally:
        opened.close()


def agree(ours: dict[tuple[int, bytes], Form], theirs: dict[tuple[int, bytes], Form]) -> None:
    assert ours.keys() == theirs.keys()
    for at, form in theirs.items():
        assert ours[at] == form, f"{at}\n{brief(ours[at])}\n{brief(form)}"


def as_commands_carry(form: Form) -> Form:
    """A view without the facts that differ on purpose where a log is replayed as commands.

    A delivery counts in entries-read, which a Redis 7.0 forgets when it loads its log, and which is never above
    entries-added, as in Redis 8.8. A consumer whose pending entries are all of deleted messages is kept, where a Redis
    7.0 that loads its own rewritten log loses it.
    """
    stream = form[0]
    if not isinstance(stream, list):
        return form
    for group in stream[stream.index(b"groups") + 1]:
        read, lag, consumers = (group.index(n) + 1 for n in (b"entries-read", b"lag", b"consumers"))
        group[read] = group[lag] = None
        group[consumers] = [each for each in group[consumers] if each[each.index(b"pel-count") + 1]]
    return form


FORMS = [
    {"aof-use-rdb-preamble": "yes"},
    {"aof-use-rdb-preamble": "no"},
    {"aof-use-rdb-preamble": "no", "aof-timestamp-enabled": "yes"},
]


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_append_only_files(place: Path, tmp_path: Path, number: int) -> None:
    """Several increments, a rewrite in between, and a kill at the end."""
    options = {name.replace("-", "_"): value for name, value in FORMS[number].items()}
    with appending(place, **options) as server:
        link = server.connect()
        for seed in range(4):
            for args in history(number * 10 + seed, 60):
                if args[0].upper() not in (b"CONFIG", b"DEBUG"):
                    link.call(*args)
            if seed in (1, 2):
                link.call(b"SELECT", b"0")
                assert not isinstance(link.call(b"BGREWRITEAOF"), Exception)
                while b"aof_rewrite_in_progress:0" not in link.call(b"INFO", b"persistence"):
                    pass
        link.call(b"SELECT", b"0")
        link.call(b"SET", b"far", b"x", b"PXAT", b"%d" % FAR)
        link.call(b"INCRBY", b"number", b"41")
        link.close()
        server.kill()
        # A log of commands does not have all that a live server holds (spec 11.2), so compare with one that loads it.
        source = shutil.copytree(place / "appendonlydir", tmp_path / "appendonlydir")
        server.start()
        link = server.connect()
        theirs = views(link)
        link.close()
    ours = imported(tmp_path / "t", source)
    agree(
        {at: as_commands_carry(form) for at, form in ours.items()},
        {at: as_commands_carry(form) for at, form in theirs.items()},
    )


def test_a_dump_file(place: Path, tmp_path: Path) -> None:
    with appending(place, appendonly="no") as server:
        link = server.connect()
        for args in history(77, 150):
            if args[0].upper() not in (b"CONFIG", b"DEBUG"):
                link.call(*args)
        link.call(b"SELECT", b"0")
        assert link.call(b"SAVE") == OK
        theirs = views(link)
        link.close()
    agree(imported(tmp_path / "t", place / "dump.rdb"), theirs)
