"""Values, texts and lengths of time as tidelog queue shows them."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.tools.queue.value import CELL, CODECS, age_text, cell, decoded, lines, one_line


@given(raw=st.binary(max_size=60), codec=st.sampled_from(CODECS))
def test_any_bytes_can_be_shown(raw: bytes, codec: str) -> None:
    value = decoded(raw, codec)
    assert value.text.isprintable()
    json.loads(json.dumps(value.fields(), allow_nan=False))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(value=json_values)
def test_json_comes_through(value: object) -> None:
    found = decoded(json.dumps(value).encode(), "json")
    assert (found.plain, found.problem) == (value, None)
    assert found.text.isprintable()


@pytest.mark.parametrize(
    ("raw", "codec", "text", "plain"),
    [
        (b'{"a": [1, 2.5, null]}', "json", '{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (b'"\\ud800"', "json", '"\\ud800"', "\ud800"),
        (b"NaN", "json", '"nan"', "nan"),
        ("tr\u00e4\x1b[2J\n".encode(), "str", "trä\\x1b[2J\\n", "trä\x1b[2J\n"),
        (b"", "str", "", ""),
        (b"", "bytes", '""', ""),
        (b"\xff", "bytes", '"\\xff"', {"base64": "/w=="}),
        (msgpack.packb({1: b"\xff", "b": b"x"}), "msgpack",
         '{"1": {"base64": "/w=="}, "b": "x"}', {"1": {"base64": "/w=="}, "b": "x"}),
        (msgpack.packb(msgpack.Timestamp(1, 5)), "msgpack",
         '"Timestamp(seconds=1, nanoseconds=5)"', "Timestamp(seconds=1, nanoseconds=5)"),
    ],
)  # fmt: skip
def test_values(raw: bytes, codec: str, text: str, plain: object) -> None:
    assert decoded(raw, codec) == (text, plain, None)


@pytest.mark.parametrize(
    ("raw", "codec", "problem"),
    [
        (b"", "json", "not json: Expecting value"),
        (b"\xff", "json", "not json: 'utf-8' codec can't decode"),
        (b"[" * 100_000, "json", "not json: "),
        (b"[" * 200 + b"]" * 200, "json", "not json: nested more than 100 levels deep"),
        (b"1" * 5000, "json", "not json: "),
        (b"\xff", "str", "not UTF-8: "),
        (b"", "msgpack", "not msgpack: "),
        (b"\xc1", "msgpack", "not msgpack: "),
        (b"\x01\x02", "msgpack", "not msgpack: "),
        (b"\x91" * 100_000, "msgpack", "not msgpack: "),
    ],
)
def test_what_cannot_be_decoded(raw: bytes, codec: str, problem: str) -> None:
    found = decoded(raw, codec)
    assert found.problem is not None and found.problem.startswith(problem)
    assert found.problem.isprintable() and found.text.endswith(f"  ({found.problem})")


def test_texts() -> None:
    assert one_line("a\tb\x00\u202e\n") == "a\\tb\\x00\\u202e\\n"
    assert lines("a\n\tb\x1b\r\n") == ["a", "        b\\x1b"]
    assert cell("x" * CELL) == "x" * CELL
    assert cell("x" * (CELL + 1)) == "x" * (CELL - 3) + "..."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-1.0, "0.0s"),
        (0.25, "0.2s"),
        (9.99, "10.0s"),
        (59.9, "59s"),
        (60.0, "1m 0s"),
        (3600.0, "1h 0m"),
        (93_784.0, "1d 2h"),
        (1e9, "11574d 1h"),
    ],
)
def test_ages(seconds: float | None, text: str) -> None:
    assert age_text(seconds) == text
