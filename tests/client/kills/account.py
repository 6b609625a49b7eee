"""Account: what happened to jobs, and to the processes meanwhile, as text for a check that fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from tests.client.kills.evidence import NS, Call, Story

JOBS_MAX: Final = 5
LINES_MAX: Final = 60


def account(story: Story, text: str) -> str:
    """The calls about the jobs that a text names by an ID or a value, and what was done to processes meanwhile."""
    about = _calls_by_name(story)
    told: list[str] = []
    seen: dict[int, Call] = {}
    for word in dict.fromkeys(re.findall(r"[\w-]+", text)):
        if word in about and len(told) < JOBS_MAX and not about[word].keys() <= seen.keys():
            calls = _of_job(about, word)
            begin = min(call.begin for call in calls.values())
            end = max(_end(story, call) for call in calls.values())
            told.append(f"{word}:\n{_lines(story, calls.values(), begin - NS, end + NS)}")
            seen |= calls
    return "\n\n".join(told) or "it names no job"


def between(story: Story, begin: int, end: int) -> str:
    """All that happened in a span."""
    calls = [call for call in story.calls if call.begin < end and _end(story, call) > begin]
    return _lines(story, calls, begin, end)


def _of_job(about: dict[str, dict[int, Call]], name: str) -> dict[int, Call]:
    """Also by its other names: a job that was delayed, or given back, has several."""
    calls = dict(about[name])
    for call in about[name].values():
        for other in _names(call):
            calls |= about[other]
    return calls


def _calls_by_name(story: Story) -> dict[str, dict[int, Call]]:
    """The calls about each job, by each of its names."""
    found: dict[str, dict[int, Call]] = {}
    takes = {(call.process, call.number): call for call in story.of("take")}
    for call in story.calls:
        take = takes.get((call.process, call.facts.get("take", 0)))
        for name in _names(call if take is None else take):
            found.setdefault(name, {})[id(call)] = call
    return found


def _names(call: Call) -> list[str]:
    """IDs and values of the jobs that a call names."""
    names: list[Any] = [*call.facts.get("values", ()), call.facts.get("id")]
    if isinstance(call.outcome, dict):
        names += (call.outcome["id"], call.outcome["first"], call.outcome["value"])
    elif call.what == "put":
        names.append(call.outcome)
    return [name for name in names if isinstance(name, str)]


def _end(story: Story, call: Call) -> int:
    return story.killed[call.process] if call.end is None else call.end


def _lines(story: Story, calls: Iterable[Call], begin: int, end: int) -> str:
    """These calls, and what was done to processes in the span, by time."""
    lines = [(call.begin, f"{_call(story, call)}") for call in calls]
    lines += [(at, "an owner was killed, or asked to end") for at in story.owners_killed]
    lines += [(a, f"an owner was stopped until {b}") for a, b in story.owners_frozen]
    lines += [(a, f"{who} was stopped until {b}") for who, a, b in story.frozen]
    for process, at in story.killed.items():
        lines.append((at, f"{process} had {'ended' if process in story.ended else 'been killed'}"))
    told = sorted(line for line in lines if begin <= line[0] <= end)
    shown = [f"  {at} {text}" for at, text in told[:LINES_MAX]]
    return "\n".join([*shown, *(["  ..."] if len(told) > LINES_MAX else [])])


def _call(story: Story, call: Call) -> str:
    facts = {name: value for name, value in call.facts.items() if value is not None}
    ended = f"after {(_end(story, call) - call.begin) / NS:.3f} s"
    what = f"{call.process} {call.thread} {call.what} {call.number}"
    if call.end is None:
        return f"{what} {facts}, killed {ended}"
    return f"{what} {facts} -> {call.outcome} {ended}"
