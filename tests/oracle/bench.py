"""One engine under a test's hands: commands as text lines, replies as plain values.

A line is split at blanks; `''` is the empty argument. Replies: status and error lines as text (`OK`, `ERR ...`),
bulk strings as text, null bulk None, null array `NIL`.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.engine_side import Tidelog, digest_of, replayed
from tests.oracle.wire import Form

NIL = "(nil array)"
START_MS = 1_700_000_000_000


class Bench:
    def __init__(self) -> None:
        self.tidelog = Tidelog(compared=False)
        self.now = START_MS

    def do(self, line: str, *more: bytes) -> Any:
        return plain(self.tidelog.run(self.now, [*words(line), *more]).form)

    def all(self, *lines: str) -> list[Any]:
        return [self.do(line) for line in lines]

    def block(self, line: str) -> list[Any]:
        """A blocked read of another connection; see `answer`."""
        return self.tidelog.block(self.now, words(line))

    def pass_ms(self, ms: int) -> None:
        self.now += ms
        self.tidelog.tick(self.now)

    def ids(self, key: str = "s") -> list[str]:
        return [entry[0] for entry in self.do(f"XRANGE {key} - +")]

    def pending(self, group: str = "g", key: str = "s") -> list[tuple[str, str, int]]:
        """(ID, owner, deliveries), in ID order."""
        rows = self.do(f"XPENDING {key} {group} - + 1000")
        return [(id, owner, count) for id, owner, _, count in rows]

    def info(self, key: str = "s") -> dict[str, Any]:
        return pairs(self.do(f"XINFO STREAM {key}"))

    def group(self, group: str = "g", key: str = "s") -> dict[str, Any]:
        return {each["name"]: each for each in map(pairs, self.do(f"XINFO GROUPS {key}"))}[group]

    def consumers(self, group: str = "g", key: str = "s") -> dict[str, dict[str, Any]]:
        rows = map(pairs, self.do(f"XINFO CONSUMERS {key} {group}"))
        return {each["name"]: each for each in rows}

    def check_replay(self) -> None:
        """The log rebuilds the state."""
        assert digest_of(replayed(self.tidelog.history)) == digest_of(self.tidelog.state)


def answer(blocked: list[Form]) -> Any:
    """The one reply of a blocked read; None if it still waits."""
    assert len(blocked) <= 1
    return plain(blocked[0]) if blocked else None


def words(line: str) -> list[bytes]:
    return [b"" if word == "''" else word.encode() for word in line.split()]


def plain(form: Form) -> Any:
    if isinstance(form, tuple):
        return NIL if form == ("*-1",) else form[1].decode("latin-1")
    if isinstance(form, bytes):
        return form.decode("latin-1")
    return [plain(item) for item in form] if isinstance(form, list) else form


def pairs(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
