"""Missing: the error for a method that a store or a pipeline does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

# Methods of redis-py that have another name, or another way, here.
INSTEAD = {
    "bgrewriteaof": "call checkpoint()",
    "bgsave": "call snapshot()",
    "save": "call snapshot()",
    "pubsub": "serve the store (tidelog.serve) for it",
    "publish": "serve the store (tidelog.serve) for it",
    "subscribe": "serve the store (tidelog.serve) for it",
    "psubscribe": "serve the store (tidelog.serve) for it",
    "monitor": "serve the store (tidelog.serve) for it",
    "lpush": "use a queue (db.queue) or a stream",
    "rpush": "use a queue (db.queue) or a stream",
    "blpop": "use a queue (db.queue) or a stream",
    "brpop": "use a queue (db.queue) or a stream",
    "select": "use db.db(number)",
    "from_url": "use tidelog.open(path)",
}
_OTHERWISE = (
    "see docs/guides/embedded.md for those that there are, and execute_command() for other forms"
)


class Missing:
    """Makes the AttributeError say what to use instead. Python calls this only for attributes it finds nowhere else."""

    # Hidden from type checkers, which would otherwise accept any name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # Use only the type: the object may not be initialised yet, for example while it is copied.
            kind = type(self).__name__
            if name.startswith("_"):
                text = f"{kind!r} object has no attribute {name!r}"
            else:
                advice = INSTEAD.get(name, _OTHERWISE)
                text = f"tidelog's {kind} has no {name!r}: {advice}"
            raise AttributeError(text, name=name, obj=self)
