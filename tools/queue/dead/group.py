"""`tidelog queue dead`: the jobs of a queue that were given up."""

from __future__ import annotations

from tidelog.tools.lazy import LazyGroup

# fmt: off
DEAD = {
    "ls":      ("tidelog.tools.queue.dead.ls", "List the dead jobs of a queue, oldest first."),
    "show":    ("tidelog.tools.queue.dead.show", "Show everything about a dead job."),
    "redrive": ("tidelog.tools.queue.dead.redrive", "Put dead jobs back into their queue."),
    "purge":   ("tidelog.tools.queue.dead.purge", "Delete dead jobs permanently."),
}
# fmt: on


command = LazyGroup(
    DEAD,
    "tidelog queue dead ls orders-data mails --older-than 1d",
    "tidelog queue dead show orders-data mails 1700000009000-0",
    "tidelog queue dead redrive orders-data mails --error Timeout --dry-run",
)
