"""Refusals: what a store's method raises for a bad key, ID or number is what its docstring names."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tidelog
from tidelog import testing
from tidelog.api.methods import Methods

COMMANDS = [name for name in vars(Methods) if not name.startswith("_")]
# Arguments by name of the parameter: good ones, and one that an engine or a check refuses.
KEYS: list[Any] = ["stream", "string", "missing"]
GIVEN: dict[str, list[Any]] = {
    **dict.fromkeys(("name", "key", "src", "source"), KEYS),
    **dict.fromkeys(("dst", "destination", "consumername", "pattern", "value"), ["other"]),
    **dict.fromkeys(("names", "args", "keys"), [("string",), ()]),
    "groupname": ["group", "missing"],
    **dict.fromkeys(("min", "max"), ["-", "x"]),
    **dict.fromkeys(("start_id", "id"), ["0-0", "x", "99999999999999-1"]),
    **dict.fromkeys(("ids", "message_ids"), [("0-1",), ("x",), ()]),
    "fields": [{"f": "v"}, {}],
    "streams": [{"stream": "0"}, {"string": "0"}, {"stream": "x"}, {"missing": ">"}, {}],
    "mapping": [{"new": "v"}, {}],
    **dict.fromkeys(("min_idle_time", "count", "time", "time_ms", "when", "ttl"), [5, -5]),
    "mode": ["FAIL", "x"],
    "infotype": ["ENCODING", "x"],
    "first": [0, 99],
    "second": [1, 99],
    "db": [1, 99],
    "cursor": [0, -1],
}
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("maxlen", "idmp_duration", "max_count", "samples"), -1),
    **dict.fromkeys(("ex", "px", "exat", "pxat"), -1),
    **dict.fromkeys(("nx", "xx", "gt", "lt"), True),
    **{"ref_policy": "x", "limit": 5, "count": -1, "ifeq": "x", "ifdeq": "x", "ifdne": "x"},
    **{"retrycount": -1, "idle": -1, "claim_min_idle_time": -1, "_type": "x", "minid": "x"},
    **{"idmp_maxsize": 20, "destination_db": 99, "idmp": "x", "idmpauto": "p"},
}


def calls(name: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """All combinations of the arguments without default, and then one or two options more."""
    parameters = list(inspect.signature(getattr(Methods, name)).parameters.values())[1:]
    spread = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    needed = [p for p in parameters if p.default is p.empty and p not in spread]
    options = [p.name for p in parameters if p.default is not p.empty and p.name in OPTIONS]
    for chosen in itertools.product(*(GIVEN[p.name] for p in (*needed, *spread))):
        fixed = [*chosen[: len(needed)], *(chosen[-1] if spread else ())]
        for pair in ((), *itertools.combinations(options, 1), *itertools.combinations(options, 2)):
            yield tuple(fixed), {option: OPTIONS[option] for option in pair}


def test_every_refusal_is_named() -> None:
    met: dict[str, set[str]] = {}
    said: dict[str, set[str]] = {}
    with testing.store() as db:
        for name in COMMANDS:
            section = re.search(r"Raises:\n((?: +\w+: .*\n(?: {16}.*\n)*)+)", made(name) + "\n")
            named = set(re.findall(r"^ +(\w+): ", section[1], re.M)) if section else set()
            met[name] = set()
            for args, options in calls(name):
                db.flushall()
                db.set("string", "x")
                db.xadd("stream", {"f": "v"})
                db.xgroup_create("stream", "group", id="0")
                try:
                    getattr(db, name)(*args, **options)
                except tidelog.TidelogError as error:
                    met[name].add(type(error).__name__)
            said[name] = named
    assert met == said
    assert {"DataError", "ResponseError"} == set().union(*met.values())


def made(name: str) -> str:
    return str(getattr(Methods, name).__doc__)


@pytest.mark.parametrize("name", ["flushall", "dbsize", "ttl"])
def test_a_command_that_refuses_nothing_names_nothing(name: str) -> None:
    assert "Raises" not in made(name)
