"""The values of jobs, and the texts that came with them, as people and programs read them.

Whatever bytes a job holds can be shown: what its codec cannot read comes as escaped bytes with the reason, and no
text can move the cursor of a terminal.
"""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime
from typing import Any, Final, NamedTuple

from tidelog.store.queue.codecs import NAMED
from tidelog.tools.text import argument, json_value, milliseconds, time_text

CODECS: Final = ("json", "bytes", "str", "msgpack")
CELL: Final = 60  # characters of a value or an error in a table
DEPTH_MAX: Final = 100  # of a value that is shown; far below what the interpreter can recurse


class Value(NamedTuple):
    """A job's value: for a table, for JSON, and why it could not be decoded (None: it could)."""

    text: str
    plain: Any
    problem: str | None

    def fields(self) -> dict[str, Any]:
        """What a JSON object says of it."""
        return {"value": self.plain, "undecodable": self.problem}


def decoded(raw: bytes, codec: str) -> Value:
    """The value in `raw` as one of CODECS reads it."""
    if codec == "bytes":
        return Value(argument(raw), json_value(raw), None)
    try:
        value = plain(NAMED[codec].decode(raw))
        text = value if codec == "str" else json.dumps(value, ensure_ascii=False)
    except Exception as error:  # anything may stand there, and a codec has many ways to refuse it
        reason = one_line(str(error) or type(error).__name__)
        return undecodable(raw, f"not {'UTF-8' if codec == 'str' else codec}: {reason}")
    return Value(one_line(text), value, None)


def undecodable(raw: bytes, problem: str) -> Value:
    """Bytes that are shown as they are, and why."""
    return Value(f"{argument(raw)}  ({problem})", json_value(raw), problem)


def plain(value: Any, depth: int = 0) -> Any:
    """A decoded value as JSON can hold it. Raises ValueError where it is nested too deeply."""
    if depth > DEPTH_MAX:
        raise ValueError(f"nested more than {DEPTH_MAX} levels deep")
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(plain(key, depth + 1)): plain(inner, depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(inner, depth + 1) for inner in value]
    if isinstance(value, bytes):
        return json_value(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return repr(value)  # msgpack's timestamps and extensions


def one_line(text: str) -> str:
    """Text without anything that is no printable character, escaped; in what standard output can encode."""
    escaped = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def lines(text: str) -> list[str]:
    """The lines of a text of several, a traceback, each as `one_line`, with its indentation."""
    return [one_line(line.expandtabs()) for line in text.splitlines()]


def cell(text: str) -> str:
    """A text of one line as a table has room for it."""
    return text if len(text) <= CELL else text[: CELL - 3] + "..."


def value_cell(value: Value) -> str:
    """A value in a table; the reason why it is undecodable is not what is left out."""
    if value.problem is None:
        return cell(value.text)
    raw = value.text.removesuffix(f"  ({value.problem})")
    return f"{cell(raw)}  ({value.problem})"


def jobs_text(count: int, kind: str = "") -> str:
    """A number of jobs of a kind."""
    return f"{count:,} {kind}job{'' if count == 1 else 's'}"


def moment_text(moment: datetime | None) -> str:
    """As all commands show a time; `-` for one that is not known."""
    return "-" if moment is None else time_text(milliseconds(moment))


def age_text(seconds: float | None) -> str:
    """A length of time in its two largest units: `3d 4h`, `5m 12s`, `0.3s`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    left, parts = int(seconds), list[str]()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
