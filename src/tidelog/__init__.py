"""tidelog: a durable job queue, and Redis Streams, in a directory.

    import tidelog

A durable queue in one directory, without a server:

    with tidelog.queue("mail-data", "mails") as mails:
        mails.put({"to": "ann@example.org"})
        for job in mails.consume(block=0):
            with job:                               # acknowledges at the end; retries if it raises
                print(job.value)

Streams and consumer groups, with the methods, parameters and replies of redis-py:

    with tidelog.open("orders") as db:
        db.xgroup_create("orders", "billing", id="0", mkstream=True)
        db.xadd("orders", {"item": "tea", "count": 2})
        for key, entries in db.xreadgroup("billing", "worker-1", {"orders": ">"}, count=10, block=1000):
            for id, fields in entries:
                db.xack(key, "billing", id)

`aqueue` and `aopen` are the asyncio versions.
"""

# ruff: noqa: F403, F405

from importlib import import_module

# A stand-in for `typing.TYPE_CHECKING`: importing typing would be half of this module's import time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tidelog.api.aio import AsyncStore
    from tidelog.api.aopening import aopen_store as aopen
    from tidelog.api.idrange import IdRange
    from tidelog.api.opening import open_store as open
    from tidelog.api.queue.ahandle import AsyncHandle
    from tidelog.api.queue.aio import AsyncQueue
    from tidelog.api.queue.ajob import AsyncJob
    from tidelog.api.queue.face import Queue
    from tidelog.api.queue.handle import Handle
    from tidelog.api.queue.job import Job
    from tidelog.api.queue.running.middleware import AsyncMiddleware, AsyncNext, Middleware, Next
    from tidelog.api.receipts import Receipt
    from tidelog.api.sync import Store
    from tidelog.client.aio import AsyncSharedStore
    from tidelog.client.aopening import aconnect
    from tidelog.client.aopening import aopen_queue as aqueue
    from tidelog.client.aqueue import AsyncSharedJob, AsyncSharedQueue
    from tidelog.client.job import SharedJob
    from tidelog.client.opening import connect
    from tidelog.client.opening import open_queue as queue
    from tidelog.client.queue import SharedQueue
    from tidelog.client.store import SharedStore
    from tidelog.functions.task import Task
    from tidelog.functions.tasks import Tasks
    from tidelog.functions.tasks import make_tasks as tasks
    from tidelog.jobs.retries import GiveUp, RetryJob, RetryPolicy
    from tidelog.jobs.time_limits import ProcessDied, TimeLimitExceeded, WorkersHang
    from tidelog.replication.embedded import afollow, follow
    from tidelog.server.serving import Serving, serve
    from tidelog.snapshot.portable import Snapshot
    from tidelog.snapshot.scrub import Finding
    from tidelog.store.errors import *
    from tidelog.store.role import Role
    from tidelog.store.version import __version__ as __version__

__all__ = [
    "AsyncHandle",
    "AsyncJob",
    "AsyncMiddleware",
    "AsyncNext",
    "AsyncQueue",
    "AsyncSharedJob",
    "AsyncSharedQueue",
    "AsyncSharedStore",
    "AsyncStore",
    "CalledTwice",
    "CannotOpen",
    "CheckpointFailed",
    "DataError",
    "DecodeError",
    "EncodeError",
    "ExecAbortError",
    "Finding",
    "GiveUp",
    "Handle",
    "IdRange",
    "Job",
    "JobFailed",
    "Middleware",
    "NewerFormat",
    "Next",
    "NoResult",
    "NotAStore",
    "NotReplicated",
    "NotStored",
    "OfParent",
    "OutOfSpace",
    "PayloadTooLarge",
    "OutcomeUnknown",
    "ProcessDied",
    "Queue",
    "QueueFull",
    "ReadOnlyError",
    "Receipt",
    "ResponseError",
    "ResultLate",
    "RetryJob",
    "RetryPolicy",
    "Role",
    "Serving",
    "SharedJob",
    "SharedQueue",
    "SharedStore",
    "Snapshot",
    "Store",
    "StoreClosed",
    "StoreDamaged",
    "StoreFull",
    "StoreLocked",
    "StorePoisoned",
    "Task",
    "Tasks",
    "TidelogError",
    "TimeLimitExceeded",
    "TokenLate",
    "TokenLost",
    "UnitTooLarge",
    "Unreachable",
    "Unsupported",
    "WatchError",
    "WorkersHang",
    "aconnect",
    "afollow",
    "aopen",
    "aqueue",
    "connect",
    "follow",
    "open",
    "queue",
    "serve",
    "tasks",
]


# Each name is imported on first access. Most programs need neither asyncio nor queues, and the command line must
# handle Ctrl-C before it imports the rest. The names of `__all__` that are not in this table are errors.
_LATER = {
    "open": ("tidelog.api.opening", "open_store"),
    "Store": ("tidelog.api.sync", "Store"),
    "IdRange": ("tidelog.api.idrange", "IdRange"),
    "Receipt": ("tidelog.api.receipts", "Receipt"),
    "Role": ("tidelog.store.role", "Role"),
    "AsyncStore": ("tidelog.api.aio", "AsyncStore"),
    "aopen": ("tidelog.api.aopening", "aopen_store"),
    "AsyncQueue": ("tidelog.api.queue.aio", "AsyncQueue"),
    "Queue": ("tidelog.api.queue.face", "Queue"),
    "AsyncHandle": ("tidelog.api.queue.ahandle", "AsyncHandle"),
    "Handle": ("tidelog.api.queue.handle", "Handle"),
    "AsyncJob": ("tidelog.api.queue.ajob", "AsyncJob"),
    "Job": ("tidelog.api.queue.job", "Job"),
    "AsyncMiddleware": ("tidelog.api.queue.running.middleware", "AsyncMiddleware"),
    "AsyncNext": ("tidelog.api.queue.running.middleware", "AsyncNext"),
    "Middleware": ("tidelog.api.queue.running.middleware", "Middleware"),
    "Next": ("tidelog.api.queue.running.middleware", "Next"),
    "aqueue": ("tidelog.client.aopening", "aopen_queue"),
    "aconnect": ("tidelog.client.aopening", "aconnect"),
    "AsyncSharedJob": ("tidelog.client.aqueue", "AsyncSharedJob"),
    "AsyncSharedQueue": ("tidelog.client.aqueue", "AsyncSharedQueue"),
    "AsyncSharedStore": ("tidelog.client.aio", "AsyncSharedStore"),
    "queue": ("tidelog.client.opening", "open_queue"),
    "connect": ("tidelog.client.opening", "connect"),
    "SharedJob": ("tidelog.client.job", "SharedJob"),
    "SharedQueue": ("tidelog.client.queue", "SharedQueue"),
    "SharedStore": ("tidelog.client.store", "SharedStore"),
    "Snapshot": ("tidelog.snapshot.portable", "Snapshot"),
    "Finding": ("tidelog.snapshot.scrub", "Finding"),
    "afollow": ("tidelog.replication.embedded", "afollow"),
    "follow": ("tidelog.replication.embedded", "follow"),
    "GiveUp": ("tidelog.jobs.retries", "GiveUp"),
    "RetryJob": ("tidelog.jobs.retries", "RetryJob"),
    "RetryPolicy": ("tidelog.jobs.retries", "RetryPolicy"),
    "Task": ("tidelog.functions.task", "Task"),
    "Tasks": ("tidelog.functions.tasks", "Tasks"),
    "tasks": ("tidelog.functions.tasks", "make_tasks"),
    "ProcessDied": ("tidelog.jobs.time_limits", "ProcessDied"),
    "TimeLimitExceeded": ("tidelog.jobs.time_limits", "TimeLimitExceeded"),
    "WorkersHang": ("tidelog.jobs.time_limits", "WorkersHang"),
    "Serving": ("tidelog.server.serving", "Serving"),
    "serve": ("tidelog.server.serving", "serve"),
    "__version__": ("tidelog.store.version", "__version__"),
}


def __getattr__(name: str) -> "Any":
    if name in __all__ or name in _LATER:
        module, there = _LATER.get(name, ("tidelog.store.errors", name))
        found = globals()[name] = getattr(import_module(module), there)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
