"""`tidelog queue resume`: deliver the jobs of a paused queue again."""

from __future__ import annotations

from tidelog.tools.queue.pause import switch

command = switch("resume", "resumed", "goes on", "was not paused")
