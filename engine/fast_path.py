"""Fast path: a decorator for code that repeats a general path and is faster.

Each rule of a fast path is written in two places, which could come to differ. So the decorator names the general path,
and the test that runs random histories both ways and compares them. A house rule checks that both exist. The decorator
costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def fast_path(*, of: str, held_by: str) -> Callable[[F], F]:
    """Mark a function as a fast path.

    of        the general path: `module.path:qualified.name`, below `tidelog`
    held_by   the test: `tests/...py::test_name`
    """

    def marked(function: F) -> F:
        return function

    return marked
