"""Codecs: encode the values of jobs as bytes, and decode them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgpack

from tidelog.store.errors import DataError

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """How a queue's values become bytes and back.

    name      recorded in dead jobs
    encode    value -> bytes; may raise anything
    decode    bytes -> value; may raise anything
    given     as the program gave it, which other processes can import
    """

    name: str
    encode: Encode
    decode: Decode
    given: Any = field(default=None, repr=False, compare=False)


_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_json_value = json.JSONDecoder().decode


_open: dict[int, Any] = {}  # objects being encoded, by id(); the encoder uses it to find cycles


def _json_parts() -> Callable[[Any, int], Iterable[str]]:
    """The function that makes the JSON text of a value. `_json` makes such a function for each value, which is half of
    the work for small values.

    This uses internals of the json module. If they are not as expected, fall back to the documented `_json.encode`.
    """
    try:
        make: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
        strings = json.encoder.encode_basestring
        parts: Callable[[Any, int], Iterable[str]] = make(
            _open, _json.default, strings, None, ":", ",", False, False, False
        )
        if "".join(parts({"a": [1.5, "\u00e4"]}, 0)) == '{"a":[1.5,"\u00e4"]}':
            return parts
    except (AttributeError, TypeError):
        pass
    return lambda value, _: (_json.encode(value),)


_parts = _json_parts()


def _encode_json(value: Any) -> bytes:
    try:
        return "".join(_parts(value, 0)).encode()
    except Exception:
        # The error may be false: `_parts` reports a cycle if another thread is encoding the same object. The documented
        # encoder, `_json`, does not mix up threads, and raises the right error in all other cases.
        _open.clear()
        return _json.encode(value).encode()


def _decode_json(raw: bytes) -> Any:
    return _json_value(raw.decode())


def _encode_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a bytes-like object is required, not {type(value).__name__!r}")


def _encode_str(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"a str is required, not {type(value).__name__!r}")
    return value.encode()


def _decode_msgpack(raw: bytes) -> Any:
    return msgpack.unpackb(raw, strict_map_key=False)


NAMED = {
    "json": Codec("json", _encode_json, _decode_json),
    "msgpack": Codec("msgpack", msgpack.packb, _decode_msgpack),
    "bytes": Codec("bytes", _encode_bytes, bytes),
    "str": Codec("str", _encode_str, bytes.decode),
}


def codec_of(given: Any) -> Codec:
    """The codec of a name, a pair (encode, decode), a pydantic model or a pydantic TypeAdapter. Raises DataError."""
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]
    if isinstance(given, Codec):
        return given
    if isinstance(given, tuple) and len(given) == 2 and all(map(callable, given)):
        return Codec("custom", _checked(given[0]), given[1], given)
    if isinstance(given, type) and hasattr(given, "model_validate_json"):
        return _model(given)
    if hasattr(given, "validate_json") and hasattr(given, "dump_json"):
        return Codec("pydantic", partial(_encode_adapted, given), given.validate_json, given)
    raise DataError(
        f"codec must be one of {', '.join(NAMED)}, a pair of functions (encode, decode), "
        f"a pydantic model or a TypeAdapter, not {given!r}"
    )


def _checked(encode: Callable[[Any], Any]) -> Encode:
    def encoded(value: Any) -> bytes:
        return _encode_bytes(encode(value))

    return encoded


def _encode_adapted(adapter: Any, value: Any) -> bytes:
    # Validate first. dump_json checks little, so it could encode an invalid value, and then the job could not be
    # decoded.
    raw: bytes = adapter.dump_json(adapter.validate_python(value), by_alias=True)
    return raw


def _model(model: Any) -> Codec:
    def encode(value: Any) -> bytes:
        if not isinstance(value, model):
            raise TypeError(f"a {model.__name__} is required, not {type(value).__name__!r}")
        text: str = value.model_dump_json(by_alias=True)  # the names that validation expects
        return text.encode()

    return Codec(f"pydantic:{model.__name__}", encode, model.model_validate_json, model)
