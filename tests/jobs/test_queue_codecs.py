"""Codecs of the durable queue: what a job's value is as bytes, and what comes back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass
from tests.rounds import more

import tidelog
from tidelog import testing
from tidelog.jobs.codecs import _json_parts, codec_of


@pytest.fixture
def db() -> Iterator[tidelog.Store]:
    with testing.store(testing.Clock()) as store:
        yield store


def through(db: tidelog.Store, codec: Any, value: Any) -> tuple[bytes, Any]:
    """A value as it is stored, and as it comes back."""
    queue = db.queue("jobs", codec=codec)
    queue.put(value)
    ((_, fields),) = db.xrange("jobs")
    (seen,) = queue.peek()
    job = queue.get("anna", block=0)
    assert job is not None, queue.dead.list()
    assert seen.value == job.value and seen.raw == fields[b"value"]
    assert job.ack()
    return fields[b"value"], job.value


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (None, b"null"),
        (True, b"true"),
        (2**70, b"1180591620717411303424"),
        (0.1, b"0.1"),
        ("", b'""'),
        ("ä\n😀", '"ä\\n😀"'.encode()),
        ([1, [2]], b"[1,[2]]"),
        ({"to": "ann", "n": {"a": None}}, b'{"to":"ann","n":{"a":null}}'),
    ],
)
def test_json_is_compact_utf8(value: Any, raw: bytes, db: tidelog.Store) -> None:
    assert through(db, "json", value) == (raw, value)
    assert json.loads(raw) == value


def test_json_is_the_default(db: tidelog.Store) -> None:
    db.queue("jobs").put({"a": 1})
    assert db.xrange("jobs")[0][1] == {b"value": b'{"a":1}'}


class Odd(dict[str, int]):
    """The bytes that the encoder asks for count, not those that are stored; as in `json`."""

    def items(self) -> Any:
        return {"odd": 1}.items()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.booleans(), inner),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(VALUES)
@example((1, (2,)))
@example(Odd(a=1))
@example({None: 1, 1.5: 2})
def test_json_is_what_the_library_makes(value: Any) -> None:
    wanted = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    assert codec_of("json").encode(value) == wanted.encode()


test_more_json_is_what_the_library_makes = more(test_json_is_what_the_library_makes, 200)


def test_json_where_the_library_is_in_python_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    assert list(_json_parts()({"a": [1, "b"]}, 0)) == ['{"a":[1,"b"]}']


@pytest.mark.parametrize("value", [math.nan, math.inf, {1}, b"x", object(), date(2026, 1, 1)])
def test_json_refuses_what_json_cannot_say(value: Any, db: tidelog.Store) -> None:
    with pytest.raises(tidelog.EncodeError, match=f"json cannot encode .*{type(value).__name__}"):
        db.queue("jobs").put(value)


def test_json_refuses_what_contains_itself(db: tidelog.Store) -> None:
    value: list[Any] = []
    value.append({"again": value})
    for _ in range(2):
        with pytest.raises(tidelog.EncodeError, match="Circular reference"):
            db.queue("jobs").put(value)
    db.queue("jobs").put([])


@pytest.mark.parametrize(
    "value",
    [None, 1, -(1 << 63), (1 << 64) - 1, 0.5, "ä", b"\xff\0", [1, "a", b"b"], {1: "a", "b": None}],
)
def test_msgpack_tells_bytes_from_text(value: Any, db: tidelog.Store) -> None:
    raw, back = through(db, "msgpack", value)
    assert raw == msgpack.packb(value) and back == value and type(back) is type(value)


@pytest.mark.parametrize(
    "value", [b"", b"\xff\0" * 100, bytearray(b"ab"), memoryview(b"abcd")[::2]]
)
def test_bytes_are_stored_as_they_are(value: Any, db: tidelog.Store) -> None:
    raw, back = through(db, "bytes", value)
    assert raw == bytes(value) == back and type(back) is bytes


def test_str_is_utf8(db: tidelog.Store) -> None:
    assert through(db, "str", "ä 😀") == ("ä 😀".encode(), "ä 😀")
    assert through(db, "str", "") == (b"", "")


def test_a_pair_of_functions(db: tidelog.Store) -> None:
    pair = (lambda day: day.isoformat().encode(), lambda raw: date.fromisoformat(raw.decode()))
    assert through(db, pair, date(2026, 7, 1)) == (b"2026-07-01", date(2026, 7, 1))


def test_a_pair_may_give_what_is_like_bytes_but_no_text(db: tidelog.Store) -> None:
    assert through(db, (bytearray, bytes), b"ab") == (b"ab", b"ab")
    with pytest.raises(tidelog.EncodeError, match="bytes-like"):
        db.queue("jobs", codec=(str, str)).put(5)  # type: ignore[arg-type]


class Mail(BaseModel):
    to: str
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    parts: list[bytes] = []


class UrgentMail(Mail):
    before: datetime


def test_a_pydantic_model(db: tidelog.Store) -> None:
    mail = Mail(to="ann", parts=[b"a"])
    raw, back = through(db, Mail, mail)
    assert raw == mail.model_dump_json().encode()
    assert back == mail and type(back) is Mail


def test_a_model_takes_its_own_kind_only(db: tidelog.Store) -> None:
    queue = db.queue("jobs", codec=Mail)
    wrong: Any
    for wrong in ({"to": "ann"}, "ann", None):
        with pytest.raises(tidelog.EncodeError, match="a Mail is required"):
            queue.put(wrong)
    queue.put(UrgentMail(to="ann", before=datetime(2026, 7, 1, tzinfo=UTC)))
    assert queue.peek()[0].value == Mail(to="ann")


class Aliased(BaseModel):
    to: str = Field(alias="To")


class AliasedTwice(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    to: str = Field(validation_alias=AliasChoices("to", "recipient"))


def test_a_model_with_aliases_comes_back(db: tidelog.Store) -> None:
    value = Aliased(To="ann")
    assert through(db, Aliased, value) == (b'{"To":"ann"}', value)
    assert through(db, TypeAdapter(list[Aliased]), [value])[1] == [value]
    assert through(db, AliasedTwice, AliasedTwice(to="ann"))[1] == AliasedTwice(to="ann")


def test_a_value_that_does_not_fit_the_model_any_more_is_dead(db: tidelog.Store) -> None:
    db.queue("jobs", codec="json").put({"to": 5})
    queue = db.queue("jobs", codec=Mail)
    assert "ValidationError" in (queue.peek()[0].problem or "")
    assert queue.get(block=0) is None
    (dead,) = queue.dead
    assert "ValidationError" in dead.reason and dead.codec == "pydantic:Mail"
    with pytest.raises(tidelog.DecodeError, match="pydantic:Mail"):
        dead.value
    (dead,) = db.queue("jobs").dead  # another codec understands it
    assert dead.value == {"to": 5}


@pydantic_dataclass
class Point:
    x: int
    y: int


@dataclass
class Plain:
    at: date


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[int], [1, 2]),
        (int | str, "a"),
        (dict[str, date], {"a": date(2026, 1, 1)}),
        (Point, Point(1, 2)),
        (Plain, Plain(date(2026, 1, 1))),
        (Mail | UrgentMail, Mail(to="ann")),
    ],
    ids=repr,
)
def test_a_type_adapter(kind: Any, value: Any, db: tidelog.Store) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    raw, back = through(db, adapter, value)
    assert back == value and type(back) is type(value)
    assert raw == adapter.dump_json(value)


@pytest.mark.parametrize(
    ("codec", "value", "told"),
    [
        ("json", 1, "json"),
        ("msgpack", 1, "msgpack"),
        ("bytes", b"1", "bytes"),
        ("str", "1", "str"),
        ((bytes, bytes), b"1", "custom"),
        (Mail, Mail(to="ann"), "pydantic:Mail"),
        (TypeAdapter(int), 1, "pydantic"),
    ],
)
def test_the_dead_tell_the_codec(codec: Any, value: Any, told: str, db: tidelog.Store) -> None:
    queue = db.queue("jobs", codec=codec)
    queue.put(value)
    job = queue.get(block=0)
    assert job is not None and job.fail("no")
    (dead,) = queue.dead
    assert dead.codec == told and dead.value == value


@pytest.mark.parametrize("codec", ["yaml", "JSON", None, 5, (bytes,), (bytes, 5), dict, {}])
def test_what_is_no_codec_is_refused(codec: Any, db: tidelog.Store, tmp_path: Path) -> None:
    with pytest.raises(tidelog.DataError, match="codec must be one of json, msgpack, bytes, str"):
        db.queue("jobs", codec=codec)
    with pytest.raises(tidelog.DataError, match="codec"):
        tidelog.queue(tmp_path / "s", "jobs", codec=codec)


def test_what_cannot_be_decoded_goes_to_the_dead_and_the_worker_goes_on(db: tidelog.Store) -> None:
    raw = db.queue("jobs", codec="bytes")
    raw.put_many([b'"a"', b"{", b'"b"', b"\xff"])
    queue = db.queue("jobs")
    seen = []
    for job in queue.consume("anna", block=0):
        with job:
            seen.append(job.value)
    assert seen == ["a", "b"] and len(queue) == 0
    assert [dead.raw for dead in queue.dead] == [b"{", b"\xff"]
    assert all(dead.reason.startswith("DecodeError") for dead in queue.dead)
