"""Missing: what a store or a pipeline says of a method that it has not."""

from __future__ import annotations

from typing import TYPE_CHECKING

# What has another name here, or another way.
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
    """An AttributeError that says what to do. Python asks here only for what it found nowhere else."""

    # Hidden from type checkers, for which any name would be right otherwise.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # Of the object nothing is asked: it may not be initialised yet, as when it is copied.
            kind = type(self).__name__
            if name.startswith("_"):
                text = f"{kind!r} object has no attribute {name!r}"
            else:
                advice = INSTEAD.get(name, _OTHERWISE)
                text = f"tidelog's {kind} has no {name!r}: {advice}"
            raise AttributeError(text, name=name, obj=self)
