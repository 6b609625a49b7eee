"""Plain XADDs to one key in a row, in a pipeline: one record in the log, and otherwise as if added one by one."""

import random
from pathlib import Path

import pytest
from tests import inside
from tests.rounds import rest_slow

import tidelog
from tidelog import testing
from tidelog.store.commit import batch


def nodes(db: tidelog.Store, key: str) -> list[tuple[int, int]]:
    stream = inside.databases(db)[0].keys[key.encode()]
    return [(node.count, node.node_bytes()) for node in stream.walk()]  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", rest_slow(range(5), 2))
def test_the_same_entries_and_nodes_as_one_by_one(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    clock = testing.Clock()  # stands still
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        for _ in range(12):
            size = draw.choice([3, 40, 700, 2_000])
            rows = [
                {"a": "x" * draw.randrange(size), draw.choice("ab"): number}
                for number in range(
                    draw.choice([1, batch.FEW, 20, batch.MANY - 1, batch.MANY, 250])
                )
            ]
            pipe = db.pipeline(transaction=False)
            for row in rows:
                pipe.xadd("piped", row)
            ids = pipe.execute()
            assert ids == [db.xadd("single", row) for row in rows]
        assert db.xrange("piped") == db.xrange("single")
        assert nodes(db, "piped") == nodes(db, "single")
        assert db.xinfo_stream("piped") == db.xinfo_stream("single")
        digest = db.digest()
    with tidelog.open(tmp_path / "s") as db:
        assert db.digest() == digest


def test_one_record_for_a_run(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.set("k", 1)
        log = inside.log(db)
        # The first of a stream begins its first node, and what comes after that is one record as far as it fits in.
        for count, records in (
            (batch.FEW - 1, batch.FEW - 1),
            (50, 1),
            (batch.MANY, 1),
            (2_500, 3),
        ):
            before = log.next_lsn
            pipe = db.pipeline(transaction=False)
            for number in range(count):
                pipe.xadd("s", {"n": number})
            assert len(pipe.execute()) == count
            assert log.next_lsn - before == records


def test_each_command_has_its_own_error(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.set("text", "x")
        pipe = db.pipeline(transaction=False)
        for number in range(batch.MANY):
            pipe.xadd("text", {"n": number})
        replies = pipe.execute(raise_on_error=False)
        assert len(replies) == batch.MANY
        assert all(str(reply).startswith("WRONGTYPE") for reply in replies)
        assert db.get("text") == b"x"


def test_a_blocked_reader_gets_the_first_unit_alone(tmp_path: Path) -> None:
    """Somebody waits: then each entry is a unit, and the reader is served between them."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool, tidelog.open(tmp_path / "s", fsync="no") as db:
        waiting = pool.submit(lambda: db.xread({"s": "$"}, block=60_000))
        while not inside.waiting(db).keys:
            pass
        pipe = db.pipeline(transaction=False)
        for number in range(2 * batch.MANY):
            pipe.xadd("s", {"n": number})
        ids = pipe.execute()
        assert [id for id, _ in waiting.result(60)[0][1]] == ids[:1]


def test_a_node_is_filled_to_its_end_and_the_next_begun(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xadd("s", {"n": 0})
        for _ in range(11):
            pipe = db.pipeline(transaction=False)
            for number in range(30):
                pipe.xadd("s", {"n": number})
            pipe.execute()
        assert [count for count, _ in nodes(db, "s")] == [100, 100, 100, 31]
