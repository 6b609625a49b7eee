"""`tidelog rdb`: dump files of Redis, written from a store and read into a new one."""

from __future__ import annotations

import click

from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples

# fmt: off
RDB = {
    "export": ("tidelog.tools.rdb.export", "Write a store as a dump file that Redis loads."),
    "import": ("tidelog.tools.rdb.importing", "Make a store of a dump file of Redis."),
}
# fmt: on


@click.group(
    cls=LazyGroup,
    table=RDB,
    epilog=examples(
        "tidelog rdb export orders-data dump.rdb --target 7.0",
        "tidelog rdb import orders-data dump.rdb",
        codes=(),
    ),
)
def command() -> None:
    """Write a store as a dump file of Redis, and read one into a store."""
