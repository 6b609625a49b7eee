"""DEBUG: the subcommands that test suites use (spec 16.5). Refused unless `enable-debug-command` allows it.

A subcommand that cannot behave as in Redis is refused with a reason; none is silently ignored.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable
from typing import Any, Final

from tidelog.engine.api import Context, State, Stream, digest, encoding_name
from tidelog.engine.errors import NO_SUCH_KEY, CommandError, echo
from tidelog.engine.reply import OK, Reply, Status
from tidelog.server.saving import in_thread
from tidelog.server.session import Session
from tidelog.store.commit.core import Core
from tidelog.store.errors import StoreClosed, TidelogError

DIGITS: Final = 40  # hex digits of a digest, as in Redis
SLEEP_S_MAX: Final = 1e6

_NOT_ALLOWED = (
    b'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a '
    b"local connection, otherwise you need to set this option in the configuration file, and then restart the server."
)
_NO_MERGE = (
    b"ERR DEBUG RELOAD with NOFLUSH or MERGE is not supported: memory is rebuilt as a whole, from the checkpoint and "
    b"the log behind it"
)
_ALWAYS_ACTIVE = (
    b"ERR DEBUG SET-ACTIVE-EXPIRE 0 is not supported: every command begins by deleting the keys whose time has "
    b"passed"
)
_HELP = b"""\
DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
AOF-FLUSH-SLEEP <microsec>
    Server will sleep before flushing the AOF, this is used for testing.
DIGEST
    Output a hex signature representing the current DB content.
DIGEST-VALUE <key> [<key> ...]
    Output a hex signature of the values of all the specified keys.
LOADAOF
    Rebuild memory from the checkpoint and the log behind it.
OBJECT <key>
    Show low level info about `key` and associated value.
RELOAD [NOSAVE]
    Fold the log into the checkpoint, unless NOSAVE, and rebuild memory from it.
SET-ACTIVE-EXPIRE 1
    What always holds: keys whose time has passed are deleted when nobody accesses them, too.
SLEEP <seconds>
    Stop the server for <seconds>. Decimals allowed.
HELP
    Print this help.""".split(b"\n")

_logger = logging.getLogger("tidelog.server")


def debug(session: Session, args: list[bytes]) -> Reply:
    """DEBUG subcommand [argument ...]"""
    allowed = session.server.config["enable-debug-command"]
    if allowed != "yes" and not (allowed == "local" and _is_local(session)):
        raise CommandError(_NOT_ALLOWED)
    found = _SUBCOMMANDS.get(args[1].lower())
    if found is None or not found[0] <= len(args) - 2 <= found[1]:
        raise CommandError(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try DEBUG HELP."
            % echo(args[1])
        )
    return found[2](session, args[2:])


def _is_local(session: Session) -> bool:
    connection = session.connection
    return connection.kind == "unix" or connection.addr.startswith(("127.0.0.1:", "[::1]:"))


def _help(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _HELP]


def _sleep(session: Session, args: list[bytes]) -> Reply:
    """DEBUG SLEEP: block the whole server, including the event loop, as intended."""
    seconds = _leading_float(args[0])
    if not math.isfinite(seconds) or seconds > SLEEP_S_MAX:
        raise CommandError(b"ERR value is out of range")
    time.sleep(max(seconds, 0.0))
    return OK


def _aof_flush_sleep(session: Session, args: list[bytes]) -> Reply:
    session.server.turns.flush_sleep = min(max(_leading_float(args[0]), 0.0) / 1e6, SLEEP_S_MAX)
    return OK


def _set_active_expire(session: Session, args: list[bytes]) -> Reply:
    if int(_leading_float(args[0])) == 0:
        raise CommandError(_ALWAYS_ACTIVE)
    return OK


# --- rebuilding memory


async def _reload(session: Session, args: list[bytes]) -> Reply:
    options = {arg.lower() for arg in args}
    if options - {b"merge", b"noflush", b"nosave"}:
        raise CommandError(b"ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")
    if options & {b"merge", b"noflush"}:
        raise CommandError(_NO_MERGE)
    if not options:
        await session.server.saving.save()
    return await _rebuilt(session, b"ERR Error trying to load the RDB dump, check server logs.")


async def _loadaof(session: Session, args: list[bytes]) -> Reply:
    return await _rebuilt(session, b"ERR Error trying to load the AOF files, check server logs.")


async def _rebuilt(session: Session, refusal: bytes) -> Reply:
    core = session.core
    try:
        await in_thread(lambda: rebuild(core))
    except StoreClosed:
        raise
    except TidelogError as error:
        _logger.error("DEBUG RELOAD could not rebuild memory: %s", error)
        raise CommandError(refusal) from error
    return OK


def rebuild(core: Core) -> None:
    """Discard the state in memory and load it again from the checkpoint and the log. Raises as `Core.mend`."""
    with core.lock:
        core.check_open()
        core.doubt()
        core.mend()


# --- inspecting the data


async def _digest(session: Session, args: list[bytes]) -> Reply:
    reply, promise = await in_thread(lambda: session.core.look(_state_digest))
    session.connection.rests_on(*promise)
    return Status(reply)


def _state_digest(state: State) -> bytes:
    """Digest of the state; zeros if it has no keys, as in Redis."""
    if not any(len(database.keys) for database in state.databases):
        return b"0" * DIGITS
    return digest(state)[:DIGITS].encode()


async def _digest_value(session: Session, args: list[bytes]) -> Reply:
    return await _looked(session, lambda ctx: [Status(_value_digest(ctx, key)) for key in args])


def _value_digest(ctx: Context, key: bytes) -> bytes:
    """Digest of a state that holds only this value, under an empty name and without an expiry."""
    value = ctx.peek(key)
    if value is None:
        return b"0" * DIGITS
    alone = State()
    alone.databases[0].keys[b""] = value
    return digest(alone)[:DIGITS].encode()


async def _object(session: Session, args: list[bytes]) -> Reply:
    return await _looked(session, lambda ctx: _described(ctx, args[0]))


def _described(ctx: Context, key: bytes) -> Reply:
    """DEBUG OBJECT. `serializedlength` is the bytes of a string, or of all nodes of a stream."""
    value = ctx.peek(key)
    if value is None:
        raise CommandError(NO_SUCH_KEY)
    packed = len(value) if isinstance(value, bytes) else _node_bytes(value)
    accessed = ctx.database.keys.accessed.get(key, ctx.now)
    return Status(
        b"Value at:0x%x refcount:1 encoding:%b serializedlength:%d lru:%d lru_seconds_idle:%d"
        % (
            id(value),
            encoding_name(value),
            packed,
            accessed // 1000 & 0xFFFFFF,
            max(ctx.now - accessed, 0) // 1000,
        )
    )


def _node_bytes(stream: Stream) -> int:
    return sum(node.node_bytes() for node in stream.walk())


async def _looked(session: Session, at: Callable[[Context], Reply]) -> Reply:
    """Run `at`, which reads whole values, in another thread under the store's lock, so that the loop is not blocked."""
    reply, promise = await in_thread(lambda: session.core.decided(session.db, at))
    session.connection.rests_on(*promise)
    return reply


# --- numbers as C parses them: the longest valid prefix; 0 if no prefix is valid

_FLOAT = re.compile(rb"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


def _leading_float(raw: bytes) -> float:
    found = _FLOAT.match(raw)
    return 0.0 if found is None else float(found[1])


_ANY = 1 << 30
# fmt: off
# name -> (minimum number of arguments, maximum, handler)
_SUBCOMMANDS: Final[dict[bytes, tuple[int, int, Callable[[Session, list[bytes]], Any]]]] = {
    b"aof-flush-sleep":   (1, 1, _aof_flush_sleep),
    b"digest":            (0, 0, _digest),
    b"digest-value":      (0, _ANY, _digest_value),
    b"help":              (0, 0, _help),
    b"loadaof":           (0, _ANY, _loadaof),
    b"object":            (1, 1, _object),
    b"reload":            (0, _ANY, _reload),
    b"set-active-expire": (1, 1, _set_active_expire),
    b"sleep":             (1, 1, _sleep),
}
# fmt: on
