"""Replies: a server over a recorded disk. A reply is a promise, so a power cut must not take what a client has read.

SIGKILL keeps the page cache, so it never shows a reply that left before its sync. A power cut does. The client of the
server notes in the trace how much was answered. While a sync of the log runs, the disk waits a moment for replies: none
may come that waits for this sync, and one that does is noted before the sync has ended.
"""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tidelog.crash.client import BadReply, Client
from tidelog.crash.errors import BenchError
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Stage, open_on
from tidelog.crash.trace import Trace, versions
from tidelog.server.serving import serve

REPLIES: Final = "replies"
PIPELINES: Final = 16
PIPELINE_MAX: Final = 4
# So often WAITAOF comes alone, behind replies that the client has read: the server has nothing new to write then.
ALONE: Final = 0.3
SECONDS: Final = 60.0  # for a reply
MOMENT_S: Final = 0.02  # for replies that come too early


def _take_turns(client: Client, commands: int, *, ask: bool) -> None:
    """Send a pipeline and read its replies."""
    client.send(commands, ask=ask)
    while client.waits:
        if not client.receive():
            raise BadReply("the server closed the connection")


def record(stage: Stage, policy: str, seed: str, rng: random.Random) -> Trace:
    """Record a server while a client uses it. Raises BenchError."""
    inner, root = stage.lay({})
    disk = RecordingDisk(inner, root)
    disk.promise(0, 0, 0)
    noted = 0  # units whose replies are in the trace
    came = threading.Condition()

    def promise() -> None:
        nonlocal noted
        fsynced = client.answered if policy == "always" else client.synced
        disk.promise(fsynced, client.answered, len(client.units))
        with came:
            noted = client.answered
            came.notify()

    def moment(path: Path) -> None:
        if policy == "always" and path.suffix == ".aof":
            with came:
                came.wait_for(lambda: noted == len(client.units), MOMENT_S)

    client = Client("orders", rng, promise)
    disk.meanwhile = moment
    with ExitStack() as stack:
        db = stack.enter_context(open_on(disk, root, policy))
        server = stack.enter_context(serve(db, port=0))
        stack.callback(client.disconnect)
        try:
            client.connect(server.port, SECONDS)
            for _ in range(PIPELINES):
                _take_turns(client, rng.randint(1, PIPELINE_MAX), ask=rng.random() < 0.3)
                if rng.random() < ALONE:
                    _take_turns(client, 0, ask=True)
        except OSError as error:
            raise BenchError(f"without any crash: {error}") from error
        disk.meanwhile = None
    about: dict[str, Any] = {"seed": seed, "policy": policy, **versions()}
    return disk.trace(about, client.units)
