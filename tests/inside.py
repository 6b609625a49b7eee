"""The view of tests into a store, a queue or a face. A change of the core's shape touches this file alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.aof.log import Log
from tidelog.engine.keys.state import Database
from tidelog.engine.keys.waiting import Waiter, Waiting
from tidelog.store.commit.core import Core
from tidelog.store.commit.landing import Landing


def core(face: Any) -> Core:
    """The core that a store, an asyncio store or a queue works on."""
    found: Core = face._core
    return found


def log(face: Any) -> Log:
    return core(face).log


def landing(face: Any) -> Landing:
    return core(face).landing


def waiting(face: Any) -> Waiting:
    """The callers who are parked, by what they wait for."""
    return core(face).waiting


def waiters(face: Any) -> list[Waiter]:
    """The callers who are parked, in the order they came."""
    while True:
        try:
            return waiting(face).waiters()
        except RuntimeError:
            pass  # another thread parks one at this moment


def reloads(face: Any) -> int:
    """How often memory was rebuilt from the log."""
    return core(face).reloads


def lock(face: Any) -> Any:
    return core(face).lock


def databases(face: Any) -> Sequence[Database]:
    return core(face).state.databases


def checkpoints(face: Any) -> Any:
    """The object that makes the checkpoints of a store."""
    return core(face).checkpoints
