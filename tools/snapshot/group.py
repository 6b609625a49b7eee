"""`tidelog snapshot`: create portable copies of a store, and restore stores from them.

Creating one reads the store as all tools do, so its writer may be running, and writes only into its folder snapshots/.
"""

from __future__ import annotations

from tidelog.tools.lazy import LazyGroup

# fmt: off
SNAPSHOT = {
    "create":  ("tidelog.tools.snapshot.create", "Create a snapshot of a store; its writer may be running."),
    "ls":      ("tidelog.tools.snapshot.ls", "List the snapshots of a store."),
    "show":    ("tidelog.tools.snapshot.show", "Show what a snapshot contains."),
    "verify":  ("tidelog.tools.snapshot.verify", "Check every byte, row and count of a snapshot."),
    "copy":    ("tidelog.tools.snapshot.copy", "Copy a snapshot to or from an object store, or another directory."),
    "restore": ("tidelog.tools.snapshot.restore", "Restore a snapshot into a new store, up to an LSN or a time."),
    "prune":   ("tidelog.tools.snapshot.prune", "Delete all but the newest snapshots of a store."),
}
# fmt: on


command = LazyGroup(
    SNAPSHOT,
    "tidelog snapshot create orders-data",
    "tidelog snapshot ls orders-data",
    "tidelog snapshot restore orders-data/snapshots/00000000000000004711 restored",
)
