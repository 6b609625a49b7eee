"""Chunks: each is one transaction of XADDs and of a SET that says how far its partition is written.

The rows of a chunk and its progress are stored together or not at all, since the server applies a transaction as a
whole. So the progress key says exactly which rows are stored, whatever became of the connection or of the task:

    tidelog:spark:JOB:PARTITION  ->  v1 BATCH ROWS LAST_ID RUN ATTEMPT

An attempt begins by writing its own name (RUN ATTEMPT) into the key. Before each chunk it watches the key (WATCH),
reads it, and checks that the key still has its own name. If another attempt begins meanwhile, it writes its name into
the key, and the server drops the transaction of the old attempt. The new attempt continues after the rows that are
stored, and the old one fails.

If the connection breaks before the answer, the attempt connects again and reads the key. There are three cases:

    the key says      the chunk is     so
    rows before it    not stored       it is sent again. If the lost transaction still arrives, WATCH has dropped it
    rows with it      stored           the attempt goes on
    another name      of no interest   the attempt fails

A write with `txnAppId` and `txnVersion` has one more key, which is set when all partitions are written:

    tidelog:spark-txn:APPLICATION  ->  v1 VERSION

Each transaction watches it, too. So of a version that is committed, no attempt writes anything, and the keys of its
partitions can go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import TimeoutError as LinkTimeout

from tidelog.engine import ids
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing.link import Link, raised
from tidelog.spark.source.writing.options import WriteOptions
from tidelog.spark.source.writing.rows import Row

T = TypeVar("T")

PREFIX: Final = "tidelog:spark"
TXN_PREFIX: Final = "tidelog:spark-txn"
VERSION: Final = "v1"
# Nothing continues an unnamed batch write after its job. Its progress keys expire this time after the last chunk, and
# sooner once the job has ended. They are not deleted then: a late attempt would begin with the first row.
UNNAMED_EXPIRES_MS: Final = 7 * 24 * 3600 * 1000
ENDED_EXPIRES_MS: Final = 3600 * 1000
PAUSE_S: Final = 0.05  # pause before the second reconnection in a step; doubled for each later one
PAUSE_S_MAX: Final = 1.0
# how often other clients may change a stream between the read of its last ID and the transaction
CONFLICTS_MAX: Final = 1000
STREAMS_KNOWN_MAX: Final = 100_000


class Progress(NamedTuple):
    """The content of a progress key.

    batch     number of the micro-batch; 0 in a batch write
    rows      how many rows of the partition are stored
    last_id   with an ID column: the ID of the last one; else 0
    run, attempt   the task that wrote this. Later attempts of the same run have greater numbers
    failure   why a part of a chunk was refused; empty if nothing was
    """

    batch: int
    rows: int
    last_id: int
    run: str
    attempt: int
    failure: str = ""

    def text(self) -> bytes:
        last = ids.text(self.last_id).decode()
        words = (VERSION, self.batch, self.rows, last, self.run, self.attempt, self.failure)
        return " ".join(map(str, words)).strip().encode()


def progress_of(text: bytes, key: str) -> Progress:
    """Read a progress key. Raises TidelogSparkError TIDELOG_WRITE_PROGRESS."""
    words = text.decode(errors="replace").split(" ", 6)
    try:
        version, batch, rows, last, run, attempt, *failure = words
        if version != VERSION:
            raise ValueError
        last_id = ids.parse(last.encode())
        return Progress(int(batch), int(rows), last_id, run, int(attempt), *failure)
    except Exception:
        raise _strange(text, key) from None


def progress_key(job: str, partition: int) -> str:
    return f"{PREFIX}:{job}:{partition}"


def txn_key(app: str) -> str:
    return f"{TXN_PREFIX}:{app}"


def txn_version(text: bytes | None, key: str) -> int:
    """Read the key of an application; -1 if there is none. Raises TidelogSparkError TIDELOG_WRITE_PROGRESS."""
    if text is None:
        return -1
    version, _, number = text.partition(b" ")
    if version != VERSION.encode() or not number.isdigit():
        raise _strange(text, key)
    return int(number)


def _strange(text: bytes, key: str) -> TidelogSparkError:
    return TidelogSparkError(
        "TIDELOG_WRITE_PROGRESS",
        f"key {key} has the value {text[:80]!r}, which this version of tidelog does not write. "
        "Delete the key if no write needs it",
    )


class Attempt:
    """One attempt of a task at writing its partition. Call `begin`, then `store` for each chunk, then `close`."""

    def __init__(
        self, options: WriteOptions, job: str, partition: int, own: Progress, *, expires: bool
    ) -> None:
        """
        Args:
            own: Batch, run and attempt of this attempt, with no rows.
            expires: Whether the progress key expires, because nobody needs it after the job.
        """
        self.key = progress_key(job, partition)
        self.progress = own
        self._link = Link(options)
        self._place = options.place
        self._retry_s = options.retry_s
        self._expires = (b"PX", b"%d" % UNNAMED_EXPIRES_MS) if expires else ()
        self._txn_key = None if options.txn is None else txn_key(options.txn[0])
        self.committed = (
            False  # the version of the application is there already: nothing is written
        )
        self._streams: set[bytes] = set()  # keys that are known to be streams or not to exist
        self._failure = ""  # why a part of the last chunk was refused

    def begin(self) -> Progress:
        """Make this the attempt that writes, and return how far an earlier one has come.

        Raises:
            TidelogSparkError: TIDELOG_WRITE_SUPERSEDED: a later attempt or batch has begun. TIDELOG_WRITE_PARTIAL: an
                earlier one has failed, and no retry can help. TIDELOG_WRITE_SERVER: the server refuses or does not
                answer.
        """
        return self._insist(self._begin)

    def store(self, rows: Sequence[Row], last_id: int = 0) -> None:
        """Store the next rows. `last_id`: of the last one, with an ID column.

        Raises:
            TidelogSparkError: As `begin`, and TIDELOG_WRITE_TYPE, TIDELOG_WRITE_ID.
        """
        progress = self.progress
        after = progress._replace(rows=progress.rows + len(rows), last_id=last_id)
        self._insist(lambda: self._store(rows, after, with_ids=bool(last_id)))
        self.progress = after

    def commit(self) -> None:
        """Say that all partitions of the application's version are written. Raises as `begin`."""
        assert self._txn_key is not None
        self._insist(self._commit)

    def close(self) -> None:
        self._link.close()

    def _commit(self) -> bool | None:
        self._watch(())
        if self.committed:
            return True
        text = f"{VERSION} {self.progress.batch}"
        replies = self._link.transaction([], "SET", str(self._txn_key), text)
        return None if replies is None else bool(raised(replies[0]))

    def _begin(self) -> Progress | None:
        found = self._watch(())
        own = self.progress
        if self.committed:
            return own
        if found is not None:
            if found.batch > own.batch:
                raise self._superseded(
                    f"batch {found.batch} has begun, and this attempt is of batch {own.batch}"
                )
            if found.batch == own.batch:
                if found.failure:
                    raise self._partial(found.failure)
                if found.run == own.run and found.attempt > own.attempt:
                    raise self._superseded(
                        f"attempt {found.attempt} has begun, and this is attempt {own.attempt}"
                    )
                own = own._replace(rows=found.rows, last_id=found.last_id)
        if self._execute([], own) is None:
            return None
        self.progress = own
        return own

    def _store(self, rows: Sequence[Row], after: Progress, *, with_ids: bool) -> bool | None:
        if self._failure:  # the last call ended before it stored the failure in the key
            self._give_up(after)
        found = self._watch({row.stream for row in rows} if with_ids else ())
        if self.committed:
            raise self._superseded(f"version {after.batch} of {self._txn_key} was committed")
        if found == after:
            return True  # the chunk is stored; only the answer to its transaction was lost
        if found != self.progress:
            name = (
                f"now names attempt {found.attempt} of run {found.run}" if found else "was deleted"
            )
            raise self._superseded(f"the key {name}")
        self._check_types({row.stream for row in rows} - self._streams)
        new = self._not_there_yet(rows) if with_ids else rows
        replies = self._execute([row.command for row in new], after)
        if replies is None:
            return None
        refused = [reply for reply in replies if isinstance(reply, RedisError)]
        if refused:
            self._failure = f"{len(refused)} of {len(new)} rows were refused: {refused[0]}"
            self._give_up(after)
        return True

    def _give_up(self, after: Progress) -> NoReturn:
        """Stop this attempt and all later ones: the other rows of the chunk are stored, and the server keeps them."""
        text = after._replace(failure=self._failure).text()
        self._link.call("SET", self.key, text, *self._expires)
        raise self._partial(self._failure)

    def _check_types(self, new: set[bytes]) -> None:
        """Check that the new keys are streams or missing.

        If the server refuses one row of a transaction, it still stores the others. So exclude the usual cause first.
        """
        for stream, kind in zip(
            new, self._link.calls([("TYPE", stream) for stream in new]), strict=True
        ):
            if kind not in (b"stream", b"none"):
                raise TidelogSparkError(
                    "TIDELOG_WRITE_TYPE",
                    f"{self._place}: key {_shown(stream)} is a {raised(kind).decode()}, not a stream; nothing of this "
                    "chunk was written",
                )
        if len(self._streams) > STREAMS_KNOWN_MAX:
            self._streams.clear()
        self._streams |= new

    def _not_there_yet(self, rows: Sequence[Row]) -> list[Row]:
        """The rows whose entries do not exist. Their IDs must be above all others of their streams."""
        streams = list({row.stream for row in rows})
        infos = self._link.calls([("XINFO", "STREAM", stream) for stream in streams])
        last = {stream: _last_id(info) for stream, info in zip(streams, infos, strict=True)}
        old = [row for row in rows if row.id is not None and row.id <= last[row.stream]]
        texts = [ids.text(row.id or 0) for row in old]
        ranges = [("XRANGE", row.stream, text, text) for row, text in zip(old, texts, strict=True)]
        for row, text, entries in zip(old, texts, self._link.calls(ranges), strict=True):
            if not raised(entries):
                raise TidelogSparkError(
                    "TIDELOG_WRITE_ID",
                    f"{self._place}: stream {_shown(row.stream)} has no entry {text.decode()} and cannot get one, "
                    f"because its last ID is {ids.text(last[row.stream]).decode()}; with an ID column, let only one "
                    "writer add to a stream, from one partition and in the order of the IDs",
                )
        there = {(row.stream, row.id) for row in old}
        return [row for row in rows if (row.stream, row.id) not in there]

    # --- the connection

    def _insist(self, step: Callable[[], T | None]) -> T:
        """Repeat a step until it has an outcome, over new connections if the old one breaks.

        A step can be repeated at any time, because it first reads what is stored. It returns None, and is repeated, if
        a watched key was changed.
        """
        broken = conflicts = 0
        deadline = 0.0
        while True:
            try:
                outcome = step()
            except (AuthenticationError, ResponseError) as error:
                raise self._failed(error) from None
            except (LinkError, LinkTimeout) as error:
                self._link.close()
                broken += 1
                if broken == 1:  # usually the first new connection works
                    deadline = time.monotonic() + self._retry_s
                elif time.monotonic() >= deadline:
                    raise self._failed(error) from None
                else:
                    time.sleep(min(PAUSE_S * 2 ** (broken - 2), PAUSE_S_MAX))
                continue
            if outcome is not None:
                return outcome
            conflicts += 1
            if conflicts == CONFLICTS_MAX:
                raise self._superseded("other clients keep changing the same streams")

    def _watch(self, streams: Iterable[bytes]) -> Progress | None:
        more = () if self._txn_key is None else (self._txn_key,)
        gets = [("GET", key) for key in (self.key, *more)]
        watched, text, *txn = self._link.calls([("WATCH", self.key, *more, *streams), *gets])
        raised(watched)
        if self._txn_key is not None:
            version = txn_version(raised(txn[0]), self._txn_key)
            self.committed = version >= self.progress.batch
        return None if raised(text) is None else progress_of(text, self.key)

    def _execute(self, commands: list[bytes], after: Progress) -> list[Any] | None:
        """The replies of a transaction; None if a watched key was changed. Raises RedisError if it is refused."""
        return self._link.transaction(commands, "SET", self.key, after.text(), *self._expires)

    # --- errors

    def _superseded(self, why: str) -> TidelogSparkError:
        return TidelogSparkError(
            "TIDELOG_WRITE_SUPERSEDED",
            f"{self._place}, key {self.key}: this attempt writes nothing more, since {why}",
        )

    def _partial(self, failure: str) -> TidelogSparkError:
        return TidelogSparkError(
            "TIDELOG_WRITE_PARTIAL",
            f"{self._place}, key {self.key}: {failure}; the other rows of the chunk are stored, so no later attempt "
            "writes either. Remove the cause, then delete the key to write the partition again from its first row",
        )

    def _failed(self, error: Exception) -> TidelogSparkError:
        return TidelogSparkError(
            "TIDELOG_WRITE_SERVER",
            f"{self._place}: {type(error).__name__}: {error}; at least {self.progress.rows} rows of this partition are "
            "stored, and another attempt continues after them",
        )


def _last_id(info: Any) -> int:
    if isinstance(info, ResponseError) and "no such key" in str(info):
        return 0
    pairs = raised(info)
    return ids.parse(dict(zip(pairs[::2], pairs[1::2], strict=True))[b"last-generated-id"])


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))
