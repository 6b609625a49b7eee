"""A checker knows the arguments and the results of tasks. mypy reads the calls below: right ones, and wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
HEAD = """
import tidelog
from datetime import datetime, timedelta
from typing import assert_type

tasks = tidelog.tasks("mail-data")

@tasks.task(queue="mails", retry=tidelog.RetryPolicy(max=3), priority=2, dedup="until-done")
def send(to: str, copies: int = 0) -> datetime:
    return datetime.now()

@tasks.task
async def thumb(name: str) -> bytes:
    return b""

@tasks.cron("0 3 * * *")
@tasks.task(results=True)
def nightly() -> None: ...

@tasks.cron(every=60)
async def hourly() -> int:
    return 1

WHEN = datetime.now()
"""
RIGHT = """
assert_type(send("ann", copies=2), datetime)
assert_type(send.put("ann").result(), datetime)
assert_type(send.put(to="ann", copies=2).id, str)
assert_type(send.at(WHEN, "ann", copies=2).result(timeout=3), datetime)
assert_type(send.delay(timedelta(minutes=1), to="ann").result(), datetime)
assert_type(send.using(key="k", timeout=3, delay=2).put("ann").result(), datetime)
assert_type(send.put_many([send.call("ann"), {"to": "ben"}]), int)
assert_type(thumb.put("cat").result(), bytes)
nightly()
nightly.put()

async def main() -> None:
    assert_type(await thumb("cat"), bytes)
    assert_type(await (await thumb.aput(name="cat")).result(), bytes)
    assert_type(await (await send.aat(WHEN, "ann")).result(), datetime)
    assert_type(await (await send.adelay(5, "ann")).result(), datetime)
    assert_type(await hourly(), int)
    assert_type(await (await hourly.aput()).result(), int)
    assert_type(await thumb.aput_many([thumb.call(name="cat")]), int)
    assert_type(await tasks.arun({"mails": 3}, workers=2), int)
"""
WRONG = """
send.put()
send.put(7)
send.put(to="ann", cc="ben")
send.at("tomorrow", "ann")
send.delay(5)
send.using(prio=3)
send.call(copies="2")
send.using(key="k").put(to=b"ann")
thumb.put(nam="cat")
nightly.put(1)
tasks.task(queue=7)
tasks.task(whatever=7)
tasks.run(block="never")
"""


def test_a_checker_knows_the_arguments(tmp_path: Path) -> None:
    right, wrong = dedent(HEAD + RIGHT), dedent(HEAD + WRONG)
    (tmp_path / "right.py").write_text(right)
    (tmp_path / "wrong.py").write_text(wrong)
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = true\nmypy_path = {ROOT / 'src'}\nexplicit_package_bases = true\n"
        "[mypy-tidelog.*]\nfollow_imports = silent\n"
    )
    words = [
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--cache-dir",
        str(ROOT / ".mypy_cache/tasks"),
    ]
    found = subprocess.run(
        [sys.executable, *words, "--no-error-summary", "right.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    errors = [line for line in found.stdout.splitlines() if ": error: " in line]
    assert found.stderr == "" and not [line for line in errors if line.startswith("right.py")], (
        found.stdout
    )
    first = HEAD.count("\n") + WRONG[: WRONG.index("send")].count("\n") + 1
    lines = {int(line.split(":")[1]) for line in errors}
    assert lines == set(range(first, first + WRONG.strip().count("\n") + 1)), found.stdout
