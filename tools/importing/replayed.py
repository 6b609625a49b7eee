"""Replay commands as Redis wrote them into its log, into a state that is folded now and then.

The engine decides each command and its effects are applied; nothing is logged. A server that replays obeys more than
one that serves (spec 11): nothing expires by itself, LIMIT beside an exact trim is ignored, an IDMP with a concrete ID
always appends. Commands of other types are counted by name.

A claim's own time is taken for the consumer's seen-time, since that is when the consumer was served.
"""

from __future__ import annotations

from typing import Final

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.commands.table import TABLE
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.effect import Effect
from tidelog.engine.errors import CommandError
from tidelog.engine.ids import SEQ_MAX, parse
from tidelog.engine.integers import read_int64
from tidelog.engine.keys.state import DATABASES, Settings
from tidelog.engine.rdb.errors import RdbError
from tidelog.engine.rdb.file import NO_EXPIRY, dumped
from tidelog.engine.streams.idmp import auto_iid
from tidelog.engine.streams.lag import read_one_before_7_4
from tidelog.engine.streams.stream import Stream
from tidelog.tools.failed import Refused
from tidelog.tools.importing.filters import Filter
from tidelog.tools.importing.keys import Keys

_COMMAND_BYTES: Final = 300  # approximate memory that a command leaves until the next fold
_ALONE: Final = frozenset((b"NOMKSTREAM", b"KEEPREF", b"DELREF", b"ACKED"))
_MANY_KEYS: Final = frozenset((b"DEL", b"UNLINK", b"MSET", b"MSETNX"))
_ALL_KEYS: Final = frozenset((b"FLUSHALL", b"FLUSHDB", b"SWAPDB"))
_IGNORED: Final = frozenset((b"PING", b"REPLCONF", b"PUBLISH", b"SPUBLISH"))


class Replaying:
    """Takes commands one by one. A transaction is taken when its EXEC comes.

    open_at    offset of the MULTI that is open, None if there is none
    """

    def __init__(self, keys: Keys, wanted: Filter, now_ms: int) -> None:
        self._keys = keys
        self._wanted = wanted
        self._wall = now_ms
        self._db = 0
        self._queued: list[list[bytes]] = []
        self._settings = Settings()
        self.open_at: int | None = None

    def new_file(self) -> None:
        """Begin the next file of a log: each begins in database 0."""
        self._db = 0

    def take(self, offset: int, args: list[bytes]) -> None:
        """Take the command at `offset`, or a line that begins with `#`. Raises Refused, CorruptBlock."""
        if args[0][:1] == b"#":
            self._note(args[0])
            return
        name = args[0].upper()
        if name == b"MULTI":
            self.open_at, self._queued = offset, []
        elif name == b"EXEC":
            queued, self._queued, self.open_at = self._queued, [], None
            for each in queued:
                self._run(each[0].upper(), each)
        elif self.open_at is not None:
            self._queued.append(args)
        else:
            self._run(name, args)

    def drop_open(self) -> None:
        """Forget the transaction that has no EXEC."""
        self.open_at, self._queued = None, []

    def _note(self, line: bytes) -> None:
        """`#TS:` has the Unix time of the commands behind it, in seconds."""
        seconds = line.removeprefix(b"#TS:")
        if seconds is not line and seconds.isdigit() and len(seconds) < 12:
            self._wall = int(seconds) * 1000

    # --- one command

    def _run(self, name: bytes, args: list[bytes]) -> None:
        report = self._keys.report
        if name == b"SELECT" and len(args) == 2:
            db = read_int64(args[1])
            self._db = -1 if db is None else db
            return
        if name in _IGNORED:
            return
        if not self._takes(name, args):
            report.skipped_commands += 1
            return
        if not 0 <= self._db < DATABASES:
            raise Refused(
                f"the command {name.decode(errors='replace')} is for database {self._db}, and a store has the "
                f"databases 0 to {DATABASES - 1}; name the databases to import with --db"
            )
        if name == b"RESTORE":
            self._restore(args)
            return
        if name.lower() not in TABLE.commands and name.lower() not in TABLE.containers:
            report.leave_command(name)
            return
        report.commands += 1
        for each in lowered(name, args):
            self._decide(each)

    def _takes(self, name: bytes, args: list[bytes]) -> bool:
        if name in _ALL_KEYS or len(args) < 2:
            return True
        if name in _MANY_KEYS:
            step = 2 if name[:1] == b"M" else 1
            return any(self._wanted.takes(self._db, key) for key in args[1::step])
        return self._wanted.takes(self._db, _key(name, args))

    def _decide(self, args: list[bytes]) -> None:
        folding = self._keys.folding
        if folding is None:
            return
        ctx = Context(folding.state, self._settings)
        ctx.db, ctx.may_block = self._db, False
        name = args[0].upper()
        if name[:1] == b"X":
            # While a log is replayed nothing expires by itself; its DEL is in the log.
            keys = folding.state.databases[self._db].keys
            ctx.now = min(_claimed_at(name, args, self._wall), keys.expire_at(_key(name, args)))
        reads = self._position_after(args) if name == b"XCLAIM" else None
        try:
            decide(ctx, args)
        except CommandError as error:
            self._keys.report.refuse(args, error.line)
            return
        apply = applier(folding.state)
        apply(ctx.effects)
        if reads is not None:
            apply([reads])
        self._keys.add(_COMMAND_BYTES + sum(map(len, args)))

    def _position_after(self, args: list[bytes]) -> Effect | None:
        """The group's position after a claim that stands for a delivery of a new entry.

        Before 7.4 Redis logs a delivery as an XCLAIM whose LASTID is the entry, and does not log entries-read. The
        server that delivered counted it as here.
        """
        key, name, entry_id = args[1], args[2], args[5] if len(args) > 5 else b""
        assert self._keys.folding is not None
        stream = self._keys.folding.state.databases[self._db].keys.get(key)
        group = stream.groups.get(name) if isinstance(stream, Stream) else None
        if group is None or args[-2:-1] != [b"LASTID"] or args[-1] != entry_id:
            return None
        assert isinstance(stream, Stream)
        try:
            last = parse(entry_id)
        except CommandError:
            return None
        if last <= group.last_id or not stream.contains(last):
            return None
        read = read_one_before_7_4(stream, group.entries_read, last)
        return (e.XGROUP_SETID, self._db, key, name, last >> 64, last & SEQ_MAX, read)

    def _restore(self, args: list[bytes]) -> None:
        """RESTORE key ttl payload [REPLACE] [ABSTTL] ..."""
        report = self._keys.report
        try:
            _, key, ttl, payload, *words = args
            at = read_int64(ttl) or 0
            kind, source = dumped(payload)
        except (ValueError, RdbError):
            report.refuse(args[:2], b"ERR Bad data format")
            return
        if any(word.upper() == b"REPLACE" for word in words):
            self._decide([b"DEL", key])
        absolute = any(word.upper() == b"ABSTTL" for word in words)
        expire_at = NO_EXPIRY if not at else at if absolute else self._wall + at
        self._keys.value(self._db, key, kind, expire_at, source)


def _key(name: bytes, args: list[bytes]) -> bytes:
    """The first key of a command."""
    if name in (b"XGROUP", b"XINFO", b"OBJECT") and len(args) > 2:
        return args[2]
    return args[1] if len(args) > 1 else b""


def _claimed_at(name: bytes, args: list[bytes], now: int) -> int:
    """The time of a claim that states it, else now."""
    if name == b"XCLAIM":
        for word, value in zip(args[5:], args[6:]):
            if word.upper() == b"TIME":
                at = read_int64(value)
                return now if at is None or at < 0 else at
    return now


def lowered(name: bytes, args: list[bytes]) -> list[list[bytes]]:
    """The commands that do for a client what this one does in a replay."""
    if name == b"XTRIM":
        return [_without_limit(args, 2, len(args))]
    if name == b"XADD":
        return _lowered_add(args)
    return [args]


def _lowered_add(args: list[bytes]) -> list[list[bytes]]:
    at = 2
    dedup: tuple[bytes, bytes | None] | None = None
    plain = args[:2]
    while at < len(args):
        word = args[at].upper()
        if word in _ALONE:
            size = 1
        elif word in (b"MAXLEN", b"MINID"):
            size = 3 if args[at + 1 : at + 2] and args[at + 1] in (b"=", b"~") else 2
        elif word in (b"LIMIT", b"IDMPAUTO"):
            size = 2
        elif word == b"IDMP":
            size = 3
        else:
            break
        if word in (b"IDMP", b"IDMPAUTO"):
            dedup = args[at + 1], args[at + 2] if word == b"IDMP" else None
        else:
            plain += args[at : at + size]
        at += size
    entry_id = args[at] if at < len(args) else b""
    plain = _without_limit(plain, 2, len(plain)) + args[at:]
    if dedup is None:
        return [plain]
    pid, iid = dedup
    if entry_id == b"*":
        return []  # a duplicate, which appended nothing
    if iid is None:
        iid = auto_iid(tuple(args[at + 1 :]))
    return [plain, [b"XIDMPRECORD", args[1], pid, iid, entry_id]]


def _without_limit(args: list[bytes], start: int, stop: int) -> list[bytes]:
    """Without LIMIT, which means nothing beside an exact trim and must not be there."""
    exact = not any(word == b"~" for word in args[start:stop])
    for at in range(start, stop - 1):
        if exact and args[at].upper() == b"LIMIT":
            return args[:at] + args[at + 2 :]
    return args
