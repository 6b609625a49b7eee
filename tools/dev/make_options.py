"""Write the tables of docs/reference/server-options.md from server/config/options.py.

The groups of the page are the comments between the options in that file. The text outside the two marks in the page
is written by hand. Run this after every change of options.py:

    python tools/dev/make_options.py

A test compares the page with the output of this script.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tidelog.engine.integers import INT64_MAX
from tidelog.server.config.kinds import INT_MAX, Boolean, Choice, Integer, Kind, Memory, OneOf
from tidelog.server.config.options import FIXED, LOGS, OPTIONS, RUN, STORE, Option
from tidelog.tools.serve import DIRECT

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/server-options.md"
BEGIN = "<!-- from server/config/options.py, by tools/dev/make_options.py -->\n"
END = "<!-- until here -->\n"
_LINE = re.compile(r'^    (?:# (?P<group>.+)|Option\("(?P<option>[^"]+)")', re.MULTILINE)


def groups() -> dict[str, list[Option]]:
    """The options by group, in the order of the source."""
    source = (ROOT / "server/config/options.py").read_text()
    table = source[source.index("_ALL: Final = (") : source.index("# fmt: on")]
    found: dict[str, list[Option]] = {}
    for line in _LINE.finditer(table):
        if line["group"]:
            current = found.setdefault(line["group"], [])
        else:
            current.append(OPTIONS[line["option"]])
    assert sum(map(len, found.values())) == len(OPTIONS)
    return found


def values(kind: Kind) -> str:
    """The values that an option accepts, in a few words. The text above the tables, which is written by hand,
    describes each kind once.
    """
    if isinstance(kind, Memory):
        least = f" from {size(kind.low)}" if kind.low else ""
        most = f" to {size(kind.high)}" if kind.high != INT64_MAX else ""
        return f"{'0 or ' if kind.off else ''}bytes{least}{most}"
    if isinstance(kind, OneOf):
        return kind.allowed
    if isinstance(kind, Integer):
        low, high = kind.clamp or (kind.low, kind.high)
        return f"{low} or more" if high >= INT_MAX else f"{low} to {high}"
    if isinstance(kind, Boolean):
        return "yes, no"
    if isinstance(kind, Choice):
        return ", ".join(kind.words)
    return {
        "Text": "text",
        "Words": "words",
        "HostName": "text",
        "FileName": "path",
        "Secret": "text",
        "ReplicaOf": "host and port",
        "Mode": "octal digits",
        "SaveRules": "pairs of seconds and changes",
        "EventClasses": "letters",
        "OutputLimits": "class, hard, soft, seconds",
    }[type(kind).__name__]


def size(nbytes: int) -> str:
    """1048576 -> 1mb."""
    for unit, factor in (("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)):
        if nbytes and nbytes % factor == 0:
            return f"{nbytes // factor}{unit}"
    return str(nbytes)


def default(option: Option) -> str:
    """The default as CONFIG GET shows it, sizes with a unit."""
    kind, value = option.kind, option.default
    shown = size(value) if isinstance(kind, Memory) else kind.show(value)
    return f"`{shown}`" if shown else "empty"


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def tables() -> str:
    """The text between the marks."""
    parts = []
    fixed: list[Option] = []
    for group, options in groups().items():
        fixed += [option for option in options if option.when == FIXED]
        rows = [
            (
                f"`{option.name}`",
                default(option),
                values(option.kind),
                "any time" if option.when == RUN else "start",
                option.help,
            )
            for option in options
            if option.when != FIXED
        ]
        if rows:
            parts.append(f"### {group}\n\n")
            parts.append(table(("option", "default", "values", "set", "meaning"), rows) + "\n")
    parts.append("### Fixed\n\n")
    stated = ", ".join(f"`{option.name}` ({default(option)})" for option in fixed)
    text = (
        "Clients and tools ask for these options, which state how tidelog works; setting another value is an error: "
        f"{stated}."
    )
    parts.append(textwrap.fill(text, 118, break_on_hyphens=False, break_long_words=False) + "\n")
    parts.append("\n## On the command line\n\n")
    flags = {f"--{name.replace('_', '-')}": target for name, target in DIRECT.items()}
    alike = ", ".join(f"`{flag}`" for flag, target in flags.items() if flag == f"--{target}")
    others = " and ".join(
        f"`{flag}` (`{target}`)" for flag, target in flags.items() if flag != f"--{target}"
    )
    text = (
        f"`tidelog serve` has flags of the same name for some options: {alike}; and {others}. Set all other options "
        "with `--option NAME=VALUE`."
    )
    parts.append(textwrap.fill(text, 118, break_on_hyphens=False) + "\n")
    parts.append("\n## In a program\n\n")
    owners = {kind: names(kind) for kind in (STORE, LOGS)}
    text = (
        "`tidelog.serve` takes the same names with underscores. If it serves a store that is already open, two kinds "
        f"of options are an error. The caller of `tidelog.open` sets the options of the store: {owners[STORE]}; "
        "CONFIG SET can change those that the table marks with *any time*. The program sets up logging itself: "
        f"{owners[LOGS]}."
    )
    parts.append(textwrap.fill(text, 118, break_on_hyphens=False) + "\n")
    return "".join(parts)


def names(of: str) -> str:
    """The names of the options of one kind (SERVER, STORE or LOGS), without fixed ones."""
    found = [o.name for o in OPTIONS.values() if o.of == of and o.when != FIXED]
    return ", ".join(f"`{name}`" for name in found)


def page() -> str:
    """The text of the page with new tables."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
