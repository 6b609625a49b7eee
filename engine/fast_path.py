"""Fast path: the mark of code that does again, faster, what a general path does.

A fast path is a debt: each rule it follows stands in two places. So it names the general path, and the test that runs
random histories both ways and compares them; a house rule sees that both exist. Free at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def fast_path(*, of: str, held_by: str) -> Callable[[F], F]:
    """Mark a function.

    of        the general path: `module.path:qualified.name`, below `tidelog`
    held_by   the test: `tests/...py::test_name`
    """

    def marked(function: F) -> F:
        return function

    return marked
