"""`concurrency_per_key` holds whatever works on a queue: threads, tasks, and the processes that tidelog starts."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.client import keyed
from tests.client.owners import ended_owner

import tidelog
from tidelog.disk.process import environment

HERE = Path(__file__).parent
COMMAND = "tidelog worker {root} q keyed:{function} --concurrency-per-key 1 --until-idle 0.5"
WAYS = {
    **{
        f"{backend} {way}": (backend, way)
        for backend in ("embedded", "shared")
        for way in ("threads", "tasks")
    },
    "shared processes": ("shared", "processes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", [*WAYS, "handle", "ahandle"])
def test_jobs_of_a_key_come_one_after_the_other(way: str, tmp_path: Path) -> None:
    root, done = tmp_path / "s", tmp_path / "done"
    with ended_owner(root):
        with tidelog.queue(root, "q", **keyed.OPTIONS) as queue:
            for number in range(10):
                for key in ("anna", "bert"):
                    queue.put(number, key=key)
        if way in WAYS:
            words = [sys.executable, str(HERE / "keyed.py"), *WAYS[way], str(root)]
        else:
            text = COMMAND.format(root=root, function=way)
            words = [sys.executable, "-m", *text.split(), "--processes", "2"]
        env = {**environment(), "DONE": str(done), "PYTHONPATH": str(HERE)}
        subprocess.run(words, env=env, check=True, timeout=120)
    running, most = Counter[str](), Counter[str]()
    order: dict[str, list[int]] = {"anna": [], "bert": []}
    for line in done.read_text().splitlines():
        word, key, value, _ = line.split()
        running[key] += 1 if word == "begins" else -1
        most[key] = max(most[key], running[key])
        if word == "begins":
            order[key].append(int(value))
    assert most == {"anna": 1, "bert": 1}
    assert order == {"anna": list(range(10)), "bert": list(range(10))}
