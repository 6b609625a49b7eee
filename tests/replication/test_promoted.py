"""Stores that were promoted beside each other: nobody is fenced by hearsay, and nobody gives up records by itself."""

from __future__ import annotations

import shutil

from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.until import until

import tidelog


def failure(db: tidelog.Store) -> str:
    return str(db.info()["replication"].get("link_failure", ""))


def test_a_promoted_copy_of_a_follower_does_not_stop_production(pair: Pair) -> None:
    """A backup of a follower is started for a trial, promoted, and then told to follow production."""
    pair.db.xadd("orders", {"n": 1})
    db = pair.follow()
    equal(pair.db, db)
    db.close()
    shutil.copytree(pair.root / "follower", pair.root / "trial")
    db = pair.follow()
    caught_up(pair.db, db)
    with tidelog.open(pair.root / "trial") as trial:
        trial.promote()
        trial.xadd("orders", {"trial": 1})
        tidelog.follow(trial, f"tidelog://127.0.0.1:{pair.port}")
        until(lambda: "was promoted later" in failure(trial))
        assert [entry for _, entry in trial.xrange("orders")][-1] == {b"trial": b"1"}
        pair.db.xadd("orders", {"n": 2})
        equal(pair.db, db)
        assert pair.db.role().kind == "leader" and db.role().kind == "follower"
        assert "trial" not in str(pair.db.xrange("orders"))


def test_both_followers_are_promoted(pair: Pair) -> None:
    first, second = pair.follow("first"), pair.follow("second")
    pair.db.xadd("orders", {"n": 1})
    equal(pair.db, first)
    equal(pair.db, second)
    pair.serving.close()
    for db, name in ((first, "first"), (second, "second")):
        db.promote()
        db.xadd("orders", {"of": name})
    url = f"tidelog://127.0.0.1:{pair.serve(first).port}"
    tidelog.follow(second, url)
    until(lambda: "the histories part behind LSN" in failure(second))
    assert "REPLACE" in failure(second)
    assert second.xrange("orders")[-1][1] == {b"of": b"second"}  # it serves on

    tidelog.follow(second, url, replace=True)
    until(lambda: second.xrange("orders")[-1][1] == {b"of": b"first"})
    equal(first, second)
    (kept,) = (pair.root / "second" / "quarantine").iterdir()
    assert "orders" in (kept / "report.json").read_text()

    # the old leader has a lower generation, so it gives way by itself
    tidelog.follow(pair.db, url)
    equal(first, pair.db)
