"""Show the values and texts of jobs, for people and for programs.

All bytes can be shown: a value that its codec cannot decode is printed as escaped bytes with the reason. No text can
send control characters to a terminal.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import click

from tidelog.jobs.codecs import NAMED
from tidelog.jobs.progress import Progress
from tidelog.jobs.retries import policy_of
from tidelog.store.errors import DataError
from tidelog.tools.text import argument, json_value, milliseconds, time_text

CODECS: Final = ("json", "bytes", "str", "msgpack")
F = TypeVar("F", bound=Callable[..., Any])
CELL: Final = 60  # characters of a value or an error in a table
# nesting depth of values that are shown; far below the interpreter's recursion limit
DEPTH_MAX: Final = 100


class Value(NamedTuple):
    """A job's value: for a table, for JSON, and why it could not be decoded (None: it could)."""

    text: str
    plain: Any
    problem: str | None

    def fields(self) -> dict[str, Any]:
        """Its fields in a JSON object."""
        return {"value": self.plain, "undecodable": self.problem}


def retry_option(whose: str) -> Callable[[F], F]:
    """The option for a retry policy."""

    def checked(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
        try:
            policy_of(given)
        except DataError as error:
            raise click.BadParameter(str(error)) from None
        return given

    return click.option(
        "--retry",
        metavar="POLICY",
        callback=checked,
        help=f"How {whose} is tried again, such as 'max=8 base=2 cap=600 never=ValueError'.",
    )


def codec_option(help: str, default: str | None = "json") -> Callable[[F], F]:
    """The option --codec."""
    shown = default is not None
    return click.option(
        "--codec", type=click.Choice(CODECS), default=default, show_default=shown, help=help
    )


def count_option(what: str) -> Callable[[F], F]:
    """The option --count of a command that shows some of the jobs or failures."""
    return click.option(
        *("--count", "count"),
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help=f"Show at most this many {what}.",
    )


def decoded(raw: bytes, codec: str) -> Value:
    """The value in `raw`, decoded with one of CODECS."""
    if codec == "bytes":
        return Value(argument(raw), json_value(raw), None)
    try:
        value = plain(NAMED[codec].decode(raw))
        text = value if codec == "str" else json.dumps(value, ensure_ascii=False)
    except Exception as error:
        # the value's bytes may be anything, so the codec may raise any error
        reason = one_line(str(error) or type(error).__name__)
        return undecodable(raw, f"not {'UTF-8' if codec == 'str' else codec}: {reason}")
    return Value(one_line(text), value, None)


def undecodable(raw: bytes, problem: str) -> Value:
    """Bytes that are shown undecoded, with the reason."""
    return Value(f"{argument(raw)}  ({problem})", json_value(raw), problem)


def plain(value: Any, depth: int = 0) -> Any:
    """A decoded value in a form that JSON can hold. Raises ValueError if it is nested too deeply."""
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
    """Text with everything escaped that is not printable or that standard output cannot encode."""
    escaped = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return escaped.encode(encoding, "backslashreplace").decode(encoding)


def lines(text: str) -> list[str]:
    """The lines of a longer text such as a traceback, each as `one_line`, with its indentation."""
    return [one_line(line.expandtabs()) for line in text.splitlines()]


def cell(text: str) -> str:
    """A text of one line, shortened to fit into a table."""
    return text if len(text) <= CELL else text[: CELL - 3] + "..."


def value_cell(value: Value) -> str:
    """A value, shortened to fit into a table. The reason why it is undecodable is not shortened."""
    if value.problem is None:
        return cell(value.text)
    raw = value.text.removesuffix(f"  ({value.problem})")
    return f"{cell(raw)}  ({value.problem})"


def jobs_text(count: int, kind: str = "") -> str:
    """A number of jobs of a kind."""
    return f"{count:,} {kind}job{'' if count == 1 else 's'}"


def progress_text(come: Progress) -> str:
    """How far a job has come, on one line."""
    return one_line(f"{come.fraction:.0%} {come.text}".strip())


def moment_text(moment: datetime | None) -> str:
    """A time in the form that all commands use; `-` if it is unknown."""
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
