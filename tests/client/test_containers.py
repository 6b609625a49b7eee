"""Two containers on one volume: namespaces of their own for processes, network and host names, and one directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.until import until

import tidelog
from tidelog.disk.process import environment

# As root it makes the namespaces itself, otherwise within one of its own user.
APART: Final = [
    *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--ipc"),
    *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
]
PUTS: Final = """
import sys, tidelog
with tidelog.connect(sys.argv[1], timeout=60) as db:
    queue, number = db.queue("jobs", codec="str"), 0
    while True:
        queue.put(f"{sys.argv[2]}-{number}")
        print(number, flush=True)
        number += 1
"""


@contextmanager
def container(root: Path, name: str, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that puts until it ends; all its processes end with it."""
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*APART, sys.executable, "-c", PUTS, root, name], stdout=output, env=environment()
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def count(said: Path) -> int:
    return len(said.read_text().splitlines())


@pytest.mark.slow
def test_one_goes_on_when_the_other_with_the_owner_is_killed(tmp_path: Path) -> None:
    """By turns; a process ID in LOCK means nothing in the other container."""
    root, rounds = tmp_path / "store", 4
    outputs: list[Path] = []

    def start(stack: ExitStack) -> subprocess.Popen[bytes]:
        outputs.append(tmp_path / f"said{len(outputs)}")
        return stack.enter_context(container(root, f"c{len(outputs) - 1}", outputs[-1]))

    with ExitStack() as stack:
        running = [start(stack)]
        until(lambda: count(outputs[0]) > 10, "it does not put")
        for _ in range(rounds):
            running.append(start(stack))
            until(lambda: count(outputs[-1]) > 10, "the second does not put")
            running.pop(0).kill()
            seen = count(outputs[-1])
            until(lambda: count(outputs[-1]) > seen + 10, "it does not go on")  # noqa: B023
    with tidelog.open(root, lock_timeout=60) as db:
        stored = [fields[b"value"].decode() for _, fields in db.xrange("jobs")]
    put = {f"c{n}-{number}" for n, said in enumerate(outputs) for number in range(count(said))}
    assert put <= set(stored) and len(stored) == len(set(stored))
    assert len(stored) <= len(put) + len(outputs)  # the last of each may be stored and not be told
