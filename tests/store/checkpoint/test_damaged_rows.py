"""A damaged row of a checkpoint: what it holds is refused, and nobody else is held up."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests import inside
from tests.store.checkpoint.damaged_row import damage

import tidelog
from tidelog import testing
from tidelog.engine.rowkeys import CHUNK, EXPIRY, STREAM


def made(path: Path, clock: testing.Clock) -> None:
    with tidelog.open(path, fsync="no", clock=clock) as db:
        db.xgroup_create("bad", "g", mkstream=True)
        db.xadd("bad", {"n": 1})
        db.pexpire("bad", 1000)
        db.set("soon", "x", px=1500)
        db.xadd("good", {"n": 1})
        db.checkpoint()


@pytest.mark.parametrize("kind", (STREAM, EXPIRY))
def test_a_damaged_key_whose_time_has_passed_holds_up_no_other(
    tmp_path: Path, kind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    clock = testing.Clock()
    made(tmp_path / "s", clock)
    damage(tmp_path / "s", kind)
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        clock.advance(2)
        with caplog.at_level(logging.WARNING, "tidelog"):
            for n in range(2, 5):
                db.xadd("good", {"n": n})
                assert db.xlen("good") == n
        said = [
            record for record in caplog.records if "an expired key cannot be read" in record.message
        ]
        # of a damaged stream no more is needed than its number
        assert len(said) == (kind == EXPIRY)
        assert not db.exists("soon")
        clock.advance(2)
        db.set("after", "x", px=1)  # whose place is not beside that of the damaged row
        clock.advance(1)
        if kind == EXPIRY:  # the key stays until it is named
            assert db.dbsize() == 2
            assert not db.exists("bad")
        assert db.dbsize() == 1


def test_what_looks_at_everything_names_the_damage(tmp_path: Path) -> None:
    clock = testing.Clock()
    made(tmp_path / "s", clock)
    damage(tmp_path / "s", STREAM)
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        with pytest.raises(tidelog.StoreDamaged, match="stream 1"):
            db.digest()
        assert db.xlen("good") == 1


@pytest.mark.parametrize("count", (1, 4, 200))
def test_in_a_pipeline_a_damaged_key_is_nobody_elses_trouble(tmp_path: Path, count: int) -> None:
    clock = testing.Clock()
    made(tmp_path / "s", clock)
    damage(tmp_path / "s", STREAM)
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        pipe = db.pipeline(transaction=False)
        for key in ("good", *["bad"] * count, "good"):
            pipe.xadd(key, {"n": 1})
        first, *refused, last = pipe.execute(raise_on_error=False)
        assert {type(reply) for reply in refused} == {tidelog.StoreDamaged}
        assert db.xlen("good") == 3 and isinstance(first, bytes) and isinstance(last, bytes)
        assert not inside.reloads(db)
        pipe = db.pipeline(transaction=False)
        for _ in range(count):
            pipe.xadd("bad", {"n": 1})
        assert {type(reply) for reply in pipe.execute(raise_on_error=False)} == {
            tidelog.StoreDamaged
        }
        assert not inside.reloads(db)


@pytest.mark.parametrize("order", range(3))
def test_a_transaction_that_meets_damaged_pending_entries_first_has_changed_nothing(
    tmp_path: Path, order: int
) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xgroup_create("bad", "g", mkstream=True)
        ids = [db.xadd("bad", {"n": n}) for n in range(9)]
        db.xreadgroup("g", "a", {"bad": ">"})
        db.checkpoint()
    damage(tmp_path / "s", CHUNK, order)
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        unit = db.pipeline().get("k").xack("bad", "g", ids[4]).set("k", 1)
        with pytest.raises(tidelog.StoreDamaged):
            unit.execute()
        assert not db.exists("k") and not inside.reloads(db)


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("words", ("XACK bad g", "XCLAIM bad g b 0"))
def test_in_a_pipeline_damaged_pending_entries_are_nobody_elses_trouble(
    tmp_path: Path, words: str, order: int
) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xgroup_create("bad", "g", mkstream=True)
        ids = [db.xadd("bad", {"n": n}) for n in range(9)]
        db.xreadgroup("g", "a", {"bad": ">"})
        db.checkpoint()
    damage(tmp_path / "s", CHUNK, order)
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        pipe = db.pipeline(transaction=False).set("k", 1)
        pipe.execute_command(*words.split(), ids[4])
        first, refused, last = pipe.set("l", 2).execute(raise_on_error=False)
        assert isinstance(refused, tidelog.StoreDamaged)
        assert first and last and db.get("l") == b"2"
        assert not inside.reloads(db)
