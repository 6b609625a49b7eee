"""Random histories with checkpoints, failed ones, evictions, rebuilds and reopenings, beside the same without any."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.oracle.grammar import START_MS, Grammar8
from tests.rounds import rest_slow

import tidelog
from tidelog import testing
from tidelog.engine.errors import CommandError
from tidelog.engine.streams.entries import Entries
from tidelog.snapshot import checkpoint
from tidelog.snapshot.errors import CheckpointError
from tidelog.store import checkpoints
from tidelog.store.commit.core import Core
from tidelog.store.residence import Residence

# What tells of the past of this very process, or is left open: the rest of such a reply is in the digest.
UNCOMPARED = frozenset((b"xinfo", b"object", b"memory", b"randomkey", b"info", b"config"))
SESSION = frozenset((b"multi", b"exec", b"discard", b"watch", b"unwatch", b"select", b"xaddmany"))


def plain(reply: Any) -> Any:
    """A reply as what can be compared."""
    if isinstance(reply, CommandError):
        return reply.line
    if isinstance(reply, Entries):
        return [plain(each) for each in reply.pairs()]
    if isinstance(reply, (list, tuple)):
        return [plain(each) for each in reply]
    return reply


class Pair:
    """A store with everything that may happen to one, and a store that nothing happens to."""

    def __init__(self, tmp_path: Path, r: random.Random, budget: int | None) -> None:
        self.r = r
        self.budget = budget
        self.clock = testing.Clock()
        self.path = tmp_path / "stirred"
        self.limits = r.choice((1, 2, 5, 100)), r.choice((60, 4096))
        self.quiet = self.opened(tmp_path / "quiet", None)
        self.stirred = self.opened(self.path, budget)
        self.copies = 0
        self.writer: threading.Thread | None = None
        self.failing = False
        self.db = 0

    def opened(self, path: Path, budget: int | None) -> tidelog.Store:
        db = tidelog.open(
            path, fsync="no", clock=self.clock, checkpoint_bytes=0, save=(), memory_budget=budget
        )
        (
            inside.core(db).settings.stream_node_max_entries,
            inside.core(db).settings.stream_node_max_bytes,
        ) = self.limits
        return db

    def run(self, args: list[bytes]) -> None:
        name = args[0].lower()
        if name == b"select" and len(args) == 2 and args[1] in (b"0", b"1", b"2"):
            self.db = int(args[1])
        if name in SESSION:
            return
        replies = []
        for store in (self.quiet, self.stirred):
            core: Core = inside.core(store)
            replies.append(plain(core.command(self.db, list(args))[0]))
        if name == b"keys" and isinstance(replies[0], list):
            replies = [sorted(reply) for reply in replies]
        if name not in UNCOMPARED:
            assert replies[0] == replies[1], args

    def many(self) -> None:
        """Streams of many nodes, and much of them delivered, deleted or trimmed at once."""
        r = self.r
        key = r.choice((b"s", b"t"))
        for _ in range(r.choice((5, 30, 120))):
            self.run([b"XADD", key, b"*", b"f", b"%d" % r.randrange(1000)])
        entries = plain(inside.core(self.quiet).command(self.db, [b"XRANGE", key, b"-", b"+"])[0])
        if not isinstance(entries, list) or not entries:
            return
        ids = [entry_id for entry_id, _ in entries]
        some = r.sample(ids, min(len(ids), r.choice((1, 10, 60))))
        at = r.randrange(len(ids))
        for args in (
            [b"XGROUP", b"CREATE", key, b"g", b"0"],
            [
                b"XREADGROUP",
                b"GROUP",
                b"g",
                b"bob",
                b"COUNT",
                b"%d" % r.choice((3, 90)),
                b"STREAMS",
                key,
                b">",
            ],
            [b"XDEL", key, *some],
            [b"XTRIM", key, b"MAXLEN", r.choice((b"=", b"~")), b"%d" % r.randrange(len(ids))],
            [b"XTRIM", key, b"MINID", ids[at]],
            [b"XDEL", key, *ids[at : at + 12]],
            [b"XDEL", key, *ids[at:]],
            [b"XRANGE", key, ids[at], b"+", b"COUNT", b"7"],
            [b"XREVRANGE", key, ids[at], b"-", b"COUNT", b"7"],
            [b"XACK", key, b"g", *some],
            [b"XAUTOCLAIM", key, b"g", b"alice", b"0", b"0", b"COUNT", b"5"],
        ):
            if r.random() < 0.4:
                self.run(args)

    def again(self) -> None:
        """The newest entries of a stream go, and their IDs are given again."""
        r = self.r
        key = r.choice((b"s", b"t"))
        entries = plain(inside.core(self.quiet).command(self.db, [b"XRANGE", key, b"-", b"+"])[0])
        if not isinstance(entries, list) or not entries:
            return
        ids = [entry_id for entry_id, _ in entries]
        at = r.randrange(max(len(ids) - 40, 0), len(ids))
        self.run([b"XDEL", key, *ids[at:]])
        self.run([b"XSETID", key, ids[-1], b"MAXDELETEDID", b"0-1"])
        self.run([b"XSETID", key, ids[at - 1] if at else b"0-1"])
        if r.random() < 0.5:
            self.stir()
        for entry_id in ids[at + r.randrange(2) :]:
            self.run([b"XADD", key, entry_id, b"f", b"again"])

    def stir(self) -> None:
        self.r.choice(
            (
                self.begin,
                self.begin,
                self.join,
                self.evict,
                self.evict,
                self.rebuild,
                self.reopen,
                self.copy,
            )
        )()

    def begin(self) -> None:
        """A checkpoint, with whatever comes next beside it."""
        self.join()
        self.failing = self.r.random() < 0.3
        self.writer = threading.Thread(target=self._write, args=(self.stirred,))
        self.writer.start()
        if self.r.random() < 0.3:
            self.join()

    def _write(self, store: tidelog.Store) -> None:
        try:
            store.checkpoint()
        except (tidelog.CheckpointFailed, tidelog.StoreClosed):
            pass

    def join(self) -> None:
        if self.writer is not None:
            self.writer.join()
            self.writer = None

    def evict(self) -> None:
        Residence(1).relieve(inside.core(self.stirred))

    def rebuild(self) -> None:
        with inside.lock(self.stirred):
            inside.landing(self.stirred).trouble = "the test wants it"

    def reopen(self) -> None:
        if self.r.random() < 0.5:
            self.join()
        self.stirred.close()
        self.join()
        self.stirred = self.opened(self.path, self.budget)

    def copy(self) -> None:
        """As a killed process leaves it."""
        self.join()
        there = self.path.with_name(f"copy{self.copies}")
        self.copies += 1
        shutil.copytree(self.path, there, ignore=shutil.ignore_patterns("LOCK", "lock.mdb"))
        with self.opened(there, None) as other:
            assert other.digest() == self.quiet.digest()

    def compare(self) -> None:
        assert self.stirred.digest() == self.quiet.digest()
        core = inside.core(self.stirred)
        with core.lock:  # a checkpoint may be about to commit, and cold rows are read
            for database in core.state.databases:
                for value in dict.values(database.keys):
                    if not isinstance(value, bytes):
                        value.check()


def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, commands: int, budget: int | None
) -> None:
    print("seed", seed)
    r = random.Random(seed)
    pair = Pair(tmp_path, r, budget)
    write = checkpoint.write_checkpoint

    def perhaps(*args: Any, sync: Any, **more: Any) -> None:
        def failing() -> None:
            if pair.failing:
                raise CheckpointError("the test wants it to fail")
            sync()

        write(*args, sync=failing, **more)

    monkeypatch.setattr(checkpoints, "write_checkpoint", perhaps)
    before = START_MS
    try:
        for turn in Grammar8(r).sequence(commands):
            pair.clock.advance((turn.now - before) / 1000)
            before = turn.now
            for args in turn.commands:
                pair.run(args)
            if r.random() < 0.1:
                pair.many()
            if r.random() < 0.1:
                pair.again()
            if r.random() < 0.5:
                pair.stir()
            if r.random() < 0.05:
                pair.compare()
        pair.join()
        pair.compare()
        pair.failing = False
        pair.stirred.checkpoint()
        pair.evict()
        pair.compare()
        pair.reopen()
        pair.compare()
        assert pair.stirred.verify() == []
    finally:
        pair.join()
        pair.stirred.close()
        pair.quiet.close()


@pytest.mark.parametrize("seed", rest_slow(range(8), 2))
def test_a_history_is_the_same_with_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    play(tmp_path, monkeypatch, seed, 300, None)


@pytest.mark.parametrize("seed", rest_slow(range(100, 104), 1))
def test_a_history_is_the_same_with_a_tiny_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    play(tmp_path, monkeypatch, seed, 300, 1 << 20)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_many_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    play(tmp_path, monkeypatch, seed, 1000, (1 << 20) if seed % 3 == 0 else None)
