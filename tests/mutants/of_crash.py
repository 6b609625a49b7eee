"""Mutants of the log, recovery and checkpoints that power cuts of recorded lives must find (`crash/`)."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

AROUND_A_SYNC: Final = (
    "tests/crash/test_explore.py::test_a_store_keeps_its_promises_around_a_sync",
)
CHECKPOINTS: Final = (
    "tests/crash/test_explore.py::test_checkpoint_segments_and_names_lose_power_together",
)

MUTANTS: Final = (
    Mutant(
        "crash/no-fdatasync",
        "aof/log.py",
        "                file.fdatasync()\n",
        "                pass\n",
        AROUND_A_SYNC,
        "A record is called durable though no fsync was made.",
    ),
    Mutant(
        "crash/synced-takes-what-came-meanwhile",
        "aof/log.py",
        "            self.synced_lsn = lsn\n",
        "            self.synced_lsn = lsn = self.written_lsn\n",
        AROUND_A_SYNC,
        "A record that is written while an fsync runs belongs to the next one.",
    ),
    Mutant(
        "crash/durable-before-sync",
        "aof/log.py",
        "            started = time.monotonic()\n            try:\n                file.fdatasync()\n",
        "            started = time.monotonic()\n"
        "            if self._durable is not None:\n"
        "                self._durable.write(self.incarnation, lsn)\n"
        "            try:\n"
        "                file.fdatasync()\n",
        AROUND_A_SYNC,
        "DURABLE may lag and must never run ahead of the disk.",
    ),
    Mutant(
        "crash/published-unsynced",
        "disk/recipe.py",
        "    file.fsync()\n    disk.rename(file.path, path)\n",
        "    disk.rename(file.path, path)\n",
        AROUND_A_SYNC,
        "A file gets its name when its content is durable.",
    ),
    Mutant(
        "crash/directory-unsynced",
        "disk/recipe.py",
        "    file.path = path\n    disk.sync_directory(path.parent)\n",
        "    file.path = path\n",
        AROUND_A_SYNC,
        "A published name survives a power cut.",
    ),
    Mutant(
        "crash/released-before-commit",
        "store/checkpoints.py",
        "            write_checkpoint(\n                environment,\n",
        "            self._release_segments(core, position.lsn)\n"
        "            write_checkpoint(\n                environment,\n",
        CHECKPOINTS,
        "Segments are released when the checkpoint that holds their records is committed.",
    ),
)
