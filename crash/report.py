"""Reports: the table of a run, and a finding as a directory that can be replayed on any machine.

finding.json   what was found, in words, and which state of which moment shows it
trace          the recorded life (crash/trace.py)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tidelog.crash.calls import DIRECTORIES, RAISED
from tidelog.crash.damage import Damage, possible
from tidelog.crash.errors import BadFinding
from tidelog.crash.explore import Finding, Report
from tidelog.crash.injector import CODES, HOW, ONCE, ONWARDS, Trouble
from tidelog.crash.states import Cut, cut_at
from tidelog.crash.trace import Operation, Trace, Write, unpack
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

FORMAT: Final = 2
FINDING: Final = "finding.json"
TRACE: Final = "trace"
NO_TIME: Final = "none in this time"
TEST: Final = "test"  # the layer of a finding in a user's test (testing/crashes.py)
# Of what a trace says about itself, these are not in the second line of a description.
LONG: Final = ("steps", "first", "snapshots", "told", "line")
BYTES_MAX: Final = 1 << 24  # of finding.json
HEAD: Final = (
    "layer",
    "states there",
    "tried",
    "distinct",
    "told",
    "refused",
    "lost",
    "wrong",
    "died",
    "time",
    "not run",
)
NUMBERS: Final = HEAD[2:-2]


def rows(report: Report, layers: tuple[str, ...]) -> list[list[str]]:
    """The table of a run, one row for each layer, below HEAD. A layer that was not tried has no numbers."""
    found = []
    for layer in layers:
        counts, reason = report.of(layer), why_not_run(report, layer)
        if counts.tried:
            numbers = [f"{getattr(counts, name):,}" for name in NUMBERS]
            cells = [big(counts.there), *numbers, f"{counts.seconds:.0f} s"]
        else:
            cells = ["-"] * (len(HEAD) - 2)
        found.append([layer, *cells, reason])
    return found


def why_not_run(report: Report, layer: str) -> str:
    """The reason why a layer was not run, or not to its end; "" if it was."""
    reason = report.not_run.get(layer, "")
    return reason if reason or report.of(layer).tried else NO_TIME


def big(number: int) -> str:
    """A number that may have hundreds of digits."""
    text = str(number)
    return f"{number:,}" if len(text) <= 12 else f"{text[0]}.{text[1:3]}e{len(text) - 1}"


def save(disk: Disk, directory: Path, finding: Finding) -> None:
    """Write a finding into a new directory. Raises OSError."""
    about = finding._asdict()
    del about["trace"]
    about |= {"format": FORMAT, "state": list(finding.state), "in_words": describe(finding)}
    disk.mkdir(directory)
    recipe.publish(disk, directory / TRACE, finding.trace)
    recipe.publish(disk, directory / FINDING, json.dumps(about, indent=1).encode() + b"\n")


def load(disk: Disk, directory: Path) -> Finding:
    """Read a finding. Raises BadFinding, OSError; `trace_of` raises BadTrace."""
    path = directory / FINDING
    try:
        about: dict[str, Any] = json.loads(recipe.read(disk, path, BYTES_MAX))
        if about["format"] != FORMAT:
            raise BadFinding(
                f"{path} has the format {about['format']}, and this tidelog reads {FORMAT}; replay it with the tidelog "
                "that made it"
            )
        state = tuple(int(number) for number in about["state"])
        finding = Finding(
            layer=str(about["layer"]),
            trace=recipe.read(disk, directory / TRACE),
            time=int(about["time"]),
            state=state,
            power=bool(about["power"]),
            kind=str(about["kind"]),
            words=str(about["words"]),
            damage=None if about["damage"] is None else _damage(*about["damage"]),
            trouble=None if about["trouble"] is None else _trouble(*about["trouble"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadFinding(f"{path} is not a finding of tidelog crash: {error!r}") from error
    trace = unpack(finding.trace, str(directory / TRACE))
    if not 0 < finding.time <= len(trace.operations):
        raise BadFinding(f"{path} names operation {finding.time} of {len(trace.operations)}")
    cut = cut_at(trace, finding.time)
    if finding.damage is not None and not possible(cut.image(cut.whole), finding.damage):
        raise BadFinding(f"{path} names damage that operation {finding.time} cannot have")
    choices = cut.choices
    if len(choices) != len(state) or not all(
        0 <= number < len(choice.options) for number, choice in zip(state, choices, strict=True)
    ):
        raise BadFinding(f"{path} names a state that operation {finding.time} does not have")
    return finding


def _damage(kind: str, path: str, place: int, other: str, other_place: int) -> Damage:
    return Damage(str(kind), str(path), int(place), str(other), int(other_place))


def _trouble(files: bool, how: str, at: int, code: int, again: int, below: str = "") -> Trouble:
    codes = RAISED if below else CODES
    if how not in HOW or (how not in (ONCE, ONWARDS)) != (code == 0) or code and code not in codes:
        raise ValueError(f"no disk fails like {how} {code}")
    if below and below not in DIRECTORIES:
        raise ValueError(f"no calls fail below {below}")
    return Trouble(bool(files), how, int(at), int(code), int(again), str(below))


def describe(finding: Finding) -> list[str]:
    """A finding in lines of words."""
    trace = unpack(finding.trace, "the trace of the finding")
    cut = cut_at(trace, finding.time)
    event = "the power was cut" if finding.power else "the process ended"
    damage = [] if finding.damage is None else [f"  {finding.damage.words()}"]
    about = ", ".join(f"{key} {value}" for key, value in trace.about.items() if key not in LONG)
    head = [f"{finding.kind}: {finding.words}", f"layer {finding.layer}, {about}"]
    acknowledged = f"{cut.promised.fsynced} units as fsynced, {cut.promised.written} as written"
    if finding.layer == TEST:
        head.append(f"line {trace.about['line']}")
        acknowledged = ", ".join(trace.about["told"]) or "nothing"
    if finding.trouble is not None:
        return [*head, f"  {finding.trouble.words()}", *_steps(trace)]
    return [
        *head,
        f"after operation {finding.time} of {len(trace.operations)}, "
        f"{_operation(cut, trace.operations[finding.time - 1])}, {event}",
        f"acknowledged by then: {acknowledged}",
        *(f"  {line}" for line in cut.words(finding.state) or ["everything was there"]),
        *damage,
        *_steps(trace),
    ]


def _operation(cut: Cut, operation: Operation) -> str:
    name = type(operation).__name__
    if isinstance(operation, Write):
        return f"{name} of {len(operation.data)} bytes at {operation.offset} of {cut.path(operation.node)}"
    node = getattr(operation, "node", None)
    return name if node is None else f"{name} of {cut.path(node)}"


def _steps(trace: Trace) -> list[str]:
    steps, first = trace.about.get("steps"), trace.about.get("first")
    if steps is None:
        return []
    if first is None:
        return [f"steps: {json.dumps(steps)}"]
    return [
        f"steps of the first life: {json.dumps(steps[:first])}",
        f"of the second: {json.dumps(steps[first:])}",
    ]
