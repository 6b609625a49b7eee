"""A server in a process of its own: `child.py ROOT NAME=VALUE ...`. Prints its port when it listens.

`forget=SET`: as a version of tidelog that does not know this kind of record yet.
"""

import logging
import sys
from pathlib import Path

from tidelog.engine.effects import apply, effect
from tidelog.server.config.config import Config
from tidelog.server.server import Server
from tidelog.server.serving import serve_forever


def ready(server: Server) -> None:
    print(server.listeners.port(), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    config = Config()
    config.start({"port": 0})
    for word in sys.argv[2:]:
        name, _, value = word.partition("=")
        if name == "forget":
            opcode = getattr(effect, value)
            apply.APPLY[opcode] = apply.APPLY[opcode | effect.END] = apply._unknown
            continue
        config.take(name, value, "")
    sys.exit(serve_forever(Path(sys.argv[1]), config, ready=ready))
