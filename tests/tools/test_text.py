"""Bytes, times and sizes as the command line shows them."""

import ast
import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.tools import text


# fmt: off
@pytest.mark.parametrize(("value", "shown"), [
    (b"XADD", "XADD"),
    (b"a-b:c{1}", "a-b:c{1}"),
    (b"", '""'),
    (b"two words", '"two words"'),
    (b'say "hi"', '"say \\"hi\\""'),
    (b"a'b", '"a\'b"'),
    (b"line\r\n\ttab", '"line\\r\\n\\ttab"'),
    (b"\x00\xff\x07\x08", '"\\x00\\xff\\a\\b"'),
    (b"back\\slash", "back\\slash"),
    (b"back \\slash", '"back \\\\slash"'),
    ("\u00e4".encode(), '"\\xc3\\xa4"'),
])
# fmt: on
def test_argument(value: bytes, shown: str) -> None:
    assert text.argument(value) == shown


@pytest.mark.parametrize("byte", range(256))
def test_argument_of_each_byte(byte: int) -> None:
    """redis-cli and Python read the same escapes."""
    value = bytes((0x20, byte, 0x20))
    shown = text.argument(value)
    assert shown.isprintable() and shown.isascii() and shown.startswith('"')
    assert ast.literal_eval(f"b{shown}") == value


@given(st.binary(max_size=30))
def test_json_value_loses_nothing(value: bytes) -> None:
    back = json.loads(json.dumps(text.json_value(value)))
    if isinstance(back, dict):
        assert base64.b64decode(back["base64"]) == value
    else:
        assert back.encode() == value


# fmt: off
@pytest.mark.parametrize(("given_text", "ms"), [
    ("1700000000000", 1_700_000_000_000),
    ("1700000000", 1_700_000_000_000),
    ("1700000000.25", 1_700_000_000_250),
    ("0", 0),
    ("99999999999", 99_999_999_999_000),
    ("100000000000", 100_000_000_000),
    ("2023-11-14T22:13:20", 1_700_000_000_000),
    ("2023-11-14T22:13:20.250+00:00", 1_700_000_000_250),
    ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
    ("10s", 1_700_000_090_000),
    ("2h", 1_700_000_100_000 - 7_200_000),
])
# fmt: on
def test_parse_time(given_text: str, ms: int) -> None:
    assert text.parse_time(given_text, 1_700_000_100_000) == ms


@pytest.mark.parametrize("junk", ["", "yesterday", "10x", "-5", "2023-13-01"])
def test_parse_time_refuses(junk: str) -> None:
    with pytest.raises(ValueError):
        text.parse_time(junk, 0)


def test_time_text() -> None:
    assert text.time_text(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert text.time_text(1 << 62) == str(1 << 62)


# fmt: off
@pytest.mark.parametrize(("size", "shown"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"),
    (1 << 20, "1.0 MiB"), (5 << 40, "5.0 TiB"), (5 << 50, "5120.0 TiB"),
])
# fmt: on
def test_size_text(size: int, shown: str) -> None:
    assert text.size_text(size) == shown


def test_columns() -> None:
    assert text.columns(("A", "COUNT"), [("x", "1"), ("yyy", "20")], right="COUNT") == (
        "A    COUNT\nx        1\nyyy     20\n"
    )


@given(st.lists(st.lists(st.sampled_from(b"aZ09 \"'\\\n\xff-"), max_size=3).map(bytes), min_size=1, max_size=4))
def test_a_line_is_its_arguments_one_by_one(command: list[bytes]) -> None:
    assert text.command_line(command) == " ".join(map(text.argument, command))
