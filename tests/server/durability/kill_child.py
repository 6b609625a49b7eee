"""A server to be killed: `kill_child.py ROOT POLICY`. Prints its port when it listens."""

import sys
from pathlib import Path

from tidelog.server.config.config import Config
from tidelog.server.server import Server
from tidelog.server.serving import serve_forever


def ready(server: Server) -> None:
    print(server.listeners.port(), flush=True)


if __name__ == "__main__":
    config = Config()
    config.start({"port": 0, "appendfsync": sys.argv[2]})
    sys.exit(serve_forever(Path(sys.argv[1]), config, ready=ready))
