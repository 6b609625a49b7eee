"""Mutants: faults that are planted into the engine, so that everybody can see the bench find them.

Each is a change of source text: an anchor that stands in its file exactly once, and what stands there instead. The
change is made while a process of its own loads the module (tools/crash/site/), so nothing on the disk changes. That
process does tasks of one layer until it finds something.

    python -m tidelog.crash.mutants LAYER POLICY SECONDS SCRATCH  # that process
"""

from __future__ import annotations

import json
import sys
import time
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.crash.errors import BenchError
from tidelog.crash.run import LAYERS, do, tasks
from tidelog.crash.served import be_quiet
from tidelog.crash.workloads import POLICIES

SEED: Final = "mutants"
# Under always each caller waits for its sync before it goes on, so next to nothing is unsynced when the fault strikes.
RELAXED: Final = ("everysec", "no")
# Under no, the leader of the bench does not wait for the disk of its follower.
SYNCED: Final = ("always", "everysec")


class Planted(NamedTuple):
    """One planted fault.

    name         folder/what-is-wrong
    file         from the root of the package
    anchor       source text that stands in the file exactly once
    replacement  what stands there instead
    layer        of the bench, that finds it
    policies     under which the bench shows it
    promise      what does not hold any more, in one sentence
    """

    name: str
    file: str
    anchor: str
    replacement: str
    layer: str
    policies: tuple[str, ...]
    promise: str


def main(layer: str, policy: str, seconds: float, scratch: Path) -> None:
    """Do tasks of a layer until something is found or the time is over, and print [kind, words]."""
    assert layer in LAYERS
    be_quiet()
    end = time.monotonic() + seconds
    found = "", f"the layer {layer} found nothing in {seconds:.0f} s"
    for task in takewhile(lambda _: time.monotonic() < end, tasks({layer}, [policy], SEED)):
        try:
            report = do(task, scratch, lambda: time.monotonic() >= end)
        except BenchError as error:
            found = "wrong", str(error)
            break
        if report.findings:
            found = report.findings[0].kind, report.findings[0].words
            break
    print(json.dumps(found))


PLANTED: Final = (
    Planted(
        "log/no-fdatasync",
        "aof/log.py",
        "                file.fdatasync()\n",
        "                pass\n",
        "log",
        POLICIES,
        "A record is called durable though no fsync was made.",
    ),
    Planted(
        "log/synced-takes-what-came-meanwhile",
        "aof/log.py",
        "            self.synced_lsn = lsn\n",
        "            self.synced_lsn = lsn = self.written_lsn\n",
        "log",
        RELAXED,
        "A record that is written while an fsync runs belongs to the next one.",
    ),
    Planted(
        "log/durable-before-sync",
        "aof/log.py",
        "            started = time.monotonic()\n            try:\n                file.fdatasync()\n",
        "            started = time.monotonic()\n"
        "            if self._durable is not None:\n"
        "                self._durable.write(self.incarnation, lsn)\n"
        "            try:\n"
        "                file.fdatasync()\n",
        "log",
        POLICIES,
        "DURABLE may lag and must never run ahead of the disk.",
    ),
    Planted(
        "log/header-knows-its-own-lsn",
        "aof/log.py",
        "                self.synced_lsn,\n                self._chain,\n",
        "                lsn,\n                self._chain,\n",
        "log",
        POLICIES,
        "The header of a frame must state only LSNs that were synced before it was written.",
    ),
    Planted(
        "recipe/published-unsynced",
        "disk/recipe.py",
        "    file.fsync()\n    disk.rename(file.path, path)\n",
        "    disk.rename(file.path, path)\n",
        "log",
        POLICIES,
        "A file has its content on the disk before it has its name.",
    ),
    Planted(
        "recipe/name-unsynced",
        "disk/recipe.py",
        "    file.path = path\n    disk.sync_directory(path.parent)\n",
        "    file.path = path\n",
        "log",
        POLICIES,
        "A published name is on the disk when `publish_open` returns.",
    ),
    Planted(
        "reader/body-unchecked",
        "aof/reading/reader.py",
        "                    if len(body) != length or crc32c_of(body) != body_crc:\n                        return\n",
        "                    if len(body) != length:\n                        return\n",
        "log",
        POLICIES,
        "The body of a frame matches its checksum.",
    ),
    Planted(
        "reader/any-later-frame-is-proof",
        "aof/reading/reader.py",
        "                if later.synced >= self.lsn:\n",
        "                if True:\n",
        "log",
        POLICIES,
        "A later valid frame alone proves nothing: file systems leave holes.",
    ),
    Planted(
        "checkpoint/commit-before-sync",
        "snapshot/checkpoint.py",
        "            sync()\n            if cancelled():\n                raise Cancelled\n"
        "            writing.put(META, meta._replace(sums=writing.sums()).pack())\n            writing.commit()\n",
        "            if cancelled():\n                raise Cancelled\n"
        "            writing.put(META, meta._replace(sums=writing.sums()).pack())\n            writing.commit()\n"
        "            sync()\n",
        "checkpoints",
        RELAXED,
        "The log is on the disk through P before the checkpoint is committed.",
    ),
    Planted(
        "environment/unsynced",
        "snapshot/rows/environment.py",
        '        "create": False,\n',
        '        "create": False,\n        "sync": False,\n',
        "checkpoints",
        POLICIES,
        "A commit of LMDB is on the disk when it returns.",
    ),
    Planted(
        "environment/made-under-its-own-name",
        "snapshot/rows/environment.py",
        "    file = disk.create(path.with_name(DATA + recipe.BESIDE))\n",
        "    file = disk.create(path)\n",
        "checkpoints",
        POLICIES,
        "A new data.mdb gets its name when its first pages are on the disk.",
    ),
    Planted(
        "checkpoints/sync-one-short",
        "store/checkpoints.py",
        "                sync=lambda: core.log.sync_through(position.lsn),\n",
        "                sync=lambda: core.log.sync_through(position.lsn - 1),\n",
        "checkpoints",
        RELAXED,
        "The log is on the disk through P, the record at P included.",
    ),
    Planted(
        "checkpoints/released-before-commit",
        "store/checkpoints.py",
        "            write_checkpoint(\n                environment,\n",
        "            self._release_segments(core, position.lsn)\n"
        "            write_checkpoint(\n                environment,\n",
        "checkpoints",
        POLICIES,
        "Segments are released when the checkpoint that holds their records is committed.",
    ),
    Planted(
        "log/sync-tried-again",
        "aof/log.py",
        "                file.fdatasync()\n",
        "                try:\n"
        "                    file.fdatasync()\n"
        "                except OSError:\n"
        "                    file.fdatasync()\n",
        "errors",
        POLICIES,
        "After a failed fsync nothing is acknowledged: a second one succeeds and lies.",
    ),
    Planted(
        "recovery/keeps-page-cache",
        "aof/reading/recovery.py",
        "        file.drop_cache()\n",
        "        pass\n",
        "errors",
        POLICIES,
        "After a failed fsync recovery reads what the disk has, and not the page cache.",
    ),
    Planted(
        "recovery/no-quarantine",
        "aof/reading/recovery.py",
        "        quarantined = _quarantine(disk, root, scan)\n",
        "        quarantined = None\n",
        "log",
        POLICIES,
        "Each byte that recovery takes out is kept in quarantine.",
    ),
    Planted(
        "promise/replies-before-sync",
        "store/commit/durability.py",
        "        return log.synced_lsn if self.relief is None else 0\n",
        "        return log.written_lsn if self.relief is None else 0\n",
        "replies",
        ("always",),
        "Under always a reply leaves after the sync that covers it.",
    ),
    Planted(
        "wait/says-synced-when-written",
        "server/commands/wait.py",
        "    synced, found = lsn <= log.synced_lsn, acks.count(log, lsn, True)\n",
        "    synced, found = lsn <= log.written_lsn, acks.count(log, lsn, True)\n",
        "replies",
        RELAXED,
        "WAITAOF says that the disk has a write when it has it.",
    ),
    Planted(
        "queue/done-and-in-two-units",
        "jobs/verbs/done_and.py",
        "        return settle.done_and(held, ctx, partial(self._adds, held))\n",
        "        from tidelog.store.commit.batch import land_commands\n"
        "        words = settle.done_and(held, ctx, lambda ctx: [])\n"
        "        if words:\n"
        "            land_commands(self.engine.core, ctx, words)\n"
        "        return words and self._adds(held, ctx)\n",
        "queues",
        POLICIES,
        "A job is done and its followers are put in one unit.",
    ),
    Planted(
        "follower/confirms-before-sync",
        "replication/follower.py",
        "        return lsn, min(self._core.log.synced_lsn, lsn)\n",
        "        return lsn, lsn\n",
        "followers",
        SYNCED,
        "A follower confirms as fsynced what its disk has.",
    ),
)

BY_NAME: Final = {each.name: each for each in PLANTED}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
