"""Promises: which LSN holds a level, and which reply may leave."""

from __future__ import annotations

from pathlib import Path

from tests import inside

import tidelog
from tidelog.aof.log import FSYNCED, WRITTEN


def test_while_the_log_is_parked_only_what_is_on_the_disk_holds(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.set("a", 1)
        db.barrier("fsynced")
        db.set("b", 2)
        log, durability = inside.log(db), inside.core(db).durability
        older, newer = (log, log.synced_lsn, False), (log, log.written_lsn, True)
        assert older[1] < newer[1]
        assert durability.fulfilled(older) and durability.fulfilled(newer)
        with log.lock:
            log.press(True)
        for level in (0, WRITTEN):
            assert durability.fulfilled(older, level) and not durability.fulfilled(newer, level)
            assert durability.through(log, level) == 0
        with log.lock:
            log.press(False)
        assert durability.fulfilled(newer)


def test_a_level_of_its_own_counts_for_a_call(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.set("a", 1)
        log, durability = inside.log(db), inside.core(db).durability
        promise = log, log.written_lsn, True
        assert durability.fulfilled(promise, WRITTEN) and not durability.fulfilled(promise, FSYNCED)
        durability.fulfil(promise, FSYNCED)
        assert durability.fulfilled(promise, FSYNCED) and log.synced_lsn == promise[1]
