"""`tidelog queue rm`: remove a queue that holds no jobs."""

from __future__ import annotations

from tidelog.tools.queue.pause import switch

command = switch("remove", "removed", "is removed", "was not there", "rm")
