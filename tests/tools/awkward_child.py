"""Runs command lines one after the other in this process, and keeps what each of them prints, as bytes.

Arguments: a file of command lines, each a JSON list of words, and a file for their outcomes: lists of the exit code
(None after an exception), the output and the error output. A character of a word or an output is one byte.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

from tidelog.tools import start

PATIENCE_S = 120


def outcome(words: list[str], scratch: Path) -> list[object]:
    """Run the line as the command does, with files in place of both outputs."""
    kept = [os.dup(1), os.dup(2)]
    files = [scratch.with_suffix(end) for end in (".out", ".err")]
    for number, file in enumerate(files, 1):
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(fd, number)
        os.close(fd)
    sys.argv = ["tidelog", *(os.fsdecode(word.encode("latin-1")) for word in words)]
    code: object = None
    signal.alarm(PATIENCE_S)
    try:
        start.main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        os.write(2, traceback.format_exc().encode("ascii", "backslashreplace"))
    signal.alarm(0)
    sys.stdout.flush()
    sys.stderr.flush()
    for number, fd in enumerate(kept, 1):
        os.dup2(fd, number)
        os.close(fd)
    return [code, *(file.read_bytes().decode("latin-1") for file in files)]


if __name__ == "__main__":
    start.in_utf8()
    lines, outcomes = map(Path, sys.argv[1:])
    with outcomes.open("w") as told:
        for line in lines.read_text().splitlines():
            told.write(json.dumps(outcome(json.loads(line), outcomes)) + "\n")
            told.flush()
    if "pyspark" in sys.modules:
        gateway = sys.modules["pyspark"].SparkContext._gateway
        if gateway is not None:  # wait for the end of the JVM
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
