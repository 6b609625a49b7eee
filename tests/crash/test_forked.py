"""A forked process answers, and its death or hang is an answer too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tidelog.crash.forked import Died, Forked


def answer(question: str) -> str:
    match question:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "hang":
            threading.Event().wait()
        case "raise":
            raise ValueError("no")
    return f"{question} {os.getpid()}"


@pytest.fixture
def forked() -> Iterator[Forked[str, str]]:
    made = Forked(answer)
    yield made
    made.close()


def test_one_process_answers_until_it_dies(forked: Forked[str, str]) -> None:
    first = forked.ask("a")
    assert first == str(forked.ask("a")) != f"a {os.getpid()}"
    assert forked.ask("kill") == Died("the process was ended by SIGKILL")
    second = forked.ask("a")
    assert isinstance(second, str) and second != first
    assert forked.ask("exit") == Died("the process ended with exit code 3")
    with pytest.raises(ValueError, match="no"):
        forked.ask("raise")


def test_a_process_that_hangs_is_killed(forked: Forked[str, str]) -> None:
    hurried = Forked(answer, seconds=0.1)
    found = hurried.ask("hang")
    assert isinstance(found, Died) and "hung" in found.words
    assert hurried._process is None
    assert isinstance(forked.ask("a"), str)
