"""The public API as a typed program uses it: mypy --strict, which checks this file too, and Python agree."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, TypeAdapter

import tidelog
from tidelog.api.pipeline import Pipeline


def test_sync(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s") as db:
        assert_type(db, tidelog.Store[bytes])
        assert_type(db.xgroup_create("orders", "packers", id="0", mkstream=True), bool)
        fields: dict[str, str] = {"item": "tea"}  # a dict of any one type is a dict of fields
        assert_type(db.xadd("orders", fields), bytes | None)  # None with nomkstream alone
        db.xadd("orders", {"item": "rice", "amount": 2, b"raw": b"\xff", "weight": 0.5})
        ids = db.xadd_many("orders", ({"n": n} for n in range(3)))
        assert_type(ids, tidelog.IdRange[bytes])
        assert_type(ids[0], bytes)
        streams: dict[str, str] = {"orders": ">"}
        for key, entries in db.xreadgroup("packers", "anna", streams, count=2, block=10):
            for id, read in entries:
                assert b"item" in read
                assert_type(db.xack(key, "packers", id), int)
        assert_type(db.xlen("orders"), int)
        assert_type(db.xpending("orders", "packers"), dict[str, Any])
        assert_type(db.xpending_range("orders", "packers", "-", "+", 10), list[dict[str, Any]])
        assert_type(db.get("missing"), bytes | None)
        assert_type(db.at("fsynced").db(1), tidelog.Store[bytes])
        assert_type(db.barrier(), tidelog.Receipt)
        assert_type(db.digest(), str)
        with db.pipeline(transaction=True) as pipe:
            assert_type(pipe, Pipeline)
            pipe.incrby("count", 1)
            pipe.xack("orders", "packers", ids[0])
            assert_type(pipe.execute(), list[Any])


def test_asyncio(tmp_path: Path) -> None:
    async def main() -> int:
        async with tidelog.aopen(tmp_path / "s") as db:
            assert_type(db, tidelog.AsyncStore[bytes])
            assert_type(await db.xadd("orders", {"item": "tea"}), bytes | None)
            for _, entries in await db.xread({"orders": 0}, block=10):
                assert len(entries) == 1
            async with db.pipeline() as pipe:
                pipe.xlen("orders")
                assert_type(await pipe.execute(), list[Any])
        other = await tidelog.aopen(tmp_path / "s", read_only=True)
        assert_type(other, tidelog.AsyncStore[bytes])
        assert_type(await other.xlen("orders"), int)
        length = await other.xlen("orders")
        await other.aclose()
        return length

    assert asyncio.run(main()) == 1


def test_texts_are_str_with_decode_responses(tmp_path: Path) -> None:
    def use(db: tidelog.Store) -> None:  # without a parameter, also with mypy --strict: either kind
        assert_type(db.get("k"), bytes | str | None)

    with tidelog.open(tmp_path / "s", decode_responses=True, fsync="no") as db:
        assert_type(db, tidelog.Store[str])
        assert_type(db.xadd("orders", {"item": "tea"}), str | None)
        assert_type(db.keys(), list[str])
        assert_type(db.scan(), tuple[int, list[str]])
        assert_type(db.mget("a", "b"), list[str | None])
        assert_type(db.at("written").db(0)["k"] if "k" in db else "", str)
        assert_type([*db.xadd_many("orders", [{"n": 1}])], list[str])
        use(db)
        plain: tidelog.Store = db
        assert plain is db
    for decode in (False, True):
        with tidelog.open(tmp_path / "s", decode_responses=decode, fsync="no") as either:
            assert_type(either, tidelog.Store[bytes | str])
            use(either)


def test_texts_of_shared_stores(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aconnect(tmp_path / "s") as db:
            assert_type(db, tidelog.AsyncSharedStore[bytes])
            assert_type(await db.get("k"), bytes | None)
        async with tidelog.aconnect(tmp_path / "s", decode_responses=True) as other:
            assert_type(other, tidelog.AsyncSharedStore[str])
            assert_type(await other.getdel("k"), str | None)
            assert_type([name async for name in other.scan_iter()], list[str])
            async with other.pipeline() as pipe:
                pipe.xlen("orders")
                assert_type(await pipe.execute(), list[Any])

    with tidelog.open(tmp_path / "s", fsync="no") as db, tidelog.serve(db, port=0):
        with tidelog.connect(tmp_path / "s", decode_responses=True) as shared:
            assert_type(shared, tidelog.SharedStore[str])
            assert_type(shared.get("k"), str | None)
        with tidelog.connect(tmp_path / "s") as raw:
            assert_type(raw, tidelog.SharedStore[bytes])
            assert_type(list(raw.scan_iter()), list[bytes])
            assert_type(raw.db(1), tidelog.SharedStore[bytes])
        asyncio.run(main())


def test_texts_of_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", decode_responses=True, fsync="no") as db:
            assert_type(db, tidelog.AsyncStore[str])
            assert_type(await db.randomkey(), str | None)
            assert_type(await db.xadd_many("s", [{"a": 1}]), tidelog.IdRange[str])

    asyncio.run(main())


class Mail(BaseModel):
    to: str


def seven(raw: bytes) -> int:
    return 7


def text_of(value: int) -> bytes:
    return b"7"


def test_queues(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        mails = db.queue("mails", codec=Mail, max_depth=10)
        assert_type(mails, tidelog.Queue[Mail])
        mails.put(Mail(to="ann"))
        for wrong in ("ann", b"ann"):
            with pytest.raises(tidelog.EncodeError):
                mails.put(wrong)  # type: ignore[arg-type]
        for job in mails.consume(block=0):
            assert_type(job, tidelog.Job[Mail])
            assert_type(job.value.to, str)
            with job:
                pass
        assert_type(mails.get(block=0), tidelog.Job[Mail] | None)
        mails.put_many([Mail(to="ben")])
        mails.run(lambda job: job.value.to.upper(), workers=1, block=0)
        assert_type(db.queue("a", codec="bytes"), tidelog.Queue[bytes])
        assert_type(db.queue("b", codec="str"), tidelog.Queue[str])
        assert_type(db.queue("c", codec=TypeAdapter(list[int])), tidelog.Queue[list[int]])
        assert_type(db.queue("d", codec=(text_of, seven)), tidelog.Queue[int])
        assert_type(db.queue("e"), tidelog.Queue[Any])
        bare: tidelog.Queue = db.queue("f")  # without a parameter, also with mypy --strict
        bare.put({"any": "value"})
    with tidelog.queue(tmp_path / "s", "b", codec="str", fsync="no") as one:
        assert_type(one, tidelog.Queue[str])


def test_hooks_and_middleware(tmp_path: Path) -> None:
    seen: list[object] = []

    def done(job: tidelog.Job[Mail], result: object) -> None:
        seen.append(result)

    def again(job: tidelog.Job[Mail], error: BaseException, delay: float) -> None:
        seen.append(delay)

    def around(job: tidelog.Job[Mail], next: tidelog.Next) -> object:
        return next(job)

    async def around_task(job: tidelog.AsyncJob[Mail], next: tidelog.AsyncNext) -> object:
        return await next(job)

    async def handle(job: tidelog.AsyncJob[Mail]) -> None:
        await job.nack(delay=60)

    async def again_in_task(job: tidelog.AsyncJob[Mail], error: object, delay: float) -> None:
        seen.append(delay)

    async def main() -> None:
        wrapped: list[tidelog.AsyncMiddleware] = [around_task]
        async with tidelog.aqueue(tmp_path / "s", "mails", codec=Mail, fsync="no") as mails:
            await mails.put(Mail(to="ann"))
            await mails.arun(handle, workers=1, block=0, middleware=wrapped, on_retry=again_in_task)

    with tidelog.queue(tmp_path / "s", "mails", codec=Mail, fsync="no") as mails:
        mails.put(Mail(to="ann"))
        wrapped: list[tidelog.Middleware] = [around]
        mails.run(
            lambda job: job.value.to,
            workers=1,
            block=0,
            on_done=done,
            on_retry=again,
            middleware=wrapped,
        )
    asyncio.run(main())
    assert seen == ["ann", 60.0]


def test_queues_of_asyncio(tmp_path: Path) -> None:
    async def handle(job: tidelog.AsyncJob[Mail]) -> None:
        assert_type(job.value, Mail)

    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "mails", codec=Mail, fsync="no") as mails:
            assert_type(mails, tidelog.AsyncQueue[Mail])
            await mails.put(Mail(to="ann"))
            await mails.arun(handle, workers=1, block=0)
            assert_type(await mails.get(block=0), tidelog.AsyncJob[Mail] | None)
        async with tidelog.aopen(tmp_path / "s", fsync="no") as db:
            assert_type(db.queue("a", codec="bytes"), tidelog.AsyncQueue[bytes])

    asyncio.run(main())


def test_shared_queues(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db, tidelog.serve(db, port=0):
        with tidelog.queue(tmp_path / "s", "mails", shared=True, codec=Mail) as mails:
            assert_type(mails, tidelog.SharedQueue[Mail])
            mails.put(Mail(to="ann"))
            job = mails.get(block=0)
            assert job is not None
            assert_type(job.value, Mail)
            job.ack()
        with tidelog.connect(tmp_path / "s") as shared:
            assert_type(shared.queue("a", codec="bytes"), tidelog.SharedQueue[bytes])


def test_errors(tmp_path: Path) -> None:
    try:
        with tidelog.open(tmp_path / "s") as db, tidelog.open(tmp_path / "s"):
            db.ping()
    except tidelog.StoreLocked as error:
        assert_type(error.pid, int | None)
    except tidelog.CannotOpen as error:
        assert_type(error, tidelog.CannotOpen)
    # a job fails by these, and nobody catches them
    asked = (tidelog.RetryJob, tidelog.GiveUp, tidelog.TimeLimitExceeded, tidelog.ProcessDied)
    for name in tidelog.__all__:
        kind = getattr(tidelog, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, (tidelog.TidelogError, *asked))
            assert (kind.__doc__ or "").strip().endswith(".")
