"""The largest unit: what exceeds it is refused as a whole, and can be stored in parts."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog

VALUE = b"x" * (8 << 20)
FULL = 17  # of these values are more than 128 MiB


@pytest.fixture
def db(tmp_path: Path) -> tidelog.Store:
    return tidelog.open(tmp_path / "s", fsync="no", save=(), checkpoint_bytes=0)


def test_a_unit_of_more_than_128_mib_is_refused_whole(db: tidelog.Store) -> None:
    with db:
        with pytest.raises(tidelog.UnitTooLarge, match="at most 134217728 are possible"):
            db.xadd_many("s", [{"n": VALUE}] * FULL)
        assert not db.exists("s")
        assert len(db.xadd_many("s", [{"n": VALUE}] * (FULL - 2))) == FULL - 2


def test_a_transaction_queues_64_mib(db: tidelog.Store) -> None:
    with db:
        for count, fits in ((7, True), (9, False)):
            pipe = db.pipeline()
            for _ in range(count):
                pipe.xadd(f"s{count}", {"n": VALUE})
            if fits:
                pipe.execute()
            else:
                with pytest.raises(tidelog.ResponseError, match="transaction too large"):
                    pipe.execute()
            assert db.xlen(f"s{count}") == (count if fits else 0)


def test_parts_are_stored(db: tidelog.Store) -> None:
    with db:
        pipe = db.pipeline(transaction=False)
        for _ in range(FULL):
            pipe.xadd("s", {"n": VALUE})
        assert len(pipe.execute()) == FULL == db.xlen("s")
        db.queue("q", codec="bytes").put_many([VALUE] * FULL)
        assert db.xlen("q") == FULL
