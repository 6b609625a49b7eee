"""`tidelog rdb`: dump files of Redis. `tidelog import` reads them."""

from __future__ import annotations

from tidelog.tools.cli import TOP
from tidelog.tools.lazy import LazyGroup

# fmt: off
RDB = {
    "export": ("tidelog.tools.rdb.export", "Write a store as a dump file that Redis loads."),
}
# fmt: on


command = LazyGroup(
    RDB,
    "tidelog rdb export orders-data dump.rdb --target 7.0",
    moved={"import": TOP["import"]},
)
