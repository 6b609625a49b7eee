"""The number of cancelled jobs: the same in every view, beyond the records that are kept, and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
from tests import inside

import tidelog
from tidelog.figures.asked import queues_told
from tidelog.figures.queues import in_state
from tidelog.figures.working import Working
from tidelog.jobs.work.cancelling import KEPT_JOBS

MORE = KEPT_JOBS + 150


def counts(db: Any) -> set[int]:
    core = inside.core(db)
    (working,) = Working(core).figures(10, lambda key: True)
    ((whole,), _) = core.look(lambda state: in_state(state, (0,), 0))
    return {working.cancelled, whole.cancelled, db.queue("mails").stats().cancelled}


def test_the_count_goes_on_after_a_restart(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db", fsync="no") as db:
        mails = db.queue("mails")
        mails.put("x")
        assert counts(db) == {0}
        for _ in range(MORE):
            assert mails.cancel(mails.put("y", delay=60))
        assert db.xlen("mails:cancels") < MORE and counts(db) == {MORE}
        db.checkpoint()
    with tidelog.open(tmp_path / "db", fsync="no") as db:
        assert counts(db) == {MORE}


@pytest.mark.parametrize("version", ["0.1", "now"])
def test_a_server_of_an_earlier_version_tells_the_rest(tmp_path: Path, version: str) -> None:
    with tidelog.open(tmp_path / "db", fsync="no") as db, tidelog.serve(db, port=0) as serving:
        mails = db.queue("mails")
        assert mails.cancel(mails.put("x", delay=60)) and mails.put("y")
        client = redis.Redis(port=serving.port, protocol=2)

        def ask(*commands: Any) -> list[Any]:
            pipe: Any = client.pipeline(transaction=False)
            for words in commands:
                # Version 0.1 refuses an option that it does not know.
                early = version == "0.1" and (b"MORE" in words or b"PAUSED" in words)
                pipe.execute_command(*words, *((b"nonsense", b"more") if early else ()))
            return list(pipe.execute(raise_on_error=False))

        (row,) = queues_told(ask, 0, [(b"mails", b"workers")])
        client.close()
        assert (row.depth, row.cancelled) == (1, int(version == "now"))
