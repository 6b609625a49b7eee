"""`tidelog replica`: leaders and followers, as their files and servers show them."""

from __future__ import annotations

import click

from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples

# fmt: off
REPLICA = {
    "status": ("tidelog.tools.replica.status", "Show role, followers and lag, and which follower to promote."),
    "verify": ("tidelog.tools.replica.verify", "Compare a follower's data with its leader's."),
}
# fmt: on


@click.group(
    cls=LazyGroup,
    table=REPLICA,
    epilog=examples(
        "tidelog replica status redis://10.0.0.1:6379",
        "tidelog replica status orders-data --json | jq .generation",
        codes=(),
    ),
)
def command() -> None:
    """Inspect leaders and their followers."""
