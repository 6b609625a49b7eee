"""Errors of the store. Every error that `tidelog` raises on purpose is a `TidelogError`.

Grouped by what the caller can do about them:

    the call was refused, nothing changed      ResponseError and its subclasses, DataError, WatchError
    a job has no result (yet)                  JobFailed, NoResult, ResultLate
    the call was not stored, try again         NotStored, OutOfSpace, StoreFull, UnitTooLarge
    the outcome of the call is unknown         OutcomeUnknown
    the call was stored here only              NotReplicated
    a token's record is not here               TokenLate, TokenLost
    no checkpoint now, nothing is lost         CheckpointFailed
    this store object cannot be used any more  StoreClosed, StorePoisoned
    no server answers, nothing changed         Unreachable
    the directory cannot be opened             CannotOpen: StoreLocked, StoreDamaged, NewerFormat, NotAStore
"""

from __future__ import annotations

from typing import Final

from tidelog.engine.errors import CommandError


class TidelogError(Exception):
    """Base of every error of this package."""


# --- refused; nothing changed


class DataError(TidelogError):
    """The arguments are invalid. Raised before the store is asked, so nothing changed."""


class EncodeError(DataError):
    """A queue's codec cannot encode a value. `put_many` has put the values before it.

    Attributes:
        stored: How many those are.
    """

    stored = 0


class QueueFull(TidelogError):
    """A bounded queue stayed full until the caller's timeout. `put` has put nothing, `put_many` the first values.

    Attributes:
        stored: How many those are.
    """

    stored = 0


class JobFailed(TidelogError):
    """The job whose result a caller asked for became a dead job.

    Attributes:
        job_id: The ID that `put` returned.
        reason: Why it was given up.
        dead_id: Its ID among the dead jobs, for `Queue.dead`.
    """

    def __init__(self, job_id: str, reason: str, dead_id: str) -> None:
        super().__init__(f"job {job_id} failed: {reason}")
        self.job_id, self.reason, self.dead_id = job_id, reason, dead_id


class NoResult(TidelogError):
    """The job whose result a caller asked for has ended without a result, or its result has expired."""


class ResultLate(TidelogError, TimeoutError):
    """The job whose result a caller asked for did not end in time. It still may."""


class CalledTwice(TidelogError):
    """A middleware called `next` a second time for one job. The handler was called once."""


class DecodeError(TidelogError):
    """A queue's codec cannot decode a value. Workers never see this error: the job becomes a dead job."""


class ResponseError(TidelogError):
    """The command was refused with Redis's error text; nothing changed.

    `str()` is the text without a leading `ERR `, as in redis-py.

    Attributes:
        code: The first word that Redis sends: `ERR`, `WRONGTYPE`, `NOGROUP`, `BUSYGROUP` and so on.
    """

    def __init__(self, text: str, code: str = "ERR") -> None:
        super().__init__(text)
        self.code = code


class ReadOnlyError(ResponseError):
    """A write was attempted on a store opened with `read_only=True`."""


class ExecAbortError(ResponseError):
    """A transaction was discarded because a command could not be queued."""


class WatchError(TidelogError):
    """A watched key changed between WATCH and EXEC, so the transaction did nothing. Try again."""


# --- not stored


class NotStored(TidelogError):
    """The call changed nothing, in memory or on disk. The caller may repeat it."""


class OutOfSpace(NotStored):
    """The disk has no room for this write. Reads still work; writes work again once there is room."""


FULL: Final = "the store is full: "  # begins the text of StoreFull


class StoreFull(OutOfSpace):
    """The store is at its quota (`maxdisk`), and the call would only add data.

    Reads, takes, acks, deletes and trims still work. Calls that add data work again once there is room, or with a
    larger quota.
    """


class UnitTooLarge(NotStored):
    """The call's records would exceed the largest frame. Split the call."""


class PayloadTooLarge(UnitTooLarge, EncodeError):
    """A job's value or result is larger than a queue takes. Raised before the store is asked.

    `put_many` has put the values before it; `stored` is their number.
    """


# --- unknown


class OutcomeUnknown(TidelogError):
    """The store failed while the call was under way. After reopening, all of its effects are there or none."""


# --- stored here


class NotReplicated(TidelogError):
    """Too few followers have confirmed the call in time. It is stored here, and other calls may see it.

    A read is not confirmed either: what it would have shown may be lost if a follower is promoted now.

    Attributes:
        confirmed: How many followers have confirmed it.
        wanted: How many were asked for.
    """

    def __init__(self, confirmed: int, wanted: int) -> None:
        super().__init__(f"NOREPLICAS stored here, confirmed by {confirmed} of {wanted} followers")
        self.confirmed, self.wanted = confirmed, wanted


# --- tokens


class TokenLate(TidelogError):
    """The record that a token names was not applied here in time. It may still come."""


class TokenLost(TidelogError):
    """The record that a token names was given up: this store's history goes on without it, and it will not come."""


# --- the log stays usable


class CheckpointFailed(TidelogError):
    """A checkpoint or snapshot could not be made. Nothing stored has changed, and the log is kept. Try again."""


# --- this object cannot be used any more


class StoreClosed(TidelogError):
    """The store was closed, or was opened before a fork and belongs to the parent. Open the directory again."""


class StorePoisoned(TidelogError):
    """A sync of the log failed, so this store acknowledges nothing any more. Close it and open it again."""


# --- a shared store


class Unreachable(TidelogError):
    """No server of the shared store answered in time. The call changed nothing, or could not have changed anything."""


class Unsupported(TidelogError):
    """The server of the shared store is of an earlier version, which cannot do this. Nothing changed."""


# --- cannot be opened


class CannotOpen(TidelogError):
    """The directory cannot be opened: no permission, no space, no directory. The text says which file and why."""


class StoreLocked(CannotOpen):
    """Another process, or another store in this one, has the directory open for writing.

    Attributes:
        pid: ID of that process; None if it is not known.
    """

    def __init__(self, text: str, pid: int | None) -> None:
        super().__init__(text)
        self.pid = pid


class OfParent(StoreLocked):
    """A process of `run(isolate="process")` opens the store that the process of the run has open.

    Its handler reaches it by `job.store`. A program that opens a store when it is imported does so under
    `if __name__ == "__main__":` instead.
    """


class NotAStore(CannotOpen):
    """The path is not a store directory. Nothing was created there."""


class StoreDamaged(CannotOpen):
    """Recovery found damage that it must not repair by itself.

    A frame that may have been acknowledged is damaged, something is missing, or a file belongs to another store. The
    text names the file, the offset and the command that shows what a repair would lose.
    """


class NewerFormat(CannotOpen):
    """The store was written by a newer tidelog. Open it with that version or a later one."""


# redis-py has a class for each of these codes, and drops the code from the error text. It keeps any other code in the
# text.
_CLASSES: dict[str, type[ResponseError]] = {
    "ERR": ResponseError,
    "EXECABORT": ExecAbortError,
    "READONLY": ReadOnlyError,
}


def from_command(error: CommandError) -> ResponseError:
    """The exception that a caller gets for an error reply of the engine."""
    text = str(error)
    code, _, rest = text.partition(" ")
    if code in _CLASSES:
        return _CLASSES[code](rest, code)
    return ResponseError(text, code)
