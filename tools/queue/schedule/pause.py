"""`tidelog queue schedule pause`: stop the ticks of a schedule."""

from __future__ import annotations

from tidelog.tools.queue.schedule.change import change

command = change("pause", "paused", "pause")
