"""Workloads of commands: drawn from the grammar of the oracle, run by every way that an embedded store offers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from tests.guard.world import World
from tests.oracle.grammar import Command, Grammar8

import tidelog

MANY: Final = b"XADDMANY"


def unblocked(args: Command) -> Command:
    """Without BLOCK: nobody would wake the caller."""
    if args[0].upper() not in (b"XREAD", b"XREADGROUP"):
        return args
    while True:
        upper = [arg.upper() for arg in args]
        if b"BLOCK" not in upper[1:]:
            return args
        at = upper.index(b"BLOCK", 1)
        args = args[:at] + args[at + 2 :]


def many_rows(args: Command) -> list[dict[bytes, bytes]]:
    """The rows of an XADDMANY."""
    width, words = int(args[2]), args[3:]
    rows = [words[at : at + width] for at in range(0, len(words), width)]
    return [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]


def line(args: Iterable[bytes]) -> str:
    words = [repr(arg)[2:-1] for arg in args]
    return " ".join(word if len(word) <= 40 else f"{word[:30]}..({len(word)})" for word in words)


class Turns:
    """Turns of the grammar, with the clock moved to each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.grammar = Grammar8(world.r)
        self._first = True

    def next(self) -> list[Command]:
        turn = self.grammar.turn(fill=self._first)
        self._first = False
        self.world.reach(turn.now)
        return [unblocked(args) for args in self._changing(turn.commands)]

    def _changing(self, given: list[Command]) -> list[Command]:
        """Often a change of a watched key before MULTI: the grammar by itself seldom has one."""
        r = self.world.r
        if len(given) < 2 or given[0][0] != b"WATCH" or r.random() < 0.5:
            return given
        key = r.choice(given[0][1:])
        change = r.choice(
            ([b"XADD", key, b"*", b"w", b"1"], [b"EXPIRE", key, b"100"], [b"DEL", key])
        )
        return [given[0], change, *given[1:]]


class Session:
    """A client of the embedded store: a database, and the transaction that is open."""

    def __init__(self, world: World, db: tidelog.Store) -> None:
        self.world = world
        self.store = db
        self.view = db
        self.pipe: Any = None
        self.queued: list[Command] | None = None

    def run(self, commands: list[Command]) -> None:
        """One turn, by one of the ways there are."""
        plain = not any(args[0].upper() in (b"MULTI", b"WATCH", b"UNWATCH") for args in commands)
        way = (
            self.world.r.choice(("one", "one", "units", "transaction", "async")) if plain else "one"
        )
        if way in ("units", "transaction"):
            self.pipeline(commands, transaction=way == "transaction")
        else:
            for args in commands:
                self.one(args)

    def one(self, args: Command) -> None:
        try:
            answer: Any = self.answer(args)
        except tidelog.TidelogError as error:
            answer = error
        self.world.told(line(args), answer)

    def answer(self, args: Command) -> Any:
        name = args[0].upper()
        if name == b"SELECT" and self.queued is None:
            number = int(args[1]) if len(args) == 2 and args[1].isdigit() else -1
            self.view = self.store.db(number)
            return True
        if args[:2] == [b"CONFIG", b"SET"]:
            return self.store.config_set(args[2].decode(), int(args[3]))
        if name == MANY:
            return self.view.xadd_many(args[1], many_rows(args))
        if name in (b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH"):
            return self.transaction(name, args)
        if self.queued is not None:
            self.queued.append(args)
            return "queued"
        return self.view.execute_command(*args)

    def transaction(self, name: bytes, args: Command) -> Any:
        if self.pipe is None:
            self.pipe = self.view.pipeline()
        if name == b"WATCH":
            return self.pipe.watch(*args[1:])
        if name == b"UNWATCH":
            return self.pipe.unwatch()
        if name == b"MULTI":
            if self.queued is None:
                self.queued = []
                if self.pipe.watching:
                    self.pipe.multi()
            return "began"
        queued, self.queued = self.queued, None
        pipe, self.pipe = self.pipe, None
        try:
            if queued is None or name == b"DISCARD":
                return "dropped"
            for command in queued:
                pipe.execute_command(*command)
            return pipe.execute(raise_on_error=False)
        finally:
            pipe.reset()

    def pipeline(self, commands: list[Command], *, transaction: bool) -> None:
        with self.view.pipeline(transaction=transaction) as pipe:
            sent = []
            for args in commands:
                if args[0].upper() not in (b"SELECT", b"CONFIG", MANY):
                    sent.append(args)
                    pipe.execute_command(*args)
            try:
                answers: Any = pipe.execute(raise_on_error=False)
            except tidelog.TidelogError as error:
                answers = error
        kind = "transaction" if transaction else "pipeline"
        self.world.told(f"{kind} of {'; '.join(map(line, sent))}", answers)


def commands(
    world: World,
    fsync: str,
    count: int,
    *,
    checkpoint_every: int = 0,
    lives: int = 2,
    **options: Any,
) -> None:
    """Random commands in several lives of one store."""
    turns = Turns(world)
    done = 0
    for life in range(lives):
        with world.open(fsync=fsync, **options) as db:
            session = Session(world, db)
            checked = done
            while done < count * (life + 1) // lives:
                given = turns.next()
                session.run(given)
                done += len(given)
                if world.r.random() < 0.03:
                    world.sync(db)
                if checkpoint_every and done - checked >= checkpoint_every:
                    checked = done
                    world.told("checkpoint", db.checkpoint())
                    world.look(db)
                    world.relieve(db)
            world.look(db)
            world.copy()


def large(world: World, fsync: str, budget: int, retain: int, turns: int = 60) -> None:
    """More than the memory budget holds: keys and blocks leave memory at every checkpoint, and are read again.

    retain   bytes of the log that stay when the last checkpoint releases segments
    """
    r = world.r
    with world.open(fsync=fsync, memory_budget=budget, segment_bytes=1 << 20) as db:
        for number in range(12):
            db.xgroup_create(f"s{number}", "g", id="0", mkstream=True)
        last: list[Any] = []
        for turn in range(turns):
            world.clock.advance(r.choice((0.001, 0.05, 3)))
            key = f"s{r.randrange(12)}"
            rows = [{"n": n, "text": r.choice("abcde") * r.randrange(300)} for n in range(150)]
            last = list(db.xadd_many(key, rows))
            db.set(f"k{turn}", r.randbytes(r.randrange(3000)))
            got: Any = db.xreadgroup(
                "g", f"c{r.randrange(3)}", {key: ">"}, count=r.randrange(1, 200)
            )
            given = [id for _, entries in got for id, _ in entries]
            world.told(f"read {key}", [given[:1], given[-1:], len(given)])
            world.told("ack", db.xack(key, "g", *r.sample(given, len(given) // 2)) if given else 0)
            other = f"s{r.randrange(12)}"
            world.told(f"delete of {other}", db.xdel(other, *r.sample(last, 3)))
            world.told(
                f"trim of {other}", db.xtrim(other, maxlen=900, approximate=r.random() < 0.5)
            )
            world.told("range", db.xrange(other, count=2) + db.xrevrange(other, count=2))
            world.told("pending", db.xpending(other, "g"))
            claimed = db.xautoclaim(other, "g", "late", min_idle_time=2000, count=30, justid=True)
            world.told("claimed", claimed)
            if turn % 6 == 5:
                world.told("checkpoint", db.checkpoint())
                world.relieve(db)
        world.look(db)
        world.copy()
    with world.open(fsync=fsync, memory_budget=budget, retain_bytes=retain) as db:
        world.look(db)
        db.set("last", "1")
        world.told("checkpoint that releases segments", db.checkpoint())
        world.relieve(db)
        world.look(db)


def bulk(world: World, fsync: str) -> None:
    """Batches through every way in: xadd_many, pipelines of both kinds, transactions with WATCH, methods."""
    r = world.r
    with world.open(fsync=fsync, segment_bytes=1 << 18) as db:
        db.config_set("stream-node-max-entries", 50)
        db.xgroup_create("s", "g", id="0", mkstream=True)
        for turn in range(40):
            world.clock.advance(r.choice((0, 0.001, 0.3)))
            shape = r.choice((("a",), ("a", "b"), ("c", "b", "a")))
            rows = [
                {f: r.choice(("x", b"\0\xff", 7, 1.5)) for f in shape}
                for _ in range(r.randrange(1, 220))
            ]
            world.told("many", db.xadd_many("s", rows))
            with db.pipeline(transaction=r.random() < 0.5) as pipe:
                for n in range(r.randrange(1, 60)):
                    pipe.xadd("s", {"n": n, "turn": turn}, maxlen=r.choice((None, None, 500)))
                    if not n % 9:
                        pipe.xreadgroup("g", "c", {"s": ">"}, count=5)
                        pipe.incr("count")
                world.told("pipeline", pipe.execute(raise_on_error=False))

            def add_one(pipe: Any) -> None:
                number = int(pipe.get("count") or 0)
                pipe.multi()
                pipe.set("count", number + 1)
                pipe.xadd("t", {"number": number})

            world.told("transaction", db.transaction(add_one, "count"))
            got: Any = db.xreadgroup("g", "d", {"s": ">"}, count=r.choice((1, 10, 100)))
            for key, entries in got:
                ids = [id for id, _ in entries]
                world.told("ack", db.xack(key, "g", *ids[: r.randrange(1, len(ids) + 1)]))
            add = db.xadd("s", {"at": "written"})
            world.told("xadd", add)
            world.told("at fsynced", db.at("fsynced").xadd("u", {"k": turn}, nomkstream=turn < 3))
            world.told("receipts", view_of_receipts(db, turn))
        world.look(db)
        world.copy()


def view_of_receipts(db: tidelog.Store, turn: int) -> Any:
    view = db.receipts()
    view.set("r", turn)
    receipt = view.last_receipt
    return None if receipt is None else receipt.lsn


def in_tasks(world: World, fsync: str, count: int) -> None:
    """Random commands through the face for asyncio, one awaited after the other."""
    turns = Turns(world)

    async def run() -> None:
        async with tidelog.aopen(world.root, **world.options(fsync=fsync)) as db:
            done = 0
            while done < count:
                given = [
                    args
                    for args in turns.next()
                    if args[0].upper()
                    not in (
                        b"SELECT",
                        b"CONFIG",
                        b"MULTI",
                        b"EXEC",
                        b"DISCARD",
                        b"WATCH",
                        b"UNWATCH",
                    )
                ]
                done += len(given)
                if world.r.random() < 0.3:
                    pipe = db.pipeline(transaction=world.r.random() < 0.5)
                    for args in given:
                        if args[0] != MANY:
                            pipe.execute_command(*args)
                    try:
                        answers: Any = await pipe.execute(raise_on_error=False)
                    except tidelog.TidelogError as error:
                        answers = error
                    world.told(f"pipeline of {'; '.join(map(line, given))}", answers)
                    continue
                for args in given:
                    try:
                        if args[0] == MANY:
                            answer: Any = await db.xadd_many(args[1], many_rows(args))
                        else:
                            answer = await db.execute_command(*args)
                    except tidelog.TidelogError as error:
                        answer = error
                    world.told(line(args), answer)
            world.states.append(await db.digest())
            world.copy()

    asyncio.run(run())
