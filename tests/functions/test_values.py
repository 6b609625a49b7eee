"""Values: what each annotation takes, how it is stored, and what comes back; and what no job can hold."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tidelog.functions.errors import Unfit
from tidelog.functions.values import form_of

ID = UUID("12345678-1234-5678-1234-567812345678")
CUSTOMER = NewType("CUSTOMER", int)


class Color(enum.Enum):
    RED = (1, 2)
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    HELLO = "hello"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    at: datetime | None = None


@dataclass
class Item:
    name: str
    price: Decimal = Decimal(0)
    parts: list[Item] = field(default_factory=list)
    total: int = field(init=False, default=7)


@dataclass(frozen=True, slots=True)
class Slotted:
    when: date


@pydantic_dataclass
class Checked:
    amount: int
    when: datetime


class Address(TypedDict):
    street: str
    since: NotRequired[date]


class Model(BaseModel):
    model_config = ConfigDict(strict=True)
    when: datetime
    amount: Decimal = Field(alias="sum")
    inner: Item | None = None


MODEL = Model(when=datetime(2026, 1, 1, tzinfo=UTC), sum=Decimal("1.50"))
WHEN = datetime(2026, 5, 4, 3, 2, 1, 7, tzinfo=timezone(timedelta(hours=2)))

# fmt: off
CASES: list[tuple[Any, Any, Any]] = [  # annotation, value, as JSON
    (None, None, None),
    (bool, True, True),
    (int, 1 << 60, 1 << 60),
    (float, 1.5, 1.5),
    (str, "\u00e4", "\u00e4"),
    (bytes, b"\x00\xff", "AP8="),
    (datetime, WHEN, "2026-05-04T03:02:01.000007+02:00"),
    (datetime, datetime(2026, 1, 1), "2026-01-01T00:00:00"),
    (date, date(2026, 1, 2), "2026-01-02"),
    (time, time(3, 4, tzinfo=UTC), "03:04:00+00:00"),
    (timedelta, timedelta(days=-1, microseconds=1), -86_399_999_999),
    (Decimal, Decimal("1.50"), "1.50"),
    (Decimal, Decimal("-Infinity"), "-Infinity"),
    (UUID, ID, str(ID)),
    (Color, Color.RED, "RED"),
    (Level, Level.LOW, "LOW"),
    (Word, Word.HELLO, "HELLO"),
    (Rights, Rights.READ | Rights.WRITE, 3),
    (Literal["a", 3, None], 3, 3),
    (CUSTOMER, 7, 7),
    (Annotated[int, "cents"], 7, 7),
    (Optional[datetime], None, None),
    (datetime | None, WHEN, WHEN.isoformat()),
    (int | str | None, "x", "x"),
    (int | list[date], [date(2026, 1, 2)], ["2026-01-02"]),
    (list[Decimal], [Decimal(1)], ["1"]),
    (set[int], {1}, [1]),
    (frozenset[UUID], frozenset([ID]), [str(ID)]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple[int, datetime], (1, WHEN), [1, WHEN.isoformat()]),
    (tuple[()], (), []),
    (Point, Point(1, WHEN), [1, WHEN.isoformat()]),
    (Sequence[int], [1, 2], [1, 2]),
    (Iterable[str], ["a"], ["a"]),
    (dict[str, Decimal], {"a": Decimal(1)}, {"a": "1"}),
    (dict[UUID, int], {ID: 1}, {str(ID): 1}),
    (dict[int, set[str]], {1: {"a"}}, [[1, ["a"]]]),
    (Mapping[str, Any], {"a": [1, None]}, {"a": [1, None]}),
    (dict, {"a": 1}, {"a": 1}),
    (list, [1, "a", None], [1, "a", None]),
    (Any, {"a": [1, {"b": 1.5}]}, {"a": [1, {"b": 1.5}]}),
    (Item, Item("tea", Decimal(2), [Item("leaf")]), {"name": "tea", "price": "2", "parts": [
        {"name": "leaf", "price": "0", "parts": []}]}),
    (Slotted, Slotted(date(2026, 1, 2)), {"when": "2026-01-02"}),
    (Checked, Checked(1, WHEN), {"amount": 1, "when": WHEN.isoformat()}),
    (Address, {"street": "S"}, {"street": "S"}),
    (Address, {"street": "S", "since": date(2026, 1, 2)}, {"street": "S", "since": "2026-01-02"}),
    (Model, MODEL, {"when": "2026-01-01T00:00:00Z", "sum": "1.50", "inner": None}),
    (list[Model | None], [MODEL, None], [{"when": "2026-01-01T00:00:00Z", "sum": "1.50", "inner": None}, None]),
]
# fmt: on


@pytest.mark.parametrize("case", CASES, ids=[str(case[0]) for case in CASES])
def test_what_is_stored_comes_back(case: tuple[Any, Any, Any]) -> None:
    annotation, value, stored = case
    form = form_of(annotation, False)
    assert form.pack(value) == stored
    back = form.unpack(json.loads(json.dumps(form.pack(value), allow_nan=False)))
    assert back == value and type(back) is type(value)
    packed = form_of(annotation, True).pack(value)
    back = form_of(annotation, True).unpack(msgpack.unpackb(msgpack.packb(packed)))
    assert back == value and type(back) is type(value)


def test_bytes_are_themselves_in_msgpack() -> None:
    assert form_of(bytes, True).pack(b"\xff") == b"\xff"
    assert form_of(Any, True).pack([b"\xff"]) == [b"\xff"]


@given(
    st.datetimes(timezones=st.just(UTC) | st.none()), st.timedeltas(), st.decimals(), st.binary()
)
def test_any_value_comes_back(
    when: datetime, length: timedelta, number: Decimal, raw: bytes
) -> None:
    when = when.replace(fold=0)  # ISO 8601 does not have it
    form = form_of(tuple[datetime, timedelta, Decimal, bytes], False)
    back = form.unpack(json.loads(json.dumps(form.pack((when, length, number, raw)))))
    assert repr(back) == repr((when, length, number, raw))  # of Decimal, NaN and digits too


class Own(int):
    pass


def test_a_value_of_a_class_of_its_own_is_stored_as_its_base() -> None:
    found = form_of(int, False).pack(Own(3))
    assert (found, type(found)) == (3, int)
    text = form_of(str, False).pack(Word.HELLO)
    assert (text, type(text)) == ("hello", str)
    whole = form_of(float, False).pack(3)
    assert (whole, type(whole)) == (3.0, float)


# fmt: off
WRONG: list[tuple[Any, Any, str]] = [
    (str, 7, "must be str, not int"),
    (int, True, "must be int, not bool"),
    (int, 1.0, "must be int, not float"),
    (float, "1", "must be float, not str"),
    (float, float("nan"), "is nan, which JSON does not have"),
    (date, WHEN, "must be date, not datetime"),
    (datetime, "2026-01-01", "must be datetime, not str"),
    (Color, "RED", "must be Color, not str"),
    (Literal["a"], "b", "must be one of 'a', not 'b'"),
    (Any, WHEN, "is of type datetime, and has no annotation that restores it"),
    (Any, {1: 2}, "has a key of type int, and no annotation"),
    (Any, [1, {"a": {3}}], "has item 1 that has 'a' that is of type set, and has no annotation that restores it"),
    (dict, {1: 2}, "has keys that are not str"),
    (list[int], "12", "must be list[int], not str"),
    (list[int], [1, "2"], "has item 1 that must be int, not str"),
    (list[int], (1,), "must be list[int], not tuple"),
    (tuple[int, str], (1,), "must be tuple of 2 items"),
    (dict[str, int], {"a": "b"}, "has 'a' that must be int, not str"),
    (int | None, "x", "must be int | None, not str"),
    (list[int] | None, ["x"], "has item 0 that must be int, not str"),
    (str | datetime, "x", "a job cannot hold str | datetime, where str and datetime are both stored as text"),
    (Item, {"name": "tea"}, "must be Item, not dict"),
    (Item, Item(7), "has name that must be str, not int"),  # type: ignore[arg-type]
    (Model, Item("tea"), "must be Model, not Item"),
    (Address, {"street": "S", "door": 3}, "is of Address, which has no 'door'"),
    (Address, {"since": date(2026, 1, 2)}, "is of Address, which needs 'street'"),
    (object(), 1, "a job cannot hold <object"),
    (threading_lock := type("Lock", (), {}), threading_lock(), "is of type Lock: a job cannot hold Lock"),
    (threading_lock | None, threading_lock(), "is of type Lock: a job cannot hold Lock"),
]
BAD: list[tuple[Any, Any, str]] = [  # annotation, stored
    (datetime, "noon", "is no datetime: ValueError"),
    (datetime, 7, "must be datetime, not int"),
    (bytes, "%", "is no bytes: "),
    (Decimal, "1,5", "is no Decimal: InvalidOperation"),
    (UUID, "1", "is no UUID: ValueError"),
    (Color, "GREEN", "is no Color: KeyError"),
    (Literal["a", 3], 4, "must be one of 'a', 3, not 4"),
    (list[int], {}, "must be list[int], not dict"),
    (int | None, "x", "must be int | None, not str"),
    (dict[int, int], {"1": 1}, "must be dict[int, int], not dict"),
    (dict[int, int], [1], "is no dict[int, int]: TypeError"),
    (Item, [], "must be Item, not list"),
    (Item, {"name": "tea", "colour": 1}, "is of Item, which has no 'colour'"),
    (Item, {}, "is of Item, which needs 'name'"),
    (Checked, {"amount": "x", "when": "2026-01-01T00:00:00"}, "has amount that must be int, not str"),
    (Model, {"when": "noon", "sum": "1"}, "is no Model: ValidationError"),
]
# fmt: on


@pytest.mark.parametrize("case", WRONG, ids=[str(case[2]) for case in WRONG])
def test_what_cannot_be_stored(case: tuple[Any, Any, str]) -> None:
    annotation, value, said = case
    with pytest.raises(Unfit) as caught:
        form_of(annotation, False).pack(value)
    assert said in str(caught.value)


@pytest.mark.parametrize("case", BAD, ids=[str(case[2]) for case in BAD])
def test_what_cannot_be_restored(case: tuple[Any, Any, str]) -> None:
    annotation, raw, said = case
    with pytest.raises(Unfit) as caught:
        form_of(annotation, False).unpack(raw)
    assert said in str(caught.value)


def test_an_annotation_that_takes_no_value_may_have_a_default() -> None:
    form = form_of(threading_lock | None, False)
    assert form.pack(None) is None and form.unpack(None) is None


if sys.version_info >= (3, 12):

    def test_an_alias_of_a_type() -> None:
        names: dict[str, Any] = {}
        exec("type Alias = list[int]", names)
        assert form_of(names["Alias"], False).pack([1]) == [1]
