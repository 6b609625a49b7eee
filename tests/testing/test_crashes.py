"""Crashes of a program: a mistake is found by its line, and passes when it is mended."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.testing.crashes import Crashes, CrashFailure, Told

Program = Callable[[tidelog.Store, Told], None]


def orders(db: tidelog.Store) -> set[int]:
    return {int(fields[b"n"]) for _, fields in db.xrange("orders")}


def place_and_tell(db: tidelog.Store, told: Told) -> None:
    for n in range(3):
        db.xadd("orders", {"n": n})
        told(n)


def tell_and_place(db: tidelog.Store, told: Told) -> None:
    for n in range(3):
        told(n)  # the mistake
        db.xadd("orders", {"n": n})


def all_told_are_there(db: tidelog.Store, told: Told) -> None:
    assert set(told) <= orders(db)


def line_of(program: Callable[..., object], text: str) -> str:
    lines, first = inspect.getsourcelines(program)
    (number,) = [n for n, line in enumerate(lines, first) if text in line]
    return f"{Path(inspect.getfile(program)).name}:{number}: "


def failure(crash: Crashes, *programs: Any, **options: Any) -> str:
    with pytest.raises(CrashFailure) as caught:
        crash(*programs, **options)
    return str(caught.value)


def test_a_program_that_is_right() -> None:
    crashes = Crashes(1, 20)
    crashes(place_and_tell, all_told_are_there)
    assert crashes.there > crashes.tried >= 20


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_an_acknowledgement_before_the_work_is_found_by_its_line(kind: str) -> None:
    text = failure(Crashes(1, 500), tell_and_place, all_told_are_there, crashes=(kind,))
    assert text.startswith("after a crash the check failed: AssertionError")
    event = {"kill": "the process is killed", "power": "the power is cut"}[kind]
    assert f"{event} after " in text
    assert line_of(tell_and_place, "# the mistake") in text
    assert "told by then: 0\n" in text
    assert "--crash-seed 1" in text


def test_what_a_policy_does_not_promise_is_lost() -> None:
    crashes = Crashes(1, 1000)
    crashes(place_and_tell, all_told_are_there, fsync="no", crashes=("kill",), double=False)
    text = failure(crashes, place_and_tell, all_told_are_there, fsync="no", crashes=("power",))
    assert "the power is cut after" in text and "told by then: 0\n" in text


def test_a_check_that_tells_before_it_works_is_found_by_a_second_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.testing.crashes.AGAIN", 1.0)

    def after(db: tidelog.Store, told: Told) -> None:
        all_told_are_there(db, told)
        if 7 not in told:
            told(7)
            db.xadd("orders", {"n": 7})

    text = failure(Crashes(1, 500), place_and_tell, after, crashes=("kill",))
    assert "then the check runs, and the process is killed after" in text
    assert line_of(after, "told(7)") in text
    Crashes(1, 5)(place_and_tell, after, crashes=("kill",), double=False)


def test_a_check_that_fails_without_any_crash() -> None:
    def after(db: tidelog.Store, told: Told) -> None:
        raise ValueError("always")

    text = failure(Crashes(1, 10), place_and_tell, after)
    assert text == (
        "the check fails without any crash, after a life that ended: ValueError: always"
    )


def test_a_life_that_raises() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        Crashes(1, 10)(life, all_told_are_there)


def test_threads_and_a_queue() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        jobs = db.queue("jobs")

        def work() -> None:
            for number in range(2):
                jobs.put(number)
                told(number)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def after(db: tidelog.Store, told: Told) -> None:
        assert len(db.queue("jobs")) >= told.count

    Crashes(1, 8)(life, after)


def test_coroutines() -> None:
    async def life(db: tidelog.AsyncStore, told: Told) -> None:
        for n in range(2):
            await db.xadd("orders", {"n": n})
            told(n)

    async def after(db: tidelog.AsyncStore, told: Told) -> None:
        found = {int(fields[b"n"]) for _, fields in await db.xrange("orders")}
        assert set(told) <= found

    async def hasty(db: tidelog.AsyncStore, told: Told) -> None:
        told(0)  # the mistake
        await db.xadd("orders", {"n": 0})

    Crashes(1, 8)(life, after)
    assert line_of(hasty, "# the mistake") in failure(Crashes(1, 100), hasty, after)


def test_a_checkpoint_in_the_life() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        place_and_tell(db, told)
        db.checkpoint()
        db.xadd("orders", {"n": 3})
        told(3)

    Crashes(1, 8)(life, all_told_are_there)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"crashes": ()}, "kill, power"),
        ({"crashes": "kill"}, "kill, power"),
        ({"crashes": ("fire",)}, "kill, power"),
        ({"fsync": "never"}, "always, everysec, no"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(tidelog.DataError, match=words):
        Crashes(1, 10)(place_and_tell, all_told_are_there, **options)


def test_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tidelog.testing.scratch.TMPFS", tmp_path)
    threads = threading.active_count()
    Crashes(1, 5)(place_and_tell, all_told_are_there)
    failure(Crashes(1, 60), tell_and_place, all_told_are_there)
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_the_plugin_imports_nothing_of_the_store() -> None:
    program = (
        "import sys, tidelog.testing.plugin;"
        "print([name for name in sys.modules if name.startswith('tidelog')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['tidelog', 'tidelog.testing', 'tidelog.testing.plugin']"
