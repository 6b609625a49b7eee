"""The result of an answer, for threads: what a queue, its dead jobs and its schedules wait for.

Generated from atold.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from typing import Any

from tidelog.api.face import Face
from tidelog.store.commit.core import Answer


def told(face: Face, answer: Answer) -> Any:
    """The result of an answer, once its promise holds."""
    found, promise = answer
    face._hold(promise)
    return found
