"""Error replies of the server itself: for refused commands, and for commands that the store failed to execute."""

from __future__ import annotations

from typing import Final

from tidelog.engine.errors import CommandError, echo
from tidelog.store.errors import (
    CheckpointFailed,
    NotReplicated,
    NotStored,
    OutcomeUnknown,
    OutOfSpace,
    QueueFull,
    ResponseError,
    StoreFull,
    StorePoisoned,
    TidelogError,
    TokenLate,
    TokenLost,
    UnitTooLarge,
)

NO_AUTH: Final = b"NOAUTH Authentication required."
NO_MULTI: Final = b"ERR Command not allowed inside a transaction"
MAX_CLIENTS: Final = b"ERR max number of clients reached"
UNBLOCKED: Final = b"UNBLOCKED client unblocked via CLIENT UNBLOCK"
LOADING: Final = b"LOADING Redis is loading the dataset in memory"
MASTERDOWN: Final = (
    b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
)
NO_REPLICAS: Final = b"NOREPLICAS Not enough good replicas to write."
TEXT_BYTES_MAX: Final = 1000
INTERNAL: Final = b"ERR internal error; the server's log has the details"
PROTECTED: Final = (
    b"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the "
    b"default user. In this mode connections are only accepted from the loopback interface. If you want to connect "
    b"from external computers, set a password with the option requirepass, or switch protected mode off with the "
    b"option protected-mode no and make sure that the port cannot be reached from the internet."
)


def line(error: BaseException) -> bytes:
    """Return the line of an error reply for an error of the store, code first.

    MISCONF as in Redis: the log cannot be written, and writes are refused until it can (spec 12.5).
    """
    if isinstance(error, CommandError):
        return error.line
    if isinstance(error, ResponseError):
        code = b"" if str(error).startswith(error.code) else error.code.encode() + b" "
    elif isinstance(error, StoreFull):
        code = b"MISCONF "
    elif isinstance(error, OutOfSpace):
        code = b"MISCONF Errors writing to the AOF file: "
    elif isinstance(error, StorePoisoned):
        code = b"MISCONF The log could not be synced: "
    elif isinstance(error, OutcomeUnknown):
        code = b"ERR outcome unknown: "
    elif isinstance(error, (UnitTooLarge, NotStored)):
        code = b"ERR not stored: "
    elif isinstance(error, QueueFull):
        code = b"QUEUEFULL "
    elif isinstance(error, (NotReplicated, TokenLate, TokenLost)):
        code = b""  # the text begins with it
    elif isinstance(error, (CheckpointFailed, TidelogError)):
        code = b"ERR "
    else:
        return INTERNAL
    text = str(error).removeprefix("outcome unknown: ")  # a prefix of the log's own messages
    return code + echo(text.encode(errors="surrogateescape"), TEXT_BYTES_MAX)
