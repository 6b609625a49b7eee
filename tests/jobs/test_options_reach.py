"""Each option of a queue reaches every place that works on the queue for somebody else."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from tidelog.jobs.option_words import option_words, options_of
from tidelog.jobs.options import Options, arguments_of, make_options
from tidelog.jobs.retries import RetryPolicy
from tidelog.tools.worker.command import OPTIONS, command

# Every option, each with another value than its default.
GIVEN: dict[str, Any] = {
    "group": "audit",
    "codec": "msgpack",
    "max_deliveries": 7,
    "retry_after": 12.5,
    "keep": 20,
    "max_depth": 30,
    "max_failures": 40,
    "concurrency": 3,
    "rate": "100/m",
    "concurrency_per_key": 2,
    "lease": 90.0,
    "time_limit": 60.0,
    "retry": RetryPolicy(8, "linear", 2, 600, False, (ConnectionError,), (ValueError,)),
}
# Options that `tidelog worker` lacks, with the reason.
NOT_A_WORKERS = {"max_depth": "it bounds those who put"}
# Options that a server is not told, with the reason.
NOT_A_SERVERS = {"time_limit": "the run of workers keeps it"}


def told(options: Options) -> dict[str, Any]:
    """The options that a queue uses, with the name of the codec in its place."""
    found = {each.name: getattr(options, each.name) for each in fields(options)}
    return {**found, "codec": options.codec.name, "_lanes": None}


def test_all_options_are_here() -> None:
    default, given = told(make_options("q")), told(make_options("q", **GIVEN))
    same = {name for name in default if default[name] == given[name]}
    # the name, what is derived, and what a lane has
    assert same == {"name", "key", "priority", "root", "_lanes", "keep_seconds"}


@pytest.mark.parametrize("keep", [20, timedelta(hours=1)])
def test_arguments_give_the_same_options(keep: Any) -> None:
    """A child of `run(processes=)` gets them."""
    options = make_options("q", **GIVEN | {"keep": keep})
    assert told(make_options(**arguments_of(options))) == told(options)


@pytest.mark.parametrize("given", [{}, GIVEN, GIVEN | {"keep": timedelta(hours=1)}])
def test_words_give_the_same_options(given: dict[str, Any]) -> None:
    """A server gets them with each QUEUE command."""
    options = make_options("q", **given)
    found = options_of(options.key, tuple(option_words(options)))
    assert told(found) == told(options) | dict.fromkeys(NOT_A_SERVERS)


def test_a_worker_of_the_command_line_takes_them() -> None:
    own = {parameter.name for parameter in command.params}
    assert own >= {*OPTIONS, "group"}
    assert {*OPTIONS, "group"} | NOT_A_WORKERS.keys() == GIVEN.keys()
