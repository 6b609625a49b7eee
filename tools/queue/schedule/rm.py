"""`tidelog queue schedule rm`: delete a schedule."""

from __future__ import annotations

from tidelog.tools.queue.schedule.change import change

command = change("rm", "removed", "remove")
