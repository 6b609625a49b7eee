"""`tidelog queue schedule resume`: end the pause of a schedule."""

from __future__ import annotations

from tidelog.tools.queue.schedule.change import change

command = change("resume", "resumed", "resume")
