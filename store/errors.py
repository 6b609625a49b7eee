"""Errors of the store. Everything that `tidelog` raises on purpose is a `TidelogError`.

Grouped by what the caller can do about it:

    the call was refused, nothing changed      ResponseError and its kin, DataError, WatchError
    the call was not stored, try again         NotStored, OutOfSpace, UnitTooLarge
    nobody knows whether it was stored         OutcomeUnknown
    no checkpoint now, nothing is lost         CheckpointFailed
    this store object is of no more use        StoreClosed, StorePoisoned
    the directory cannot be opened             CannotOpen: StoreLocked, StoreDamaged, NewerFormat, NotAStore
"""

from __future__ import annotations

from tidelog.engine.errors import CommandError


class TidelogError(Exception):
    """Base of every error of this package."""


# --- refused; nothing changed


class DataError(TidelogError):
    """The arguments make no command; raised before the store is asked."""


class EncodeError(DataError):
    """A queue's codec cannot encode a value. Of `put_many` the values before it were put: `stored` says how many."""

    stored = 0


class QueueFull(TidelogError):
    """A bounded queue stayed full for as long as the caller would wait. Nothing was put; of `put_many` those before
    were: `stored` says how many.
    """

    stored = 0


class DecodeError(TidelogError):
    """A queue's codec cannot decode a value. A worker never sees it: such a job goes to the dead."""


class ResponseError(TidelogError):
    """The command was refused with Redis's own words; nothing changed.

    `str()` is the text without a leading `ERR `, as redis-py has it; `code` is the first word Redis sends.
    """

    def __init__(self, text: str, code: str = "ERR") -> None:
        super().__init__(text)
        self.code = code


class ReadOnlyError(ResponseError):
    """A write was sent to a store opened with `read_only=True`."""


class ExecAbortError(ResponseError):
    """A transaction was discarded because a command could not be queued."""


class WatchError(TidelogError):
    """A watched key changed between WATCH and EXEC; the transaction did nothing. Try again."""


# --- not stored


class NotStored(TidelogError):
    """The call changed nothing, neither in memory nor on disk. It may be repeated."""


class OutOfSpace(NotStored):
    """No room on the disk for this write. Reads go on; writes go on when there is room."""


class UnitTooLarge(NotStored):
    """The call's records would exceed the largest frame. Split it."""


# --- unknown


class OutcomeUnknown(TidelogError):
    """The call was under way when the store failed: after reopening its effects are there whole, or not at all."""


# --- the log goes on


class CheckpointFailed(TidelogError):
    """No checkpoint, or no snapshot, could be made. Nothing stored has changed, and the log is kept. Try again."""


# --- this object is of no more use


class StoreClosed(TidelogError):
    """The store was closed, or belongs to the process before a fork. Open the directory again."""


class StorePoisoned(TidelogError):
    """A sync of the log failed, so this open acknowledges nothing any more. Close it and open again."""


# --- cannot be opened


class CannotOpen(TidelogError):
    """The directory cannot be opened: no permission, no space, no directory. The text says which file and why."""


class StoreLocked(CannotOpen):
    """Another process (or another Store in this one) has the directory open for writing. `pid` is its process."""

    def __init__(self, text: str, pid: int | None) -> None:
        super().__init__(text)
        self.pid = pid


class NotAStore(CannotOpen):
    """The path is no store directory, and nothing was created there."""


class StoreDamaged(CannotOpen):
    """Recovery met something it may not decide: a damaged frame that was promised, a gap, a foreign file.

    The text names the file, the offset and the command that shows what a repair would lose.
    """


class NewerFormat(CannotOpen):
    """The store was written by a newer tidelog. Open it with that version or a later one."""


# Codes that redis-py turns into a class of their own; they leave the text. Every other code stays in it.
_CLASSES: dict[str, type[ResponseError]] = {
    "ERR": ResponseError,
    "EXECABORT": ExecAbortError,
    "READONLY": ReadOnlyError,
}


def from_command(error: CommandError) -> ResponseError:
    """The exception a caller sees for an error reply of the engine."""
    text = str(error)
    code, _, rest = text.partition(" ")
    if code in _CLASSES:
        return _CLASSES[code](rest, code)
    return ResponseError(text, code)
