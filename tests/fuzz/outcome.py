"""The outcome of one input."""

from __future__ import annotations

Outcome = str
TAKEN: Outcome = "taken"
REFUSED: Outcome = "refused"
