"""Exit codes of the `tidelog` command, numbered by hand, never renumbered. docs/guides/command-line.md explains them.

0, 1, 2 and 130 mean what they mean everywhere. From 20 on each is a check of `tidelog aof verify` or
`tidelog verify`; where several fail, the code is the highest of them, since the later ones are the graver.
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1  # the demo or the crash bench found a broken promise, or tidelog has a bug
USAGE: Final = 2  # unknown option, bad argument (click's own code)
NOT_A_STORE: Final = 3  # no such path, or nothing of tidelog's in it
LOCKED: Final = 4  # another process has the store open for writing
SYSTEM: Final = 5  # the machine refused: permission, full disk, input/output error; a package or Java is missing
DAMAGED: Final = 6  # damage in the log; the command stopped there
NEWER: Final = 7  # written by a newer version of tidelog
REFUSED: Final = 8  # the store refused the call
DIFFERS: Final = 9  # `tidelog diff`: the logs or the states are not the same
ADVICE: Final = 10  # `tidelog doctor` has advice
# `tidelog worker`: the process has done enough, or half of its workers hang; start it again
AGAIN: Final = 11
INTERRUPTED: Final = 130  # Ctrl-C

VERIFY_TAIL: Final = 20
VERIFY_DURABLE: Final = 21
VERIFY_TIME: Final = 22
VERIFY_RECORDS: Final = 23
VERIFY_BLOCKS: Final = 24
VERIFY_REPLAY: Final = 25
VERIFY_FRAMES: Final = 26
VERIFY_SEGMENTS: Final = 27
VERIFY_HEADERS: Final = 28
VERIFY_IDENTITY: Final = 29
VERIFY_SNAPSHOT: Final = 30
VERIFY_CHECKPOINT: Final = 31
VERIFY_AGREEMENT: Final = 32
VERIFY_FILES: Final = 33

# The codes of a command that reads a store. REFUSED: also a writer that released a segment while it was read.
READING: Final = (OK, USAGE, NOT_A_STORE, SYSTEM, DAMAGED, NEWER, REFUSED)
# The codes of a command that changes a store.
CHANGING: Final = (*READING, LOCKED)
# one code in few words, for the help of the commands
WORDS: Final = {
    OK: "success",
    FAILED: "a broken promise",
    USAGE: "wrong usage",
    NOT_A_STORE: "nothing there",
    LOCKED: "open elsewhere",
    SYSTEM: "refused by the system, or a package is missing",
    DAMAGED: "damage",
    NEWER: "a newer format",
    REFUSED: "refused",
    DIFFERS: "a difference",
    ADVICE: "advice",
    AGAIN: "to be started again",
    VERIFY_TAIL: "to 33 the gravest check that failed",
    VERIFY_AGREEMENT: "a difference",
}
