"""`tidelog queue`: the durable queues of a store.

Commands that only read a queue read the log as all tools do, so the writer may be running. The commands that change a
queue (`put`, `cancel`, `move`, `pause`, `resume`, `dead redrive`, `dead purge`, `forget`, `purge`, `rm`) or a schedule
open the store for writing, or go through the process that serves it; if another process has it open, the error says
what to do.
"""

from __future__ import annotations

from tidelog.tools.lazy import LazyGroup

# fmt: off
QUEUE = {
    "ls":       ("tidelog.tools.queue.ls", "List the queues of a store."),
    "watch":    ("tidelog.tools.queue.watch", "Show the queues of a store as they change."),
    "put":      ("tidelog.tools.queue.put", "Put jobs into a queue."),
    "stats":    ("tidelog.tools.queue.stats", "Show the counts of a queue, and measure its rates."),
    "peek":     ("tidelog.tools.queue.peek", "Show the next waiting jobs without delivering them."),
    "failures": ("tidelog.tools.queue.failures", "Show the latest failures of jobs, newest first."),
    "dead":     ("tidelog.tools.queue.dead.group", "Inspect dead jobs, and put them back."),
    "schedule": ("tidelog.tools.queue.schedule.group", "List and change schedules, which put jobs again and again."),
    "status":   ("tidelog.tools.queue.status", "Say where a job is, or what became of it."),
    "find":     ("tidelog.tools.queue.find", "Find jobs that are not done, and dead ones."),
    "cancel":   ("tidelog.tools.queue.cancel", "Cancel a job that is not done."),
    "move":     ("tidelog.tools.queue.move", "Make a delayed job due at another time."),
    "pause":    ("tidelog.tools.queue.pause", "Deliver no more jobs until `queue resume`."),
    "resume":   ("tidelog.tools.queue.resume", "Deliver the jobs of a paused queue again."),
    "forget":   ("tidelog.tools.queue.forget", "Free a dedup ID, so that the next put with it adds a job."),
    "purge":    ("tidelog.tools.queue.purge", "Delete every job that is not in flight."),
    "rm":       ("tidelog.tools.queue.rm", "Remove a queue that holds no jobs."),
}
# fmt: on


command = LazyGroup(
    QUEUE,
    "tidelog queue ls orders-data",
    "tidelog queue stats orders-data mails --over 10",
    "tidelog queue dead redrive orders-data mails --error Timeout",
)
