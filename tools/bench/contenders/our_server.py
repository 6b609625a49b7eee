"""`tidelog serve` in a separate process."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.tools.bench.processes.served import Served, free_port


class TidelogServer(Served):
    """A server of a new store in `directory`. It makes no checkpoint before its end, because redis-server is
    configured to save nothing either.
    """

    def __init__(self, directory: Path, appendfsync: str) -> None:
        port = free_port()
        command = [sys.executable, "-m", "tidelog", "serve", str(directory / "store")]
        # fmt: off
        options = [
            "--port", str(port), "--bind", "127.0.0.1", "--fsync", appendfsync, "--loglevel", "warning",
            "--option", "save=", "--option", "auto-aof-rewrite-percentage=0",
        ]
        # fmt: on
        super().__init__("tidelog", [*command, *options], port)
