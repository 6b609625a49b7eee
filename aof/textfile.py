"""Text files: small files of a store that people can read, with a checksum. Lines of text, each ended by a line feed.

    tidelog replica        the title: which file it is
    format 1
    role leader            the lines of its own
    crc32c 89abcdef        of the lines above, with their line feeds

A newer tidelog may change the lines between the second and the last one. So an older one says "newer format" and not
"damaged". FORMAT.md describes each file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import Damage, NewerFormat
from tidelog.engine.crc32c import crc32c_of

_FRAME: Final = re.compile(rb"(.*\n)format ([1-9][0-9]{0,8})\n((?:.*\n)*?)crc32c ([0-9a-f]{8})\n")


class TextFile(NamedTuple):
    """A kind of text file, and the error that a damaged one raises.

    title       the first line
    format      the newest format that this version reads, and the one that it writes
    error       Damage or a subclass of it
    malformed   the reason in the error if the frame of lines is not there
    advice      the advice in the error; empty for the default
    """

    title: str
    format: int
    error: type[Damage] = Damage
    malformed: str = "the file is incomplete"
    advice: str = ""

    def render(self, lines: str) -> bytes:
        """The content of a file with these lines of its own, each with its line feed."""
        text = f"{self.title}\nformat {self.format}\n{lines}".encode()
        return text + b"crc32c %08x\n" % crc32c_of(text)

    def is_named_by(self, data: bytes) -> bool:
        """Whether the content of a file begins with the title."""
        return data.startswith(f"{self.title}\n".encode())

    def parse(self, path: Path, data: bytes) -> str:
        """The lines of its own in the content of the file `path`. Raises `error`, NewerFormat."""
        match = _FRAME.fullmatch(data)
        if match is None or not self.is_named_by(data):
            raise self.error(path, 0, self.malformed, self.advice)
        if int(match[4], 16) != crc32c_of(data[: match.end(3)]):
            raise self.error(
                path, 0, "the content does not match the checksum in the file", self.advice
            )
        if int(match[2]) > self.format:
            raise NewerFormat(path, int(match[2]), self.format)
        return match[3].decode("utf-8", "replace")
