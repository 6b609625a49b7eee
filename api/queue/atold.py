"""The result of an answer, for asyncio: what a queue, its dead jobs and its schedules wait for."""

from __future__ import annotations

from typing import Any

from tidelog.api.face import Face
from tidelog.store.commit.core import Answer


async def told(face: Face, answer: Answer) -> Any:
    """The result of an answer, once its promise holds."""
    found, promise = answer
    await face._hold(promise)
    return found
