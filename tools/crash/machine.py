"""`tidelog crash machine`: cut the power of a real file system under a store. Only root may mount one."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.crash.workloads import POLICIES
from tidelog.tools import exits
from tidelog.tools.crash.cutting import REAL, cut_machine
from tidelog.tools.crash.models import STRICT
from tidelog.tools.crash.session import (
    Session,
    keep_option,
    seed_option,
    time_option,
)
from tidelog.tools.heads import json_option, tool_command


@tool_command(
    "tidelog crash machine",
    "tidelog crash machine --for 10m",
    codes=(exits.OK, exits.FAILED, exits.USAGE, exits.SYSTEM),
    note="The file systems are ext4 and xfs. The exit code is 5 if none of the layers could run; one that could not "
    "is named with the reason, and the others count.",
)
@time_option("Begin no further workload after this time.", 30.0)
@seed_option
@keep_option
@json_option()
def command(seconds: float, seed: str | None, keep: Path, as_json: bool) -> int:
    session = Session(seed, keep, as_json, STRICT)
    kernel = os.uname()
    session.say(
        f"layers {', '.join(REAL)}, of {kernel.sysname} {kernel.release}, seed {session.seed}"
    )
    with session.running(REAL) as place:
        enough = lambda: session.seconds >= seconds  # noqa: E731
        cut_machine(REAL, POLICIES, session.seed, place, session.report, enough)
    return session.code
