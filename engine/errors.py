"""Errors of the engine: what a command may answer instead of a reply."""


class CommandError(Exception):
    """A command was refused; nothing changed. The caller can correct the command and try again.

    `line` is the error exactly as Redis sends it after the leading `-`, code first
    (`b"ERR syntax error"`, `b"WRONGTYPE Operation against ..."`). Bytes, because keys are echoed.
    """

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode("utf-8", "backslashreplace"))
        self.line = line


class CorruptBlock(Exception):
    """Bytes of a sealed block do not match their checksum. Raised by decide, never by apply."""


class UnknownEffect(Exception):
    """A log holds an effect of a kind that this version does not know. Raised by apply, which can only be told one."""

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
    """What of an argument an error shows: it was a C string, so up to the first NUL; line ends as blanks."""
    return raw.partition(b"\0")[0][:bytes_max].translate(_LINE_ENDS)
