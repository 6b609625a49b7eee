"""Values: the forms of the fields of entries other than an array of (name, value).

    map     name -> value. If a field repeats in an entry, the map has the first one's value
    json    a JSON object per entry, as text; a field that repeats appears once, with the first value
    wide    a column per field that the user's schema names, with its type; null if an entry lacks the field

Text is UTF-8. A value that is not UTF-8, or does not have its column's type, becomes null or fails the read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.columns import Array, Cells, FieldColumns

BAD_VALUE: Final = "TIDELOG_BAD_VALUE"
READ_AS_NULL: Final = "set onBadValue=null to read such values as null"
SHOWN_BYTES: Final = 60
_PLAIN_JSON: Final = r'^[^"\\\x00-\x1f]*$'

WIDE_TYPES: Final = (
    *(pa.binary(), pa.string(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.date32(), schemas.TIME),
)


def field_type(form: str, decode: str) -> pa.DataType:
    """The type of the column `fields`."""
    text = schemas.TEXT if decode == "utf8" else schemas.BYTES
    if form == "json":
        return schemas.TEXT
    return pa.map_(text, text) if form == "map" else schemas.pairs_of(text)


def field_columns(
    form: str, decode: str, on_bad_value: str, wide: Mapping[str, pa.DataType]
) -> FieldColumns:
    """The function that makes the columns of the fields. `wide`: the columns of form "wide"."""
    null = on_bad_value == "null"
    text = decode == "utf8"

    def array(cells: Cells) -> Mapping[str, Array]:
        names, values = _both(cells, text, null)
        parts = pa.StructArray.from_arrays([names, values], ["name", "value"])
        kind = schemas.pairs_of(names.type)
        return {"fields": pa.ListArray.from_arrays(cells.offsets, parts, type=kind)}

    def as_map(cells: Cells) -> Mapping[str, Array]:
        cells = _first_of_each(cells)
        names, values = _both(cells, text, null)
        return {"fields": pa.MapArray.from_arrays(cells.offsets, names, values)}

    def as_json(cells: Cells) -> Mapping[str, Array]:
        cells = _first_of_each(cells)
        names, values = _both(cells, True, null)
        members = pc.binary_join_element_wise(_quoted(names), _quoted(values), ":")
        joined = pc.binary_join(pa.ListArray.from_arrays(cells.offsets, members), ",")
        return {"fields": pc.binary_join_element_wise("{", joined, "}", "")}

    def as_wide(cells: Cells) -> Mapping[str, Array]:
        return {
            name: typed(_column_of(cells, name.encode()), kind, null, name)
            for name, kind in wide.items()
        }

    forms: dict[str, Callable[[Cells], Mapping[str, Array]]] = {
        "array": array,
        "map": as_map,
        "json": as_json,
        "wide": as_wide,
    }
    return forms[form]


def _both(cells: Cells, text: bool, null: bool) -> tuple[Array, Array]:
    names, values = cells.names(), cells.values
    if text:
        # Names that are not UTF-8 always raise, because a key of a map cannot be null.
        names = decoded(names, False, "a field's name", "read the fields with decode=none")
        return names, decoded(values, null, "a value")
    return names, values


def decoded(array: Array, null: bool, what: str, remedy: str = READ_AS_NULL) -> Array:
    """Bytes as text. Bytes that are not UTF-8 become null, or raise TidelogSparkError."""
    try:
        return pc.cast(array, schemas.TEXT)
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    for value in array.to_pylist():
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            if not null:
                raise _bad(what, value, "is not UTF-8", remedy) from None
            texts.append(None)
    return pa.array(texts, schemas.TEXT)


def _bad(what: str, value: bytes, fault: str, remedy: str = READ_AS_NULL) -> TidelogSparkError:
    shown = repr(value[:SHOWN_BYTES]) + ("..." if len(value) > SHOWN_BYTES else "")
    return TidelogSparkError(BAD_VALUE, f"{what}, {shown}, {fault}; {remedy}")


def _quoted(texts: Array) -> Array:
    """Texts as JSON strings; null as JSON's null."""
    plain = pc.match_substring_regex(texts, _PLAIN_JSON)
    if not pc.all(pc.fill_null(plain, False)).as_py():
        return pa.array(
            [json.dumps(each, ensure_ascii=False) for each in texts.to_pylist()], schemas.TEXT
        )
    return pc.binary_join_element_wise('"', texts, '"', "")


def _first_of_each(cells: Cells) -> Cells:
    """The same cells without repeated fields: only the first field of each name in an entry stays."""
    doubled = [len(set(shape)) < len(shape) for shape in cells.shapes]
    if not any(doubled):
        return cells
    offsets = np.asarray(cells.offsets)
    counts = np.diff(offsets)
    shape_of = np.zeros(len(counts), np.int32) if cells.shape_of is None else cells.shape_of
    keep = np.ones(int(offsets[-1]), bool)
    for number, shape in enumerate(cells.shapes):
        if doubled[number]:
            starts = offsets[:-1][shape_of == number]
            for at, name in enumerate(shape):
                if name in shape[:at]:
                    keep[starts + at] = False
    mask = pa.array(keep)
    names = cells.names
    kept = np.add.reduceat(keep, offsets[:-1]) if len(counts) else counts
    kept = np.where(counts == 0, 0, kept)
    ends = np.concatenate((np.zeros(1, np.int32), np.cumsum(kept, dtype=np.int32)))
    return Cells(
        lambda: names().filter(mask), cells.values.filter(mask), pa.array(ends), cells.shapes, cells.shape_of
    )  # fmt: skip


def _column_of(cells: Cells, name: bytes) -> Array:
    """The first value of a field in each entry; null if it has none."""
    places = np.array(
        [shape.index(name) if name in shape else -1 for shape in cells.shapes], np.int64
    )
    starts = np.asarray(cells.offsets)[:-1].astype(np.int64)
    place = np.full(len(starts), places[0]) if cells.shape_of is None else places[cells.shape_of]
    missing = place < 0
    return cells.values.take(pa.array(np.where(missing, 0, starts + place), mask=missing))


def typed(column: Array, kind: pa.DataType, null: bool, name: str) -> Array:
    """Bytes as another type. A value that is not of that type becomes null, or raises TidelogSparkError."""
    what = f"column {name}: a value"
    if kind == schemas.BYTES:
        return column
    texts = decoded(column, null, what)
    if kind == schemas.TEXT:
        return texts
    try:
        return _cast(texts, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    values: list[Any] = []
    for value in texts.to_pylist():
        try:
            values.append(None if value is None else _cast(pa.array([value]), kind)[0].as_py())
        except (pa.ArrowInvalid, ValueError, OverflowError):
            if not null:
                raise _bad(what, value.encode(), f"is no {kind}") from None
            values.append(None)
    return pa.array(values, kind)


def _cast(texts: Array, kind: pa.DataType) -> Array:
    if kind == schemas.TIME:
        # If no time has a zone, all are UTC: cast them without a zone first. Arrow refuses a column that mixes both
        # forms.
        zoned = pc.match_substring_regex(texts, r"(Z|[+-]\d\d(:?\d\d)?)$")
        if not pc.any(zoned).as_py():
            return pc.cast(pc.cast(texts, pa.timestamp("us")), kind)
    return pc.cast(texts, kind)
