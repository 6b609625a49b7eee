"""`tidelog queue schedule`: the schedules of a store."""

from __future__ import annotations

from tidelog.tools.lazy import LazyGroup

# fmt: off
SCHEDULE = {
    "ls":     ("tidelog.tools.queue.schedule.ls", "List the schedules of a store, by name."),
    "add":    ("tidelog.tools.queue.schedule.add", "Add a schedule, or replace the one of that name."),
    "pause":  ("tidelog.tools.queue.schedule.pause", "Stop the ticks of a schedule; they are not made up later."),
    "resume": ("tidelog.tools.queue.schedule.resume", "End the pause of a schedule."),
    "rm":     ("tidelog.tools.queue.schedule.rm", "Delete a schedule; jobs that it has put stay in their queue."),
}
# fmt: on


command = LazyGroup(
    SCHEDULE,
    "tidelog queue schedule ls orders-data",
    "tidelog queue schedule add orders-data nightly reports --cron '0 3 * * *' --tz Europe/Berlin",
    "tidelog queue schedule pause orders-data nightly",
)
