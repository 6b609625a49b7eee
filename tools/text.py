"""Format and parse bytes, times and sizes, for people and for programs."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from os import PathLike
from typing import Any, Final

from tidelog.store.sizes import size_text as size_text
from tidelog.tools import exits

_PLAIN: Final = re.compile(rb"[!#-&(-~]+")  # printable ASCII without blanks and quotes
_PLAIN_LINE: Final = re.compile(rb"[!#-&(-~]+(?: [!#-&(-~]+)*")
_ESCAPES: Final = {
    0x07: "\\a",
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0D: "\\r",
    0x22: '\\"',
    0x5C: "\\\\",
}
# each byte inside quotes
_QUOTED: Final = [
    _ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}")
    for byte in range(256)
]
# in milliseconds this is March 1973; in seconds, the year 5138
_MILLISECONDS_FROM: Final = 10**11
_LENGTH: Final = re.compile("".join(rf"(?:(\d{{1,9}}){unit})?" for unit in "dhms"))


def argument(value: bytes) -> str:
    """One argument in the form that redis-cli reads: plain if that is unambiguous, else quoted and escaped."""
    if _PLAIN.fullmatch(value):
        return value.decode("ascii")
    inside = "".join(map(_QUOTED.__getitem__, value))
    return f'"{inside}"'


def command_line(command: Sequence[bytes]) -> str:
    """One command on one line, in the form that redis-cli reads."""
    joined = b" ".join(command)
    # Most arguments are plain, and one look at the whole line is quicker than one at each of them. A blank inside an
    # argument shows in the number of blanks.
    if joined.count(b" ") == len(command) - 1 and _PLAIN_LINE.fullmatch(joined):
        return joined.decode("ascii")
    return " ".join(map(argument, command))


def place_text(db: int, key: bytes) -> str:
    """A key; its database is shown unless it is 0."""
    return (f"[{db}] " if db else "") + argument(key)


def json_value(value: bytes) -> Any:
    """Bytes in JSON: a string if they are UTF-8, else `{"base64": "..."}`, so that nothing is lost."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def path_value(path: str | PathLike[str]) -> Any:
    """The name of a file in JSON, as `json_value`."""
    return json_value(os.fsencode(path))


@lru_cache(maxsize=256)
def time_text(ms: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC; beyond the calendar as the bare number."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def parse_time(text: str, now_ms: int) -> int:
    """Unix ms of `2026-11-21T10:00`, of a unix time, or of `15m` (as long ago: s, m, h, d).

    An ISO time without a zone is UTC. A unix time may be in seconds, or in milliseconds as in IDs and `--json`. Its
    size tells which, up to the year 5138. Raises ValueError.
    """
    ago = age_seconds(text)
    if ago is not None:
        return now_ms - ago * 1000
    if re.fullmatch(r"\d+(\.\d*)?", text):
        number = Decimal(text)
        return int(number if number >= _MILLISECONDS_FROM else number * 1000)
    moment = datetime.fromisoformat(text)
    return milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def milliseconds(moment: datetime) -> int:
    """Unix milliseconds."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def age_seconds(text: str) -> int | None:
    """The seconds of `90s`, `15m`, `2h`, `1d12h`; None for any other text, and for more digits than a length needs."""
    match = _LENGTH.fullmatch(text) if text else None
    if match is None:
        return None
    return sum(int(n) * size for n, size in zip(match.groups("0"), (86_400, 3600, 60, 1)))


def examples(*lines: str, codes: Sequence[int] = exits.READING) -> str:
    """The end of a command's help: its exit codes, if there are any, and command lines."""
    told = ", ".join(f"{code} {exits.WORDS[code]}" for code in dict.fromkeys(codes))
    head = f"Exit codes: {told}.\n\n" if told else ""
    return f"{head}\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> str:
    """A table of plain text, two blanks between columns; the columns named in `right` are right-aligned."""
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    to_right = {i for i, name in enumerate(head) if name in right.split()}
    lines = [
        "  ".join(
            cell.rjust(width) if i in to_right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join(lines) + "\n"


def span(ms: int) -> str:
    """A span of time, short."""
    seconds = max(0, ms) // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600:02}h"
