"""Errors of a call that is stored as a job. None of them reaches a caller as it is."""

from __future__ import annotations


class Unfit(ValueError):
    """A value does not fit its annotation. The text follows the name of the value: `must be datetime, not str`.

    inner    it has a part that does not fit; of the annotation itself it is
    """

    def __init__(self, text: str, inner: bool = False) -> None:
        super().__init__(text)
        self.inner = inner


class Changed(ValueError):
    """A job does not fit the functions of this process: one is missing, or takes other arguments."""
