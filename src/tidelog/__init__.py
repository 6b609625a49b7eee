"""tidelog: Redis Streams as a durable engine.

    import tidelog

    with tidelog.open("orders") as db:
        db.xgroup_create("orders", "billing", id="0", mkstream=True)
        db.xadd("orders", {"item": "tea", "count": 2})
        for key, entries in db.xreadgroup("billing", "worker-1", {"orders": ">"}, count=10, block=1000):
            for id, fields in entries:
                db.xack(key, "billing", id)

Methods, parameters and replies are those of redis-py. `aopen` is the same for asyncio.
"""

from typing import TYPE_CHECKING, Any

from tidelog.store.errors import (
    CannotOpen,
    DataError,
    ExecAbortError,
    NewerFormat,
    NotAStore,
    NotStored,
    OutcomeUnknown,
    OutOfSpace,
    ReadOnlyError,
    ResponseError,
    StoreClosed,
    StoreDamaged,
    StoreLocked,
    StorePoisoned,
    TidelogError,
    UnitTooLarge,
    WatchError,
)
from tidelog.store.idrange import IdRange
from tidelog.store.opening import open_store as open
from tidelog.store.receipts import Receipt
from tidelog.store.sync import Store

if TYPE_CHECKING:
    from tidelog.store.aio import AsyncStore
    from tidelog.store.aio import aopen_store as aopen

__version__ = "0.1"

__all__ = [
    "AsyncStore",
    "CannotOpen",
    "DataError",
    "ExecAbortError",
    "IdRange",
    "NewerFormat",
    "NotAStore",
    "NotStored",
    "OutOfSpace",
    "OutcomeUnknown",
    "ReadOnlyError",
    "Receipt",
    "ResponseError",
    "Store",
    "StoreClosed",
    "StoreDamaged",
    "StoreLocked",
    "StorePoisoned",
    "TidelogError",
    "UnitTooLarge",
    "WatchError",
    "aopen",
    "open",
]


def __getattr__(name: str) -> Any:
    # Not with the rest: asyncio would be a third of the import, and most programs do without.
    if name in ("AsyncStore", "aopen"):
        from tidelog.store import aio

        globals().update(AsyncStore=aio.AsyncStore, aopen=aio.aopen_store)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
