"""The queues of a store, as its tools list them."""

from __future__ import annotations

from typing import Any

from tidelog.jobs.names import queue_names


def names_of(store: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = queue_names(store._core, store._db)[0]
    return found
