"""A writer that a test kills: python stream_writer.py STORE FIRST

It adds numbered entries from FIRST on, makes checkpoints, which release segments, and prints the numbers that are
stored. It ends when its standard input does.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import tidelog

if __name__ == "__main__":
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    options: dict[str, Any] = {
        "fsync": "no",
        "save": (),
        "checkpoint_bytes": 0,
        "segment_bytes": 8192,
    }
    number = int(sys.argv[2])
    with tidelog.open(sys.argv[1], **options, retain_bytes=60_000) as db:
        while not ended.is_set():
            for _ in range(100):
                db.xadd("s", {"n": number, "pad": "x" * 50})
                number += 1
            print(number, flush=True)
            if number % 300 == 0:
                db.checkpoint()
            time.sleep(0.1)  # a thousand entries in a second are enough
