"""Errors of the engine, and the error lines that several commands share."""


class CommandError(Exception):
    """A command was refused; nothing changed. The caller can correct the command and try again.

    `line` is the error exactly as Redis sends it after the leading `-`, code first
    (`b"ERR syntax error"`, `b"WRONGTYPE Operation against ..."`). Bytes, because keys are echoed.
    """

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode("utf-8", "backslashreplace"))
        self.line = line


class CorruptBlock(Exception):
    """A sealed block or a row of the checkpoint is damaged or missing.

    Live, decide and `prepare` raise it, and apply does not: they have read what apply needs. Apply may raise it in a
    replay.
    """


class UnknownEffect(Exception):
    """A log has an effect with an opcode that this version does not know. Raised by apply in a replay."""

    def __init__(self, opcode: int) -> None:
        super().__init__(f"no effect has the opcode {opcode}")
        self.opcode = opcode


WRONGTYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
SYNTAX = b"ERR syntax error"
NOT_INTEGER = b"ERR value is not an integer or out of range"
INVALID_ID = b"ERR Invalid stream ID specified as stream command argument"
NO_SUCH_KEY = b"ERR no such key"

_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


def echo(raw: bytes, bytes_max: int = 128) -> bytes:
    """An argument as error lines show it: cut at the first NUL, as a C string is, and line ends as blanks."""
    return raw.partition(b"\0")[0][:bytes_max].translate(_LINE_ENDS)
