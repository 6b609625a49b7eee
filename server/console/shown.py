"""Shown: bytes of the store in the console's JSON. Texts are shortened, since a page cannot show megabytes."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from tidelog.jobs.codecs import NAMED

CHARS_MAX: Final = 20_000  # of one value


def text(raw: bytes) -> str:
    """Any bytes as text; what is not UTF-8 is escaped."""
    return raw.decode("utf-8", "backslashreplace")


def ref(raw: bytes) -> str:
    """A name as the page sends it back. It survives bytes that are not UTF-8."""
    return quote_from_bytes(raw, safe="")


def unref(given: str) -> bytes:
    """The bytes that `ref` wrote."""
    return unquote_to_bytes(given)


def value(raw: bytes, codec: str = "") -> dict[str, Any]:
    """A value: `text` in a readable form, `form` (json, text, msgpack or bytes), `bytes`, and whether it was `cut`."""
    form, shown = _readable(raw[: 4 * CHARS_MAX], codec, whole=len(raw) <= 4 * CHARS_MAX)
    return {
        "text": shown[:CHARS_MAX],
        "form": form,
        "bytes": len(raw),
        "cut": len(shown) > CHARS_MAX or len(raw) > 4 * CHARS_MAX,
    }


def _readable(raw: bytes, codec: str, *, whole: bool) -> tuple[str, str]:
    if whole and codec == "msgpack":
        try:
            found = NAMED["msgpack"].decode(raw)
            return "msgpack", json.dumps(found, indent=2, ensure_ascii=False, default=repr)
        except Exception:
            pass  # the bytes may be anything, so the codec may raise any error
    try:
        decoded = raw.decode()
    except UnicodeDecodeError:
        return "bytes", text(raw)
    if whole:
        try:
            return "json", json.dumps(json.loads(decoded), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return "text", decoded
