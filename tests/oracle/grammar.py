"""Random command sequences over few keys, groups, consumers and IDs, so that they collide often.

A sequence is a list of `Turn`: a time, and the commands sent at that time. `Grammar` draws from any object
with the interface of `random.Random`; the same seed gives the same sequence.

`XADDMANY key width word...` stands for tidelog's xadd_many: rows of `width` words each; the server gets single XADDs.
It comes in plain turns only.

About one command in eight is broken on purpose: an argument dropped, doubled, swapped or replaced by junk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

Command = list[bytes]

START_MS = 1_700_000_000_000
STREAMS = (b"s", b"s", b"s", b"t", b"t", b"u{1}")
STRINGS = (b"x", b"y")
GROUPS = (b"g", b"g", b"g", b"h", b"")
CONSUMERS = (b"alice", b"alice", b"bob", b"bob", b"carol", b"")
FIELDS = (b"f", b"g", b"temperature", b"", b"\x00\xff")
VALUES = (b"", b"v", b"1", b"-7", b"4096", b"1234567890123", b"w" * 63, b"z" * 70, b"\r\n\x00")
DATABASES = (0, 1, 2)

U64 = 18446744073709551615
ODD_IDS = (
    b"-", b"+", b"$", b">", b"*", b"(", b"((1-1", b"(-", b"(+", b"($", b"", b"-1", b"1-", b"--1", b"1--1", b"1-1-1",
    b"1-a", b"a-1", b"1e3", b"0x1", b"0", b"0-0", b"0-1", b"(0-0", b"(0-1", b"0-*", b"5-*", b"*-1", b"1-*-1",
    b"+3-1", b" 4-1", b"\t4-1", b"4 -1", b"4- 1", b"4-+1", b"4-1 ", b"007-01", b"11--05", b"11--5", b"-0-1", b"-01-1",
    b"18446744073709551615", b"18446744073709551616", b"18446744073709551615-18446744073709551615",
    b"(18446744073709551615-18446744073709551615", b"18446744073709551615-18446744073709551616",
    b"18446744073709551614-18446744073709551615", b"18446744073709551615-0", b"9223372036854775808-1",
    b"4398046511104-1", b"3-4194304", b"3-18446744073709551615", b"0" * 125 + b"5", b"0" * 124 + b"5-1",
    b"0" * 125 + b"5-1", b"5-1\x00", b"5-1\n",
)  # fmt: skip
ODD_INTEGERS = (
    b"", b"abc", b"1.5", b"1e2", b"+1", b" 1", b"1 ", b"01", b"-0", b"0x1", b"--1", b"2147483647", b"2147483648",
    b"-2147483649", b"576460752303423487", b"576460752303423488", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775808", b"-9223372036854775809", b"18446744073709551615", b"1\x00",
)  # fmt: skip
NO_CURSORS = (b"", b"abc", b"1.5", b"1e2", b" 1", b"1 ", b"0x1", b"--1", b"1\x00")
JUNK = (
    b"", b"*", b"~", b"=", b"COUNT", b"BLOCK", b"STREAMS", b"GROUP", b"NOACK", b"MAXLEN", b"MINID", b"LIMIT", b"FULL",
    b"NOMKSTREAM", b"FORCE", b"JUSTID", b"LASTID", b"IDLE", b"TIME", b"RETRYCOUNT", b"ENTRIESREAD", b"MKSTREAM",
    b"ENTRIESADDED", b"MAXDELETEDID", b"EX", b"PX", b"KEEPTTL", b"NX", b"XX", b"GT", b"LT", b"GET", b"REPLACE", b"DB",
    b"MATCH", b"HELP", b"nonsense", b"\xc3\xa4",
)  # fmt: skip


class Turn(NamedTuple):
    now: int
    commands: list[Command]


def number(value: int) -> bytes:
    return b"%d" % value


def spelled(word: bytes, r: random.Random) -> bytes:
    return word if r.random() < 0.8 else word.swapcase()


class Grammar:
    """Draws commands. `high` follows roughly where the explicit IDs of a sequence have got to."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.high = 1
        self.now = START_MS
        self.bytes_fixed = False
        # streams with IDs by the clock, and the time of the last one
        self.clocked: dict[bytes, int] = {}
        self._rows: list[tuple[int, Callable[[], Command]]] = [
            (26, self.xadd), (6, self.xtrim), (6, self.xdel), (4, self.xsetid), (1, self.xlen), (5, self.xrange),
            (5, self.xread), (18, self.xreadgroup), (7, self.xack), (8, self.xclaim), (6, self.xautoclaim),
            (5, self.xpending), (7, self.xgroup_create), (4, self.xgroup_setid), (5, self.xgroup_other),
            (5, self.xinfo), (9, self.keys), (8, self.strings), (3, self.expiry), (2, self.session),
        ]  # fmt: skip
        self._weights = [weight for weight, _ in self._rows]

    # --- sequences

    def sequence(self, commands: int) -> list[Turn]:
        """Turns that hold at least `commands` commands together."""
        turns: list[Turn] = []
        total = 0
        while total < commands:
            turns.append(self.turn(fill=not turns))
            total += len(turns[-1].commands)
        return turns

    def turn(self, fill: bool = False) -> Turn:
        """The next turn; with `fill` one that creates streams and groups."""
        self.now += self.r.choice((0, 0, 1, 1, 7, 100, 5000))
        if fill:
            return Turn(self.now, self.small_nodes() + self.refill())
        if self.chance(0.02):
            return Turn(self.now, self.refill())
        return Turn(self.now, self.transaction() if self.chance(0.12) else self.plain())

    def refill(self) -> list[Command]:
        """Streams with groups and entries to work on: chance alone seldom has all three at once."""
        if self.clocked and self.chance(0.5):
            gone = list(self.clocked)
            self.clocked = {}
            return [[b"DEL", *gone], *self.refill()]
        batch: list[Command] = []
        for key in set(STREAMS[: self.r.randint(1, len(STREAMS))]):
            for group in (b"g", b"h"):
                batch.append([b"XGROUP", b"CREATE", key, group, b"0", b"MKSTREAM"])
        for _ in range(self.r.randint(0, 12)):
            self.high += 1
            batch.append(
                [
                    b"XADD",
                    self.r.choice(STREAMS),
                    b"%d-%d" % (self.high, self.r.choice((0, 1))),
                    *self.row(),
                ]
            )
        return sorted(
            batch, key=lambda args: (args[0] == b"XADD", args if args[0] != b"XADD" else [])
        )

    def plain(self) -> list[Command]:
        batch = [self.command() for _ in range(self.r.randint(1, 6))]
        if self.chance(0.06):
            batch.insert(self.r.randint(0, len(batch)), self.xadd_many())
        return batch

    def transaction(self) -> list[Command]:
        r = self.r
        batch: list[Command] = []
        if r.random() < 0.4:
            batch.append([b"WATCH", *(self.key() for _ in range(r.randint(1, 2)))])
            if r.random() < 0.6:
                batch.append(self.queueable())  # a second MULTI may come before it
            if r.random() < 0.1:
                batch.append([b"UNWATCH"])
        batch.append([b"MULTI"])
        batch += [self.queueable() for _ in range(r.randint(0, 6))]
        if r.random() < 0.1:
            batch.insert(
                r.randint(1, len(batch)), r.choice(([b"MULTI"], [b"WATCH", b"s"], [b"EXEC", b"x"]))
            )
        batch.append([b"DISCARD"] if r.random() < 0.1 else [b"EXEC"])
        if r.random() < 0.05:
            batch.append(r.choice(([b"EXEC"], [b"DISCARD"])))
        return batch

    def queueable(self) -> Command:
        """CONFIG is the server's, not the engine's: tidelog's side of it is a setting, set between commands."""
        while True:
            args = self.command()
            if args[0].upper() != b"CONFIG":
                return args

    def command(self) -> Command:
        make = self.r.choices(self._rows, self._weights)[0][1]
        args = make()
        if self.r.random() < 0.12 and args[0] != b"CONFIG":
            args = self.broken(args)
        if self.r.random() < 0.1 and args[0] != b"CONFIG":
            args[0] = args[0].lower()
        if args[0].upper() in (b"XREAD", b"XREADGROUP", b"XSETID"):
            # A BLOCK or an entries-added at the very end of the numbers: cases of their own, in test_differences.
            return [
                b"4611686018427387904" if arg == b"9223372036854775807" else arg for arg in args
            ]
        if (
            args[0].upper() == b"SCAN"
            and len(args) > 1
            and args[1] in ODD_INTEGERS
            and args[1] not in NO_CURSORS
        ):
            args[1] = b"0"  # a cursor means something only to the server that gave it
        return args

    def broken(self, args: Command) -> Command:
        r = self.r
        if len(args) < 2:
            return [*args, r.choice(JUNK)]
        at = r.randint(1, len(args) - 1)
        way = r.randint(0, 6)
        if way == 0:
            return args[:at] + args[at + 1 :]
        if way == 1:
            return args[:at] + [r.choice(JUNK)] + args[at:]
        if way == 2:
            return args[:at] + [r.choice(ODD_IDS)] + args[at + 1 :]
        if way == 3:
            return args[:at] + [r.choice(ODD_INTEGERS)] + args[at + 1 :]
        if way == 4:
            return args[:at] + [args[at]] + args[at:]
        if way == 5:
            other = r.randint(1, len(args) - 1)
            args = list(args)
            args[at], args[other] = args[other], args[at]
            return args
        return args[:at]

    # --- words

    def chance(self, share: float) -> bool:
        return self.r.random() < share

    def key(self) -> bytes:
        return self.r.choice(STREAMS) if self.chance(0.93) else self.r.choice(STRINGS)

    def any_key(self) -> bytes:
        return self.r.choice(STREAMS + STRINGS + (b"absent",))

    def group(self) -> bytes:
        return self.r.choice(GROUPS) if self.chance(0.98) else b"nobody"

    def consumer(self) -> bytes:
        return self.r.choice(CONSUMERS)

    def id(self) -> bytes:
        """Mostly an ID near those in use."""
        r = self.r
        roll = r.random()
        if roll < 0.03:
            return r.choice(ODD_IDS)
        if self.clocked and roll > 1 - 0.2 * len(self.clocked):
            return b"%d-%d" % (
                r.choice(list(self.clocked.values())),
                r.choice((0, 0, 1, 2, 3, 5, 8)),
            )
        ms = r.randint(max(0, self.high - 12), self.high + 1)
        if roll < 0.15:
            return number(ms)
        return b"%d-%d" % (ms, r.choice((0, 0, 1, 1, 2, 3)))

    def ids(self) -> list[bytes]:
        """IDs for deletion, acknowledgement and claims; sometimes many in a run."""
        if self.chance(0.15):
            first = self.r.randint(max(0, self.high - 12), self.high)
            return [
                b"%d-%d" % (first + i, seq) for i in range(self.r.randint(1, 6)) for seq in (0, 1)
            ]
        return [self.id() for _ in range(self.r.choice((1, 1, 1, 2, 3, 5)))]

    def start(self) -> bytes:
        return self.r.choice((b"-", b"-", b"0", b"+", self.id(), b"(" + self.id()))

    def end(self) -> bytes:
        return self.r.choice((b"+", b"+", b"-", self.id(), b"(" + self.id()))

    def integer(self, *usual: int) -> bytes:
        return self.r.choice(ODD_INTEGERS) if self.chance(0.03) else number(self.r.choice(usual))

    def option(self, share: float, *words: bytes) -> list[bytes]:
        return [spelled(words[0], self.r), *words[1:]] if self.chance(share) else []

    def count(self, share: float = 0.5) -> list[bytes]:
        return self.option(share, b"COUNT", self.integer(1, 1, 2, 3, 5, 10, 0, -1, 1000))

    def shuffled(self, *groups: list[bytes]) -> list[bytes]:
        order = list(groups)
        self.r.shuffle(order)
        return [word for group in order for word in group]

    # --- streams

    def trim(self, share: float) -> list[bytes]:
        r = self.r
        if not self.chance(share):
            return []
        if self.chance(0.6):
            words = [spelled(b"MAXLEN", r)]
            threshold = self.integer(0, 1, 2, 3, 5, 8, 12, -1, 1000)
        else:
            words = [spelled(b"MINID", r)]
            threshold = self.id()
        mark = r.choice((b"", b"=", b"~", b"~"))
        if mark:
            words.append(mark)
        words.append(threshold)
        if self.chance(0.4 if mark == b"~" else 0.04):
            words += [spelled(b"LIMIT", r), self.integer(0, 1, 2, 3, 5, 10, -1, 1000)]
        return words

    def value(self) -> bytes:
        return self.r.choice(VALUES)

    def row(self) -> list[bytes]:
        r = self.r
        words: list[bytes] = []
        for _ in range(r.choice((1, 1, 1, 2, 3))):
            value = self.value()
            if self.chance(0.01):
                value = b"q" * r.choice((4090, 4096, 5000, 70000))
            words += [r.choice(FIELDS), value]
        return words

    def auto_id(self, key: bytes) -> bytes:
        """After it the stream takes no small IDs any more, so later commands are told of its time."""
        self.clocked[key] = self.now
        return self.r.choice(
            (b"*", b"*", b"%d-*" % self.now, b"%d-%d" % (self.now, self.r.randint(0, 9)))
        )

    def new_id(self, key: bytes) -> bytes:
        r = self.r
        if key in self.clocked and self.chance(0.8):
            return self.auto_id(key)
        roll = r.random()
        if roll < 0.06:
            return self.id()
        if roll < 0.09:
            return self.auto_id(key)
        if roll < 0.30:
            return b"%d-*" % self.high
        self.high += r.choice((0, 1, 1, 1, 2, 3))
        if roll < 0.5:
            return number(self.high)
        return b"%d-%d" % (self.high, r.choice((0, 0, 1, 2, 3)))

    def xadd(self) -> Command:
        key = self.key()
        options = self.shuffled(self.option(0.05, b"NOMKSTREAM"), self.trim(0.25))
        return [b"XADD", key, *options, self.new_id(key), *self.row()]

    def xadd_many(self) -> Command:
        r = self.r
        key = self.key()
        self.clocked[key] = self.now
        count = r.choice((1, 2, 3, 5, 10, 30, 130))
        if self.chance(0.5):  # all of the same fields
            names = [r.choice(FIELDS) for _ in range(r.choice((1, 1, 2)))]
            words = [word for _ in range(count) for name in names for word in (name, self.value())]
            return [b"XADDMANY", key, number(2 * len(names)), *words]
        words = [word for _ in range(count) for word in (r.choice(FIELDS), self.value())]
        return [b"XADDMANY", key, b"2", *words]

    def xtrim(self) -> Command:
        return [b"XTRIM", self.key(), *self.trim(0.99)]

    def xdel(self) -> Command:
        return [b"XDEL", self.key(), *self.ids()]

    def xsetid(self) -> Command:
        r = self.r
        target = (
            self.id()
            if self.chance(0.5)
            else b"%d-%d" % (self.high + r.choice((0, 1, 2)), r.choice((0, 3)))
        )
        options = self.shuffled(
            self.option(0.4, b"ENTRIESADDED", self.integer(0, 1, 5, 10, 20, 50, 100)),
            self.option(0.4, b"MAXDELETEDID", self.id()),
        )
        return [b"XSETID", self.key(), target, *options]

    def xlen(self) -> Command:
        return [b"XLEN", self.key()]

    def xrange(self) -> Command:
        if self.chance(0.5):
            return [b"XRANGE", self.key(), self.start(), self.end(), *self.count(0.4)]
        return [b"XREVRANGE", self.key(), self.end(), self.start(), *self.count(0.4)]

    def streams(self, usual: Callable[[], bytes]) -> list[bytes]:
        keys = [self.key() for _ in range(self.r.choice((1, 1, 1, 2, 3)))]
        return [spelled(b"STREAMS", self.r), *keys, *(usual() for _ in keys)]

    def xread(self) -> Command:
        options = self.shuffled(
            self.count(0.4), self.option(0.1, b"BLOCK", self.integer(0, 1, 10, -1))
        )
        return [
            b"XREAD",
            *options,
            *self.streams(lambda: self.r.choice((self.id(), b"0", b"$", b"+"))),
        ]

    def xreadgroup(self) -> Command:
        options = self.shuffled(
            [b"GROUP", self.group(), self.consumer()],
            self.count(0.6),
            self.option(0.08, b"BLOCK", self.integer(0, 1, 10, -1)),
            self.option(0.1, b"NOACK"),
        )
        return [b"XREADGROUP", *options, *self.streams(self.group_read_id)]

    def group_read_id(self) -> bytes:
        return b">" if self.chance(0.75) else self.r.choice((self.id(), b"0", b"$"))

    def xack(self) -> Command:
        return [b"XACK", self.key(), self.group(), *self.ids()]

    def idle(self) -> bytes:
        return self.integer(0, 0, 0, 1, 1, 2, 7, 8, 100, 5000, 5100, -1)

    def xclaim(self) -> Command:
        moment = self.now + self.r.choice((0, -1, -10, -5000, 10, -self.now, -self.now - 1))
        options = self.shuffled(
            self.option(0.15, b"IDLE", self.integer(0, 1, 100, 5000, -1, 10**13)),
            self.option(0.15, b"TIME", self.integer(moment)),
            self.option(0.15, b"RETRYCOUNT", self.integer(0, 1, 5, -1)),
            self.option(0.3, b"FORCE"),
            self.option(0.3, b"JUSTID"),
            self.option(0.1, b"LASTID", self.id()),
        )
        return [
            b"XCLAIM",
            self.key(),
            self.group(),
            self.consumer(),
            self.idle(),
            *self.ids(),
            *options,
        ]

    def xautoclaim(self) -> Command:
        options = self.shuffled(self.count(0.5), self.option(0.3, b"JUSTID"))
        return [
            b"XAUTOCLAIM",
            self.key(),
            self.group(),
            self.consumer(),
            self.idle(),
            self.start(),
            *options,
        ]

    def xpending(self) -> Command:
        words = [b"XPENDING", self.key(), self.group()]
        if self.chance(0.3):
            return words
        words += self.option(0.5, b"IDLE", self.idle())
        words += [self.start(), self.end(), self.integer(1, 2, 10, 100, 0, -1)]
        if self.chance(0.4):
            words.append(self.consumer())
        return words

    def xgroup_create(self) -> Command:
        where = self.r.choice((b"0", b"0", b"0", b"$", self.id()))
        options = self.shuffled(self.option(0.6, b"MKSTREAM"), self.entries_read(0.2))
        return [b"XGROUP", spelled(b"CREATE", self.r), self.key(), self.group(), where, *options]

    def entries_read(self, share: float) -> list[bytes]:
        return self.option(share, b"ENTRIESREAD", self.integer(0, 1, 2, 5, 10, 1000, -1, -2))

    def xgroup_setid(self) -> Command:
        where = self.r.choice((b"0", b"$", b"-", b"+", self.id(), self.id(), self.id()))
        return [b"XGROUP", b"SETID", self.key(), self.group(), where, *self.entries_read(0.5)]

    def xgroup_other(self) -> Command:
        roll = self.r.random()
        if roll < 0.15:
            return [b"XGROUP", b"DESTROY", self.key(), self.group()]
        if roll < 0.55:
            return [b"XGROUP", b"CREATECONSUMER", self.key(), self.group(), self.consumer()]
        if roll < 0.9:
            return [b"XGROUP", b"DELCONSUMER", self.key(), self.group(), self.consumer()]
        return [
            self.r.choice((b"XGROUP", b"XINFO", b"OBJECT")),
            self.r.choice((b"HELP", b"WHAT", b"create")),
        ]

    def xinfo(self) -> Command:
        roll = self.r.random()
        if roll < 0.3:
            return [b"XINFO", b"STREAM", self.key()]
        if roll < 0.5:
            return [b"XINFO", b"STREAM", self.key(), b"FULL", *self.count(0.5)]
        if roll < 0.75:
            return [b"XINFO", b"GROUPS", self.key()]
        return [b"XINFO", b"CONSUMERS", self.key(), self.group()]

    # --- keys, strings, session

    def db(self) -> bytes:
        return (
            self.r.choice((b"0", b"1", b"2", b"0", b"1"))
            if self.chance(0.95)
            else self.r.choice((b"15", b"16", b"-1", b"x"))
        )

    def pair(self) -> list[bytes]:
        return [self.any_key(), self.any_key()]

    def keys(self) -> Command:
        r = self.r
        rows: list[Callable[[], Command]] = [
            lambda: [b"EXISTS", b"s", b"t"],
            lambda: [r.choice((b"DEL", b"UNLINK")), *(self.any_key() for _ in range(r.choice((1, 1, 2))))],
            lambda: [r.choice((b"EXISTS", b"TOUCH")), *(self.any_key() for _ in range(r.choice((1, 2, 3))))],
            lambda: [b"TYPE", self.any_key()],
            lambda: [b"RENAME", *self.pair()],
            lambda: [b"RENAMENX", *self.pair()],
            lambda: [b"COPY", *self.pair(), *self.shuffled(
                self.option(0.4, b"DB", self.db()), self.option(0.6, b"REPLACE"))],
            lambda: [b"MOVE", self.any_key(), self.db()],
            lambda: [b"SWAPDB", self.db(), self.db()],
            lambda: [b"KEYS", r.choice((b"*", b"?", b"[st]", b"[^s]", b"[s-x]", b"u{*", b"\\s", b"[", b"a*t", b""))],
            lambda: [b"SCAN", b"0", *self.shuffled(
                [b"COUNT", self.integer(1000)], self.option(0.3, b"MATCH", r.choice((b"*", b"s", b"[tu]*"))),
                self.option(0.3, b"TYPE", r.choice((b"stream", b"string", b"STREAM"))))],
            lambda: [b"DBSIZE"],
            lambda: [b"OBJECT", r.choice((b"ENCODING", b"REFCOUNT", b"FREQ")), self.any_key()],
            lambda: [b"MEMORY", b"USAGE", self.any_key(), *self.option(0.3, b"SAMPLES", self.integer(0, 5, -1))],
            lambda: r.choice(([b"RANDOMKEY"], [b"PING"], [b"PING", b"x"], [b"ECHO", b"x"], [b"TIME"])),
            lambda: [r.choice((b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME")), self.any_key()],
            lambda: [b"PERSIST", self.any_key()],
        ]  # fmt: skip
        if self.chance(0.02):
            return [
                r.choice((b"FLUSHDB", b"FLUSHALL")),
                *self.option(0.3, r.choice((b"ASYNC", b"SYNC", b"NOW"))),
            ]
        return r.choice(rows)()

    def expiry(self) -> Command:
        r = self.r
        seconds, absolute = self.chance(0.5), self.chance(0.5)
        base = self.now if absolute else 0
        at = base + r.choice((1, 50, 900, 1000, 5000, 100_000, 10**12, 0, -1000))
        name = (b"" if seconds else b"P") + b"EXPIRE" + (b"AT" if absolute else b"")
        flags = self.shuffled(*(self.option(0.12, flag) for flag in (b"NX", b"XX", b"GT", b"LT")))
        return [name, self.any_key(), self.integer(at // 1000 if seconds else at), *flags]

    def strings(self) -> Command:
        r = self.r
        key = r.choice(STRINGS) if self.chance(0.9) else self.any_key()
        value = r.choice((b"v", b"", b"0", b"7", b"-1", b"9223372036854775807", b"abc", b"01"))
        rows: list[Callable[[], Command]] = [
            lambda: [b"SET", key, value, *self.shuffled(
                self.option(0.15, b"GET"), self.option(0.2, r.choice((b"NX", b"XX"))), self.set_expiry())],
            lambda: [b"GET", key],
            lambda: [b"GETDEL", key],
            lambda: [b"GETSET", key, value],
            lambda: [b"SETNX", key, value],
            lambda: [b"MGET", *(self.any_key() for _ in range(r.choice((1, 2, 3))))],
            lambda: [b"MSET", key, value, r.choice(STRINGS), b"m"],
            lambda: [r.choice((b"INCR", b"DECR")), key],
            lambda: [r.choice((b"INCRBY", b"DECRBY")), key, self.integer(1, -1, 5, 10**18, -(2**63))],
            lambda: [b"APPEND", key, value],
            lambda: [b"STRLEN", key],
            lambda: [b"GETEX", key, *self.set_expiry(b"PERSIST")],
            lambda: [r.choice((b"SETEX", b"PSETEX")), key, self.integer(1, 5, 10**6, 0, -1), value],
            lambda: [b"MSETNX", self.any_key(), value, r.choice(STRINGS), b"m"],
        ]  # fmt: skip
        return r.choice(rows)()

    def set_expiry(self, other: bytes = b"KEEPTTL") -> list[bytes]:
        r = self.r
        if not self.chance(0.35):
            return []
        word = r.choice((b"EX", b"PX", b"EXAT", b"PXAT", other))
        if word == other:
            return [word]
        base = self.now if word.endswith(b"AT") else 0
        at = base + r.choice((50, 900, 5000, 100_000, 10**12, 0, -1000))
        return [word, self.integer(at // 1000 if word.startswith(b"E") else at)]

    def session(self) -> Command:
        """Commands outside a transaction change the session; inside they are queued like any other."""
        if self.chance(0.5):
            return [b"SELECT", self.db()]
        return self.node_limit()

    def small_nodes(self) -> list[Command]:
        """Limits to begin with, so that the bounds of nodes matter in short sequences."""
        limits: list[Command] = []
        if self.chance(0.3):
            self.bytes_fixed = True
            limits.append(
                [b"CONFIG", b"SET", b"stream-node-max-bytes", self.integer_of(1, 60, 100, 200)]
            )
        return limits + [self.node_limit() for _ in range(self.r.choice((0, 0, 1, 1, 2)))]

    def node_limit(self) -> Command:
        """Tiny byte limits come only before the first entry, and stay.

        Where the limit sinks to a few bytes 7.0 may lose a node: it decides by comparing addresses whether a node
        has moved, and one that grows can land where the node before it was freed (streamAppendItem).
        """
        if self.bytes_fixed or self.chance(0.5):
            return [
                b"CONFIG",
                b"SET",
                b"stream-node-max-entries",
                self.integer_of(0, 1, 2, 3, 4, 5, 10, 100),
            ]
        return [
            b"CONFIG",
            b"SET",
            b"stream-node-max-bytes",
            self.integer_of(0, 300, 300, 1000, 4096),
        ]

    def integer_of(self, *choices: int) -> bytes:
        return number(self.r.choice(choices))


class Grammar8(Grammar):
    """With the commands and options that came after 7.0."""

    def __init__(self, r: random.Random) -> None:
        super().__init__(r)
        self._rows += [
            (6, self.xdelex), (8, self.xackdel), (12, self.xnack), (14, self.xreadgroup_claim), (8, self.xadd_idmp),
            (2, self.xcfgset), (2, self.xidmprecord), (6, self.trim_by_policy), (4, self.capped_read),
        ]  # fmt: skip
        self._weights = [weight for weight, _ in self._rows]

    def policy(self, share: float = 0.7) -> list[bytes]:
        return self.option(share, self.r.choice((b"KEEPREF", b"DELREF", b"ACKED")))

    def numbered(self) -> list[bytes]:
        ids = self.ids()
        return [b"IDS", number(len(ids) + self.r.choice((0,) * 30 + (1, -1))), *ids]

    def xdelex(self) -> Command:
        return [b"XDELEX", self.key(), *self.shuffled(self.policy(), self.numbered())]

    def xackdel(self) -> Command:
        return [
            b"XACKDEL",
            self.key(),
            self.group(),
            *self.shuffled(self.policy(), self.numbered()),
        ]

    def xnack(self) -> Command:
        mode = self.r.choice((b"SILENT", b"FAIL", b"FATAL"))
        options = self.shuffled(
            self.numbered(),
            self.option(0.2, b"RETRYCOUNT", self.integer(0, 1, 5, -1)),
            self.option(0.3, b"FORCE"),
        )
        return [b"XNACK", self.key(), self.group(), mode, *options]

    def xreadgroup_claim(self) -> Command:
        args = self.xreadgroup()
        at = self.r.choice((1, 4))
        return [*args[:at], *self.option(0.95, b"CLAIM", self.idle()), *self.caps(), *args[at:]]

    def caps(self) -> list[bytes]:
        return self.shuffled(
            self.option(0.15, b"MAXCOUNT", self.integer(1, 2, 3, 10, 0)),
            self.option(0.15, b"MAXSIZE", self.integer(1, 100, 1000, 0)),
        )

    def capped_read(self) -> Command:
        args = self.xread()
        return [args[0], *self.caps(), *args[1:]]

    def xadd_idmp(self) -> Command:
        pid = self.r.choice((b"p", b"q", b"p", b""))
        if self.chance(0.3):
            idmp = [b"IDMPAUTO", pid]
        else:
            idmp = [b"IDMP", pid, self.r.choice((b"i", b"j", b"k", b"l"))]
        options = self.shuffled(
            idmp, self.trim(0.2), self.policy(0.2), self.option(0.1, b"NOMKSTREAM")
        )
        return [b"XADD", self.key(), *options, self.r.choice((b"*",) * 9 + (b"5-*",)), *self.row()]

    def xcfgset(self) -> Command:
        return [b"XCFGSET", self.key(), *self.shuffled(
            self.option(0.6, b"IDMP-DURATION", self.integer(1, 5, 100, 86400, 0)),
            self.option(0.6, b"IDMP-MAXSIZE", self.integer(1, 2, 3, 100, 10001)),
        )]  # fmt: skip

    def xidmprecord(self) -> Command:
        return [b"XIDMPRECORD", self.key(), b"p", self.r.choice((b"i", b"j", b"")), self.id()]

    def trim_by_policy(self) -> Command:
        if self.chance(0.5):
            return [b"XTRIM", self.key(), *self.shuffled(self.policy(0.9), self.trim(1.0))]
        key = self.key()
        return [
            b"XADD",
            key,
            *self.shuffled(self.policy(0.9), self.trim(1.0)),
            self.new_id(key),
            *self.row(),
        ]


class Grammar82(Grammar8):
    """With the commands and options of 8.2 alone."""

    def __init__(self, r: random.Random) -> None:
        super().__init__(r)
        later = (
            self.xnack,
            self.xreadgroup_claim,
            self.xadd_idmp,
            self.xcfgset,
            self.xidmprecord,
            self.capped_read,
        )
        self._rows = [row for row in self._rows if row[1] not in later]
        self._weights = [weight for weight, _ in self._rows]
