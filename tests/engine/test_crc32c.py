"""The files are the same with every implementation of CRC-32C that may be installed."""

import importlib
import sys
import warnings
from collections.abc import Callable
from types import ModuleType

import crcmod.predefined  # type: ignore[import-untyped]
import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.engine import crc32c as module
from tidelog.engine.crc32c import crc32c, crc32c_after, crc32c_of

in_crcmod: Callable[[bytes, int], int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


def in_python(data: bytes, value: int) -> int:
    """The definition, bit by bit."""
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_published_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c_of(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_all_implementations_agree(first: bytes, second: bytes) -> None:
    want = in_python(first + second, 0)
    assert crc32c_of(first + second) == want
    assert crc32c(second, crc32c(first)) == want
    assert crc32c_after(crc32c_of(first), second) == want
    assert in_crcmod(second, in_crcmod(first, 0)) == want
    assert google_crc32c.extend(google_crc32c.value(first), second) == want


def reimported(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delitem(sys.modules, module.__name__)
    return importlib.import_module(module.__name__)


def test_crcmod_serves_where_google_crc32c_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fallback = reimported(monkeypatch)
    assert fallback.IMPLEMENTATION == "crcmod"
    assert fallback.crc32c(b"6789", fallback.crc32c(b"12345")) == 0xE3069283
    assert fallback.crc32c_of(b"123456789") == 0xE3069283
    assert fallback.crc32c_after(fallback.crc32c_of(b"12345"), b"6789") == 0xE3069283


def test_pure_python_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    monkeypatch.setitem(sys.modules, "crcmod._crcfunext", None)
    for name in ("crcmod", "crcmod.crcmod", "crcmod.predefined"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.warns(RuntimeWarning, match="pure Python"):
        fallback = reimported(monkeypatch)
    assert fallback.crc32c(b"123456789") == 0xE3069283
