"""The errors of a shared store: what replies of the server, a broken connection and a failed start stand for."""

from __future__ import annotations

from typing import Final

from tidelog.client.wire import Broken
from tidelog.engine.errors import CommandError
from tidelog.store.errors import (
    FULL,
    CannotOpen,
    CheckpointFailed,
    DataError,
    NotReplicated,
    NotStored,
    OutcomeUnknown,
    OutOfSpace,
    QueueFull,
    StoreFull,
    StoreLocked,
    StorePoisoned,
    TidelogError,
    TokenLate,
    TokenLost,
    UnitTooLarge,
    Unreachable,
    from_command,
)

# Those with which an owner may say that it cannot start, by name.
OPENING: Final[dict[str, type[TidelogError]]] = {
    kind.__name__: kind
    for kind in (*CannotOpen.__subclasses__(), DataError)
    if kind is not StoreLocked
}
# The beginnings of error replies (server/errors.py), with the error that each stands for.
_TEXTS: Final[tuple[tuple[str, type[TidelogError]], ...]] = (
    ("QUEUEFULL ", QueueFull),
    ("MISCONF Errors writing to the AOF file: ", OutOfSpace),
    ("MISCONF The log could not be synced: ", StorePoisoned),
    ("ERR outcome unknown: ", OutcomeUnknown),
    ("ONCE ", OutcomeUnknown),
    ("TIMEOUT ", TokenLate),
    ("LOST ", TokenLost),
    ("ERR not stored: the call would write", UnitTooLarge),
    ("ERR not stored: ", NotStored),
    ("ERR checkpoint: ", CheckpointFailed),
)


def ended_elsewhere() -> Unreachable:
    """The error of a call that another thread has ended."""
    return Unreachable("the call was ended by another thread")


def unknown(broken: Broken) -> OutcomeUnknown:
    """The error of a call that may have happened."""
    return OutcomeUnknown(f"the connection to the server broke during the call: {broken}")


def error_of(reply: CommandError) -> TidelogError:
    """The error that an error reply stands for."""
    text = str(reply)
    for beginning, kind in _TEXTS:
        if text.startswith(beginning):
            return kind(text.removeprefix(beginning))
    if text.startswith(f"MISCONF {FULL}"):
        return StoreFull(text.removeprefix("MISCONF "))
    if text.startswith("NOREPLICAS stored here"):
        words = text.split()
        return NotReplicated(int(words[-4]), int(words[-2]))
    return from_command(reply)
