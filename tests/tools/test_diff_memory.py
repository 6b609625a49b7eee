"""tidelog diff --state: its memory is that of one node, of whatever size the states are.

Each state has more than 100 MiB in its checkpoint. The command runs in a child whose memory may grow by LIMIT_BYTES,
and finds every difference; the same child cannot hold the entries of one state.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.tools import exits

LIMIT_BYTES = 96 << 20
ENTRIES = 300_000
PENDING = 50_000
KEYS = 20_000
pytestmark = pytest.mark.slow
OPTIONS: Any = {"fsync": "no", "save": (), "checkpoint_bytes": 0, "retain_bytes": 0}

CHILD = """
import json, resource, sys
from pathlib import Path
from tidelog.tools import cli
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.moment import contents_at
from tidelog.tools.state import entries, keys_of

how, limit, words = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (held + limit,) * 2)
if how == "run":
    sys.exit(cli.run(words))
try:
    with contents_at(LogFiles(Path(words[0])), None, None) as there:
        rows = [list(entries(value)) for _, key, value, _ in keys_of(there.state, None) if key == b"big"]
except MemoryError:
    print("too much")
"""


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two large stores, and four changes between them."""
    place = tmp_path_factory.mktemp("diff")
    one, two = place / "one", place / "two"
    with tidelog.open(one, **OPTIONS) as db:
        for base in range(0, ENTRIES, 10_000):
            rows = [{"n": base + n, "pad": f"{base + n:032x}" * 8} for n in range(10_000)]
            db.xadd_many("big", rows)
        db.xgroup_create("big", "g", id="0")
        for _ in range(PENDING // 5000):
            db.xreadgroup("g", "ann", {"big": ">"}, count=5000)
        for base in range(0, KEYS, 1000):
            with db.pipeline() as unit:
                for n in range(base, base + 1000):
                    unit.xadd(f"stream:{n:05}", {"pad": f"{n:032x}" * 8})
                    unit.set(f"string:{n:05}", f"{n:032x}" * 8)
                unit.execute()
        db.checkpoint()
    shutil.copytree(one, two)
    with tidelog.open(two, **OPTIONS) as db:
        ((last, _),) = db.xrevrange("big", count=1)
        ((delivered, _),) = db.xrange("big", count=1)
        db.xdel("big", last)
        db.xack("big", "g", delivered)
        db.xgroup_create("stream:00007", "new")
        db.set("string:19999", "x")
        db.checkpoint()
    return one, two


def child(how: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CHILD, how, str(LIMIT_BYTES), json.dumps([*map(str, words)])]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_two_large_states(states: tuple[Path, Path]) -> None:
    done = child("run", "diff", "--state", "--json", *states)
    assert (done.returncode, done.stderr) == (exits.DIFFERS, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["key"], row["difference"]) for row in found] == [
        ("big", "length"),
        ("big", "max_deleted_id"),
        ("big", "entry"),
        ("big", "pending"),
        ("stream:00007", "group"),
        ("string:19999", "value"),
    ]


def test_the_limit_is_below_one_state(states: tuple[Path, Path]) -> None:
    assert child("hold", states[0]).stdout == "too much\n"
