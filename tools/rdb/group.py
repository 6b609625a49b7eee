"""`tidelog rdb`: dump files of Redis. `tidelog import` reads them."""

from __future__ import annotations

import click

from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples

# fmt: off
RDB = {
    "export": ("tidelog.tools.rdb.export", "Write a store as a dump file that Redis loads."),
}
# fmt: on


@click.group(
    cls=LazyGroup,
    table=RDB,
    moved={"import": ("tidelog.tools.importing.command", "import")},
    epilog=examples(
        "tidelog rdb export orders-data dump.rdb --target 7.0",
        codes=(),
    ),
)
def command() -> None:
    """Write a store as a dump file of Redis."""
