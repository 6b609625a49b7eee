"""Kinds of options: which values are valid, how they are parsed and how they are shown.

A value arrives as text, from CONFIG SET and the command line, or as a TOML or Python value, from the file and from a
program. Both become the same typed value. Reasons for refusing are those of Redis 7.0; errors in a file or on the
command line use `allowed` instead, which states all valid values.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.engine.api import Notifications
from tidelog.engine.integers import INT64_MAX, read_int64

INT_MAX: Final = (1 << 31) - 1
SECRET_BYTES_MAX: Final = 64 << 10  # of a file that holds a password
_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1 << 10,
    "m": 1_000_000,
    "mb": 1 << 20,
    "g": 1_000_000_000,
    "gb": 1 << 30,
}
_MEMORY: Final = re.compile(r"([0-9]{0,20})([a-z]{0,2})", re.ASCII)
_WHOLE: Final = re.compile(r"\+?([0-9]{1,20})", re.ASCII)


class Refused(ValueError):
    """An invalid value. The message is the reason as in CONFIG SET's error."""


class Kind(ABC):
    """The type of an option's values."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """The valid values, phrased to follow "must be"."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Parse a value from text. Raises Refused."""

    def native(self, value: Any) -> Any:
        """Convert a TOML or Python value. Raises Refused."""
        if not isinstance(value, str):
            raise Refused("argument must be a string")
        return self.parse(value)

    def over(self, old: Any, new: Any) -> Any:
        """The value that results from setting `new` over `old`."""
        return new

    def show(self, value: Any) -> str:
        """The text that CONFIG GET shows; `parse` accepts it."""
        return str(value)

    def plain(self, value: Any) -> Any:
        """The value as TOML; `native` accepts it."""
        return value


class Integer(Kind):
    """An integer. Values outside of `clamp` are silently clamped, as Redis does for hz."""

    def __init__(self, low: int, high: int, clamp: tuple[int, int] | None = None) -> None:
        self.low, self.high, self.clamp = low, high, clamp

    @property
    def allowed(self) -> str:
        low, high = self.clamp or (self.low, self.high)
        return f"an integer from {low} to {high}"

    def parse(self, text: str) -> int:
        value = read_int64(text.encode(errors="surrogateescape"))
        if value is None:
            raise Refused("argument couldn't be parsed into an integer")
        return self._checked(value)

    def native(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused("argument must be an integer")
        return self._checked(value)

    def _checked(self, value: int) -> int:
        if not self.low <= value <= self.high:
            raise Refused(f"argument must be between {self.low} and {self.high} inclusive")
        if self.clamp is not None:
            value = min(max(value, self.clamp[0]), self.clamp[1])
        return value


class OneOf(Integer):
    """One of a few integers."""

    def __init__(self, *values: int) -> None:
        super().__init__(min(values), max(values))
        self.values = values

    @property
    def allowed(self) -> str:
        return " or ".join(map(str, self.values))

    def _checked(self, value: int) -> int:
        if value not in self.values:
            values = ", ".join(map(str, self.values))
            raise Refused(f"argument(s) must be one of the following: {values}")
        return value


class Memory(Kind):
    """Bytes, as a number or with a unit: k kb m mb g gb (kb = 1024, k = 1000).

    off   0 is allowed even if it is below `low`, and means no limit
    """

    def __init__(self, low: int = 0, high: int = INT64_MAX, *, off: bool = False) -> None:
        self.low, self.high, self.off = low, high, off

    @property
    def allowed(self) -> str:
        bounds = f"from {self.low}" + (f" to {self.high}" if self.high != INT64_MAX else "")
        zero = "0 or " if self.off else ""
        return f'{zero}bytes {bounds}, as a number or with a unit: "64mb" (k kb m mb g gb)'

    def parse(self, text: str) -> int:
        value = memory_bytes(text)
        if value is None:
            raise Refused("argument must be a memory value")
        return self._checked(value)

    def native(self, value: Any) -> int:
        if isinstance(value, str):
            return self.parse(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise Refused("argument must be a memory value")
        return self._checked(value)

    def _checked(self, value: int) -> int:
        if not self.low <= value <= self.high and not (self.off and value == 0):
            zero = "0 or " if self.off else ""
            raise Refused(f"argument must be {zero}between {self.low} and {self.high} inclusive")
        return value


class Boolean(Kind):
    """yes or no; true or false in TOML and Python."""

    allowed = "true or false"

    def parse(self, text: str) -> bool:
        try:
            return {"yes": True, "no": False}[text.lower()]
        except KeyError:
            raise Refused("argument must be 'yes' or 'no'") from None

    def native(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Refused("argument must be true or false")
        return value

    def show(self, value: Any) -> str:
        return "yes" if value else "no"


class Choice(Kind):
    """One of a few words, case-insensitive."""

    def __init__(self, *words: str) -> None:
        self.words = words

    @property
    def allowed(self) -> str:
        words = ", ".join(f'"{word}"' for word in self.words)
        return words if len(self.words) == 1 else f"one of {words}"

    def parse(self, text: str) -> str:
        for word in self.words:
            if word.lower() == text.lower():
                return word
        words = ", ".join(self.words)
        raise Refused(f"argument(s) must be one of the following: {words}")


class Text(Kind):
    """Any text."""

    allowed = "a string without NUL"

    def parse(self, text: str) -> str:
        # A TOML file cannot contain a lone surrogate, and a file name cannot contain NUL.
        if "\0" in text or not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise Refused("argument must be UTF-8 text without NUL")
        return text


class FileName(Text):
    """The path of a file or a directory, or nothing."""


class Unread(Refused):
    """The place that a value names holds none. The message is the reason, without the option's name."""


class Secret(Text):
    """A password. TOML may also say where it is: { env = "NAME" } in a variable, { file = "/path" } in a file."""

    allowed = 'a string without NUL, { env = "NAME" } or { file = "/path" }'

    def native(self, value: Any) -> str:
        if not isinstance(value, dict):
            text = super().native(value)
            assert isinstance(text, str)
            return text
        if not self.names_a_place(value):
            raise Refused("argument must be a string, a variable or a file")
        [(form, name)] = value.items()
        return self.parse(_of_variable(name) if form == "env" else _of_file(name))

    @staticmethod
    def names_a_place(value: dict[str, Any]) -> bool:
        """Whether a table of TOML names one variable or one file."""
        names = list(value.values())
        return [*value] in (["env"], ["file"]) and isinstance(names[0], str) and names[0] != ""


class HostName(Text):
    """A host name or an IP address, or nothing."""

    allowed = "a host name or an IP address"

    def parse(self, text: str) -> str:
        if len(text) > 255 or not all("!" <= c <= "~" for c in text):
            raise Refused("argument must be a host name or an IP address")
        return text


class Words(Text):
    """At least one word (unless `empty`), separated by blanks; TOML and Python may also use a list of strings."""

    def __init__(self, known: tuple[str, ...] = (), *, empty: bool = False) -> None:
        self.known, self.empty = known, empty
        among = f" among {', '.join(known)}" if known else ""
        self.allowed = f'words{among}, as "a b" or ["a", "b"]'

    def parse(self, text: str) -> str:
        words = super().parse(text).split()
        unknown = [word for word in words if self.known and word not in self.known]
        if unknown:
            raise Refused(f"argument(s) must be one of the following: {', '.join(self.known)}")
        if not words and not self.empty:
            raise Refused("argument must contain at least one name")
        return " ".join(words)

    def native(self, value: Any) -> str:
        if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
            return self.parse(" ".join(value))
        value = super().native(value)
        assert isinstance(value, str)
        return value


class ReplicaOf(Text):
    """Host and port of a leader, or nothing: "10.0.0.1 6379"; the value is the text."""

    allowed = 'a host and a port, as "10.0.0.1 6379", or empty'

    def parse(self, text: str) -> str:
        words = super().parse(text).split()
        if not words or [word.lower() for word in words] == ["no", "one"]:
            return ""
        port = read_int64(words[-1].encode(errors="surrogateescape"))
        if len(words) != 2 or port is None or not 0 < port <= 65535:
            raise Refused("argument must be a host and a port")
        return " ".join(words)


class Mode(Kind):
    """The permissions of a file, as octal digits; the value is the text."""

    allowed = 'octal digits as a string, from "0" to "777"'

    def parse(self, text: str) -> str:
        if re.fullmatch("[0-7]{1,4}", text) is None:
            raise Refused("argument couldn't be parsed as an octal number")
        if int(text, 8) > 0o777:
            raise Refused("argument must be between 0 and 777 inclusive")
        return f"{int(text, 8):o}"


class SaveRules(Kind):
    """When to save: ((seconds, changes), ...); "3600 1 60 1000" as text, [[3600, 1], [60, 1000]] in TOML."""

    allowed = 'pairs of seconds and changes, each 1 or more, as [[3600, 1], [60, 1000]] or "3600 1 60 1000"'
    _SECONDS_MAX: Final = 10**12

    def parse(self, text: str) -> tuple[tuple[int, int], ...]:
        words = text.split(" ") if text else []
        numbers = [int(found[1]) for found in map(_WHOLE.fullmatch, words) if found is not None]
        if len(numbers) != len(words) or len(words) % 2:
            raise Refused("Invalid save parameters")
        return self._checked(tuple(zip(numbers[::2], numbers[1::2], strict=True)))

    def native(self, value: Any) -> tuple[tuple[int, int], ...]:
        if isinstance(value, str):
            return self.parse(value)
        if not isinstance(value, (list, tuple)) or not all(
            isinstance(pair, (list, tuple)) and [type(n) for n in pair] == [int, int]
            for pair in value
        ):
            raise Refused("Invalid save parameters")
        return self._checked(tuple((pair[0], pair[1]) for pair in value))

    def _checked(self, rules: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        for seconds, changes in rules:
            if not 1 <= seconds <= self._SECONDS_MAX or not 1 <= changes <= INT64_MAX:
                raise Refused("Invalid save parameters")
        return rules

    def show(self, value: Any) -> str:
        return " ".join(f"{seconds} {changes}" for seconds, changes in value)

    def plain(self, value: Any) -> Any:
        return [list(rule) for rule in value]


class EventClasses(Kind):
    """The letters of notify-keyspace-events, in the order in which Redis shows them."""

    allowed = "letters out of K E A g $ l s h z x e t m d n o c"

    def parse(self, text: str) -> str:
        try:
            wanted = Notifications(text)
        except ValueError as error:
            raise Refused(str(error)) from None
        shown = str(wanted)
        if "n" in wanted.classes and "n" not in shown:
            shown += "n"  # Redis 7.0 omits "n" if "A" is set, but the config file needs it
        return shown


class Limit(NamedTuple):
    """Limits in bytes for a client's unread output: never over `hard`, or over `soft` for `seconds`. 0 = no limit."""

    hard: int
    soft: int
    seconds: int


class OutputLimits(Kind):
    """client-output-buffer-limit: client class -> Limit. A new value replaces only the classes that it names."""

    allowed = (
        'a class of normal, replica, pubsub with its hard limit, soft limit and seconds: "pubsub 32mb 8mb 60", '
        'or { pubsub = ["32mb", "8mb", 60] }'
    )

    def __init__(self, defaults: dict[str, Limit]) -> None:
        self.defaults = defaults

    def parse(self, text: str) -> dict[str, Limit]:
        words = text.split()
        if len(words) % 4:
            raise Refused("Wrong number of arguments in buffer limit configuration.")
        limits: dict[str, Limit] = {}
        for at in range(0, len(words), 4):
            name, hard, soft, seconds = words[at : at + 4]
            whole = _WHOLE.fullmatch(seconds)
            number = int(whole[1]) if whole is not None else seconds
            limits[self._class(name)] = self._limit([hard, soft, number])
        return limits

    def native(self, value: Any) -> dict[str, Limit]:
        if isinstance(value, str):
            return self.parse(value)
        if not isinstance(value, dict) or not all(
            isinstance(limit, (list, tuple)) and len(limit) == 3 for limit in value.values()
        ):
            raise Refused("Wrong number of arguments in buffer limit configuration.")
        return {self._class(name): self._limit(list(limit)) for name, limit in value.items()}

    def over(self, old: Any, new: Any) -> Any:
        return {**old, **new}

    def _class(self, name: str) -> str:
        name = {"slave": "replica"}.get(name.lower(), name.lower())
        if name not in self.defaults:
            raise Refused("Invalid client class specified in buffer limit configuration.")
        return name

    def _limit(self, given: list[Any]) -> Limit:
        sizes = [memory_bytes(each) if isinstance(each, str) else each for each in given[:2]]
        numbers = [*sizes, given[2]]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise Refused(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
            )
        return Limit(*numbers)

    def show(self, value: Any) -> str:
        # Redis still shows the old name for replicas.
        return " ".join(
            f"{'slave' if name == 'replica' else name} {limit.hard} {limit.soft} {limit.seconds}"
            for name, limit in value.items()
        )

    def plain(self, value: Any) -> Any:
        return {name: list(limit) for name, limit in value.items()}


def memory_bytes(text: str) -> int | None:
    """Bytes of a size such as "64mb"; None if it is not one. Missing digits mean 0, as in Redis."""
    found = _MEMORY.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS:
        return None
    return int(found[1] or 0) * _UNITS[found[2]]


def _of_variable(name: str) -> str:
    """The value of an environment variable. Raises Unread."""
    try:
        return os.environ[name]
    except KeyError:
        raise Unread(f"the variable {name} is not set") from None


def _of_file(name: str) -> str:
    """The text of a file, without the end of its last line. Raises Unread."""
    try:
        data = recipe.read(RealDisk(), Path(name), SECRET_BYTES_MAX)
        return data.decode().removesuffix("\n")
    except OSError as error:
        raise Unread(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise Unread(f"{name} is not UTF-8") from None
