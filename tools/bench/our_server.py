"""`tidelog serve` in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.tools.bench.served import Served, free_port


class TidelogServer(Served):
    """A server of a new store in `directory`; no checkpoint before its end: redis-server is told to save nothing."""

    def __init__(self, directory: Path, appendfsync: str) -> None:
        port = free_port()
        # fmt: off
        options = {
            "port": str(port), "bind": "127.0.0.1", "appendfsync": appendfsync, "save": "",
            "auto-aof-rewrite-percentage": "0",
        }
        # fmt: on
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        command = [sys.executable, "-m", "tidelog.tools.cli", "serve", str(directory / "store")]
        super().__init__("tidelog", [*command, *arguments], port)
