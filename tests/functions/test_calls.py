"""Calls: the arguments of a function, stored and back, however it takes them."""

from __future__ import annotations

import inspect
from datetime import date
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.functions.calls import Calls, dedup_id
from tidelog.functions.errors import Changed
from tidelog.jobs.codecs import NAMED
from tidelog.store.errors import EncodeError

DAY = date(2026, 1, 2)


def plain(a: int, b: str = "b", *, c: bool = True, d: None = None) -> Any: ...
def placed(a: int, /, b: date, *rest: date, c: date = DAY, **more: date) -> Any: ...
def without(a, b=1, *rest, c=2, **more): ...  # type: ignore[no-untyped-def]  # fmt: skip
def mixed(a: int, b: date | None = None, c: Any = None) -> Any: ...


VALUES = st.sampled_from([0, 1, True, False, None, "x", 1.5, DAY, [1], {"k": 1}, b"x"])
ARGS = st.lists(VALUES, max_size=4).map(tuple)
KWARGS = st.dictionaries(st.sampled_from("abcdx"), VALUES, max_size=4)


def outcome(call: Any, *given: Any) -> Any:
    """The text of a call's result, in which True is not 1; or its error."""
    try:
        return repr(call(*given))
    except (TypeError, EncodeError, Changed) as error:
        return type(error), str(error)


@given(st.sampled_from([plain, mixed, placed, without]), ARGS, KWARGS)
def test_arguments_that_are_stored_as_they_are(function: Any, args: Any, kwargs: Any) -> None:
    """The fast path and the general one agree, and so do they with a call of the function."""
    calls = Calls("name", function, False)
    fast, general = outcome(calls.pack, args, kwargs), outcome(calls.pack_each, args, kwargs)
    if isinstance(fast, tuple):
        assert fast == general
        if fast[0] is TypeError:
            with pytest.raises(TypeError):
                inspect.signature(function).bind(*args, **kwargs)
        return
    stored, each = calls.pack(args, kwargs), calls.pack_each(args, kwargs)
    assert sorted(stored.items(), key=repr) == sorted(each.items(), key=repr)
    assert outcome(calls.unpack, stored) == outcome(calls.unpack_each, stored)
    back_args, back_kwargs = calls.unpack(stored)
    bound = inspect.signature(function).bind(*back_args, **back_kwargs)
    assert bound.arguments == inspect.signature(function).bind(*args, **kwargs).arguments


TEXTS = st.text(st.characters(), max_size=8)  # surrogates, too
JSON = st.one_of(TEXTS, st.integers(), st.booleans(), st.none())


@given(ARGS, st.dictionaries(st.sampled_from("abcd"), st.one_of(VALUES, JSON), max_size=4), TEXTS)
def test_a_job_that_is_encoded_at_once(args: Any, kwargs: Any, name: str) -> None:
    """It is the encoded form of what the general path stores, or the general path tells why not."""
    assume(is_text(name))
    calls = Calls(name, plain, False)
    for codec, each in (("json", calls), ("msgpack", Calls(name, plain, True))):
        encoded = each.encoded(args, kwargs)
        if encoded is not None:
            stored = stored_as_declared(each.pack_each(args, kwargs))
            assert encoded == NAMED[codec].encode({"task": name, "args": stored})
    text = kwargs.get("b")
    if isinstance(text, str) and is_text(text):
        assert calls.encoded((), {"a": 1, "b": text}) is not None


def is_text(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def stored_as_declared(stored: dict[str, Any]) -> dict[str, Any]:
    """The same in the order of the parameters."""
    return {name: stored[name] for name in "abcd" if name in stored}


@given(st.sampled_from([plain, mixed]), KWARGS)
def test_stored_arguments_that_do_not_fit(function: Any, stored: Any) -> None:
    calls = Calls("name", function, False)
    assert outcome(calls.unpack, stored) == outcome(calls.unpack_each, stored)


def test_the_same_call_has_one_dedup_id() -> None:
    calls = Calls("name", mixed, True)
    first = dedup_id("name", calls.pack((1, DAY), {"c": b"\xff"}))
    assert first == dedup_id("name", calls.pack((), {"c": b"\xff", "b": DAY, "a": 1}))
    assert first != dedup_id("other", calls.pack((1, DAY), {"c": b"\xff"}))
    assert first != dedup_id("name", calls.pack((1, DAY), {"c": b"\xfe"}))
    assert first.startswith("name:") and len(first) == 37
