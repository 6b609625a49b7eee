"""A verb of a queue: one request, its decision, and its words and reply on the wire, both ways.

A verb is a dataclass of what its caller asks for, which nobody changes. Each is used in three places:

    embedded       decide(engine)                                         the result
    QUEUE          parse(words, own) -> decide or decision -> reply       a reply of the server
    shared         words() -> the server -> result(reply)                 the result again
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Self

from tidelog.engine import ids
from tidelog.engine.api import Context
from tidelog.engine.reply import Reply
from tidelog.jobs.engine import InDatabase, QueueEngine
from tidelog.jobs.options import job_number
from tidelog.jobs.own import Own, job_id
from tidelog.store.commit.core import Answer

LOOKS: Final = "readonly noscript no_multi"
WORKS: Final = "write noscript no_multi"
PUTS: Final = "write denyoom noscript no_multi"
ANY_TIME: Final = "loading stale"
# Capabilities of servers from version 0.2 on.
DEDUP: Final = b"dedup"
PAUSE: Final = b"pause"
JOB: Final = b"job"
FIND: Final = b"find"
WORKERS: Final = b"workers"
RETRY: Final = b"retry"
REMOVE: Final = b"remove"
CANCEL: Final = b"cancel"
PROGRESS: Final = b"progress"
LIMIT: Final = b"limit"
RELEASE: Final = b"release"
HANGS: Final = b"hangs"


# The commands of a change, and its result
Plan = Callable[[Context], tuple[list[list[bytes]], Any]]


class Safe(enum.Enum):
    """Whether a client may repeat a call when its connection broke; see client/link.py.

    READ      always: a second time does no harm
    ONCE      with the option ONCE, which makes it happen once
    FENCED    the delivery that it names fences it. Only a reply of 0 may be that of the second time
    NEVER     not at all
    """

    READ = enum.auto()
    ONCE = enum.auto()
    FENCED = enum.auto()
    NEVER = enum.auto()


class Facts(NamedTuple):
    """A verb in the tables of commands.

    arity, flags    as in COMMAND; the name of the command, QUEUE, counts
    use             how it uses the queue's key: flags of a key specification of Redis 7.0
    since           the first version that knows it
    summary         what it does, in COMMAND DOCS
    usage           its lines in QUEUE HELP: its words, and under them, indented there, what it does
    """

    arity: int
    flags: str
    use: str
    since: str
    summary: str
    usage: tuple[str, ...]

    @property
    def keys(self) -> tuple[int, int, int]:
        """First key, last key, step."""
        return (2, 2, 1) if self.use else (0, 0, 0)


class Verb:
    """A request to a queue.

    name       of the subcommand of QUEUE
    facts      for the tables
    of_group   whether it takes the options of the queue, as all do that are about one group
    places     how many words it has behind the name of the queue, before the options; all if it takes none
    options    its options, each with the number of words behind it
    safe       whether a client may repeat it
    more_words  a capability, and the option that a client says to servers which have it
    """

    __slots__ = ()

    name: ClassVar[bytes]
    facts: ClassVar[Facts]
    of_group: ClassVar[bool] = True
    places: ClassVar[int] = 0
    options: ClassVar[Mapping[bytes, int]] = {}
    safe: ClassVar[Safe] = Safe.READ
    more_words: ClassVar[tuple[bytes, bytes] | None] = None

    @property
    def needs(self) -> bytes | None:
        """The capabilities without which a server does not know the request, as words; None: version 0.1 knows it."""
        return None

    @classmethod
    def command(cls) -> str:
        """Its full name as a command, in lower case."""
        return f"queue|{cls.name.decode().lower()}"

    @classmethod
    def placed(cls, words: list[bytes]) -> int:
        """How many of the words behind the name of the queue are in its places. Raises CommandError."""
        return cls.places if cls.of_group else len(words)

    def words(self) -> list[bytes]:
        """Its words behind the name of the queue, without the options of the queue."""
        return []

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """The request from the words in its places and its options. Raises CommandError."""
        return cls()

    def decide(self, engine: QueueEngine) -> Answer:
        """(Result, promise). Raises the errors of the store."""
        raise NotImplementedError

    def reply(self, result: Any) -> Reply:
        """The result as a reply of the server. A float becomes a double."""
        reply: Reply = result
        return reply

    def result(self, reply: Any) -> Any:
        """The result from a reply of the server."""
        return reply


def all_needs(*some: bytes | None) -> bytes | None:
    """The needs of several requests, or of a request and the options of its queue."""
    return b" ".join(filter(None, some)) or None


class OfDatabase(Verb):
    """A request about a database, not about one queue.

    places     how many words it has before the options
    reads      whether a user sees of what it lists only that of queues which the user may read; otherwise, that of
               queues which the user may know of
    """

    __slots__ = ()

    of_group = False
    reads: ClassVar[bool] = False

    @classmethod
    def queue_of(cls, found: Any) -> str:
        """The queue of one thing that it lists."""
        raise NotImplementedError

    @classmethod
    def chosen(cls, words: list[bytes]) -> type[OfDatabase]:
        """The class of the request that the words behind its name are. Raises CommandError."""
        return cls

    @classmethod
    def puts(cls, words: list[bytes]) -> list[bytes]:
        """The streams to which a user must have the right to put, by these words."""
        return []

    def plan(self, engine: InDatabase) -> Plan:
        """The plan of a change, to be called under the store's lock. Raises DataError."""
        raise NotImplementedError

    def decide(self, engine: InDatabase) -> Answer:
        """See `Verb`."""
        return engine.planned(self.plan(engine))


@dataclass(frozen=True, slots=True)
class OneJob(Verb):
    """A request about one job, by the ID that `put` returned."""

    places = 1

    job: int

    @classmethod
    def of(cls, job: str) -> Self:
        """The request of a caller who names a job. Raises DataError."""
        return cls(job_number(job))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [ids.text(self.job)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(job_id(words[0]))


class Change(Verb):
    """A request that logs its own effects in one unit. A client repeats it with ONCE. Its result is a number."""

    __slots__ = ()

    safe = Safe.ONCE

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """The function that changes the queue, to be called under the store's lock. Raises DataError."""
        raise NotImplementedError

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        return engine.decided(self.decision(engine))


class Question(Verb):
    """A request whose decision may have to wait."""

    __slots__ = ()

    def question(self, engine: QueueEngine, timeout_ms: int | None) -> Callable[[Context], Reply]:
        """The decision for a caller, who asks again when it wakes. 0 = wait for ever, None = not at all."""
        raise NotImplementedError
