"""Every option and every method of the queue, and every word of QUEUE, has a workload that uses it.

A new one fails here until a script uses it: `queue_<option>`, `put_<argument>` and so on, in the modules beside this.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, get_type_hints

import pytest
from tests.guard import words
from tests.guard.tape import SCRIPTS
from tests.guard.workloads import FACES, TEST, WORKLOADS, named

import tidelog
from tidelog.api.queue.dead import Dead
from tidelog.api.queue.schedules import Schedules
from tidelog.jobs.job_options import PutManyOptions, PutOptions
from tidelog.jobs.option_words import OPTIONS
from tidelog.jobs.options import make_options
from tidelog.jobs.verbs.done import Done
from tidelog.jobs.verbs.find import FindOptions
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.take import Take
from tidelog.server.handlers import COMMANDS

# A call with arguments, and the beginning of the names of the scripts that have one of them for a subject.
CALLS: Final[dict[str, Callable[..., Any]]] = {
    "queue": make_options,
    "put": tidelog.Queue.put,
    "consume": tidelog.Queue.consume,
    "schedule": tidelog.Store.schedule,
}
# The methods of these are called by any script. Threads of a run act at the same time, so its records differ between
# two runs; it makes the calls of a worker. A script closes its store and no queue.
# `deaths` only reads, `on_cancel` keeps a function, and `settle` is what the others are made of.
CLASSES: Final[tuple[type, ...]] = (tidelog.Queue, tidelog.Job, Dead, Schedules)
NOT_CALLED: Final = {"run", "close", "deaths", "on_cancel", "settle"}
BY_THE_TAPE: Final = {"consume", "stats"}  # it makes these calls for all scripts
# Arguments that the scripts give by their place.
BY_PLACE: Final = {
    *(("get", "worker"), ("peek", "count"), ("failures", "job_id"), ("list", "count")),
    *(("redrive", "ids"), ("purge", "ids"), ("progress", "text")),
}


# The names that `**options` of a method stands for, by the type that says them.
KEYWORDS: Final = {
    "Unpack[PutOptions]": get_type_hints(PutOptions),
    "Unpack[PutManyOptions]": get_type_hints(PutManyOptions),
    "Unpack[FindOptions]": get_type_hints(FindOptions),
}


def optional(call: Callable[..., Any]) -> Iterator[str]:
    """The arguments that a caller may leave out; every call has the others."""
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from KEYWORDS[parameter.annotation]
        elif parameter.default is not parameter.empty:
            yield name


def calls(*names: str) -> Iterator[tuple[str, str]]:
    """(method, argument that is given by its name) of every call in these scripts; an empty one for the call itself."""
    for name in names:
        for node in ast.walk(ast.parse(inspect.getsource(SCRIPTS[name]))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield node.func.attr, ""
                yield from ((node.func.attr, keyword.arg or "") for keyword in node.keywords)


ARGUMENTS: Final = [(what, name) for what, call in CALLS.items() for name in optional(call)]


# In each name a number may follow: an earlier script is retired.


@pytest.mark.parametrize(("what", "argument"), ARGUMENTS)
def test_every_argument_has_a_script_that_gives_it(what: str, argument: str) -> None:
    name = f"{what}-{argument}".replace("_", "-")
    names = [each for each in SCRIPTS if re.fullmatch(rf"{name}(-\d+)?", each)]
    assert names, f"no script has the name {name}"
    assert argument in {given for _, given in calls(*names)}, f"{names} give no argument {argument}"


@pytest.mark.parametrize("of", CLASSES)
def test_every_method_is_called(of: type) -> None:
    called = {method for method, _ in calls(*SCRIPTS)}
    methods = {name for name, _ in inspect.getmembers(of, callable) if name[0] != "_"}
    assert methods - called - NOT_CALLED - BY_THE_TAPE == set()


@pytest.mark.parametrize("of", CLASSES)
def test_every_argument_of_a_method_is_given(of: type) -> None:
    """By its name, in one call at least."""
    given = set(calls(*SCRIPTS))
    wanted = {
        (name, argument)
        for name, method in inspect.getmembers(of, callable)
        if name[0] != "_" and name not in NOT_CALLED | BY_THE_TAPE
        for argument in optional(method)
        if (name, argument) not in BY_PLACE
    }
    assert wanted - given == set()


def test_every_script_runs_through_every_face() -> None:
    for name in SCRIPTS:
        for face, _, part in FACES:
            assert WORKLOADS[named(face, name)].part == part
    for name in words.SCRIPTS:
        assert WORKLOADS[f"words-{name}"].part == TEST


VERBS: Final = [
    name.decode().partition("|")[2] for name in COMMANDS.handlers if name.startswith(b"queue|")
]


def script_of(verb: str) -> str:
    """The text of a word of QUEUE."""
    named = [text for name, text in words.SCRIPTS.items() if re.fullmatch(rf"{verb}(-\d+)?", name)]
    return "\n".join(named)


@pytest.mark.parametrize("verb", VERBS)
def test_every_word_of_queue_has_a_script(verb: str) -> None:
    assert f"QUEUE {verb.upper()}" in script_of(verb)


def test_every_option_of_the_words_is_sent() -> None:
    sent = set(" ".join(words.SCRIPTS.values()).split())
    options = {*OPTIONS, *PutJob.options, *Take.options, *Done.options}
    assert {option.decode() for option in options} - sent == set()


def test_every_word_that_takes_a_number_is_sent_with_one_twice() -> None:
    """A client of a shared store repeats such a write when it lost the reply."""
    for verb in ("put", "putmany", "done", "release", "cancel", "move", "schedule"):
        lines = [line.strip() for line in script_of(verb).split("\n") if " ONCE " in line]
        assert any(a == b for a, b in zip(lines, lines[1:], strict=False)), verb
