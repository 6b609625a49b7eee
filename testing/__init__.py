"""Helpers for testing programs that use tidelog: temporary stores and queues, and a clock that the test moves.

    from tidelog import testing

    clock = testing.Clock()
    with testing.store(clock=clock) as db:
        db.set("token", "abc", ex=60)
        clock.advance(61)
        assert db.get("token") is None

With `testing.inline(tasks)` each put of a task runs its function at once, and `testing.stepwise` lets a test do that.
`tidelog.testing.plugin` is a plugin of pytest with fixtures for a store, a clock, and crashes; this package itself does
not need pytest.
"""

# ruff: noqa: F822

from importlib import import_module

# A stand-in for `typing.TYPE_CHECKING`, as in tidelog/__init__.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tidelog.testing.clock import Clock
    from tidelog.testing.queues import aqueue, queue
    from tidelog.testing.steps import inline, stepwise
    from tidelog.testing.stores import astore, store

__all__ = ["Clock", "aqueue", "astore", "inline", "queue", "stepwise", "store"]

# Each name is imported on first access: pytest loads the plugin in every run, also of programs without a store.
_LATER = {
    "Clock": "tidelog.testing.clock",
    "aqueue": "tidelog.testing.queues",
    "queue": "tidelog.testing.queues",
    "astore": "tidelog.testing.stores",
    "inline": "tidelog.testing.steps",
    "stepwise": "tidelog.testing.steps",
    "store": "tidelog.testing.stores",
}


def __getattr__(name: str) -> "Any":
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_LATER[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
