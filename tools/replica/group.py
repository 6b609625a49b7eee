"""`tidelog replica`: leaders and followers, as their files and servers show them."""

from __future__ import annotations

from tidelog.tools.lazy import LazyGroup

# fmt: off
REPLICA = {
    "status":  ("tidelog.tools.replica.status", "Show role, followers and lag, and which follower to promote."),
    "promote": ("tidelog.tools.replica.promote", "Let a follower lead."),
    "verify":  ("tidelog.tools.replica.verify", "Compare a follower's data with its leader's."),
}
# fmt: on


command = LazyGroup(
    REPLICA,
    "tidelog replica status redis://10.0.0.1:6379",
    "tidelog replica status orders-data --json | jq .generation",
)
