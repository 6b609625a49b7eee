"""Random calls of redis-py's stream methods over few keys, groups, consumers and IDs, so that they collide often."""

from __future__ import annotations

import random
from typing import Any

from tests.server.clients.faces import Call, call

KEYS = ("s", "s", "t", "u", "now")
GROUPS = ("g", "g", "h", b"\xc3\xbf")
CONSUMERS = ("alice", "bob", "carol")
POLICIES = (None, "KEEPREF", "DELREF", "ACKED")
MODES = ("SILENT", "FAIL", "FATAL")
VALUES = ("", "v", 1, -7, 2.5, b"bytes", "\u00e4", "w" * 70, "line\r\n")


class Calls:
    """Draws calls. `newer`: of what came after Redis 7.0 as well. `high` follows where the IDs have got to."""

    def __init__(self, seed: int, newer: bool) -> None:
        self.r = random.Random(seed)
        self.newer, self.high = newer, 1
        self.made: list[Any] = []  # the latest IDs that the clock made
        rows = [
            (22, self.xadd), (4, self.xtrim), (5, self.xdel), (2, self.xlen), (4, self.xrange), (3, self.xrevrange),
            (5, self.xread), (18, self.xreadgroup), (6, self.xack), (8, self.xclaim), (6, self.xautoclaim),
            (4, self.xpending), (5, self.xpending_range), (6, self.xgroup_create), (3, self.xgroup_setid),
            (1, self.xgroup_destroy), (2, self.xgroup_createconsumer), (2, self.xgroup_delconsumer),
            (4, self.xinfo_stream), (4, self.xinfo_groups), (4, self.xinfo_consumers), (1, self.delete), (1, self.set),
        ]  # fmt: skip
        if newer:
            rows += [(5, self.xackdel), (4, self.xdelex), (8, self.xnack), (2, self.xcfgset)]
        self._draw = [row for _, row in rows]
        self._weights = [weight for weight, _ in rows]

    def call(self) -> Call:
        return self.r.choices(self._draw, self._weights)[0]()

    def learn(self, call: Call, value: Any) -> None:
        """The result of a call."""
        if call.name == "xadd" and call.args[0] == "now" and isinstance(value, (str, bytes)):
            self.made = [*self.made[-9:], value]

    # --- words

    def chance(self, of: float) -> bool:
        return self.r.random() < of

    def key(self) -> Any:
        return "text" if self.chance(0.02) else self.r.choice(KEYS)

    def group(self) -> Any:
        return "none" if self.chance(0.03) else self.r.choice(GROUPS)

    def consumer(self) -> str:
        return self.r.choice(CONSUMERS)

    def value(self) -> Any:
        found = self.r.choice(VALUES)
        return found

    def id(self) -> Any:
        """Mostly one that is, or was, there."""
        r = self.r
        if self.chance(0.04):
            return r.choice(("x", "-1", "5-5-5", "18446744073709551615", "*"))
        if self.made and self.chance(0.2):
            return r.choice(self.made)
        near = max(self.high - r.randint(-1, 12), 0)
        return r.choice((f"{near}-1", f"{near}-1", f"{near}-0", near, f"{near}-1".encode()))

    def ids(self, low: int = 1) -> list[Any]:
        return [self.id() for _ in range(self.r.randint(low, 4))]

    def maybe(self, of: float = 0.3, **options: Any) -> dict[str, Any]:
        """Each option with that chance."""
        return {name: value for name, value in options.items() if self.chance(of)}

    # --- streams

    def fields(self) -> dict[Any, Any]:
        return {
            self.r.choice(("a", "b", b"c", 4)): self.value() for _ in range(self.r.randint(1, 3))
        }

    def trimming(self) -> dict[str, Any]:
        r = self.r
        options: dict[str, Any] = {}
        if self.chance(0.7):
            options["maxlen"] = r.choice((0, 1, 3, 8, 100))
        else:
            options["minid"] = self.id()
        if self.chance(0.5):
            options["approximate"] = False
        if self.chance(0.15):
            options["limit"] = r.choice((0, 1, 1000, -1))
        if self.newer:
            options |= self.maybe(0.4, ref_policy=r.choice(POLICIES))
        return options

    def xadd(self) -> Call:
        r = self.r
        options = self.maybe(0.06, nomkstream=True)
        if self.chance(0.15):
            options |= self.trimming()
        key = self.key()
        if key == "now":
            if self.newer and self.chance(0.5):
                idmp = (
                    {"idmpauto": r.choice("pq")},
                    {"idmp": (r.choice("pq"), r.choice((b"1", b"2")))},
                )
                options |= r.choice(idmp)
        elif self.chance(0.06):
            options["id"] = self.id()
        else:
            self.high += r.choice((1, 1, 1, 2))
            options["id"] = r.choice((f"{self.high}-1", f"{self.high}-1", f"{self.high}-*"))
        return call("xadd", key, self.fields(), **options)

    def xtrim(self) -> Call:
        return call("xtrim", self.key(), **self.trimming())

    def xdel(self) -> Call:
        return call("xdel", self.key(), *self.ids())

    def xlen(self) -> Call:
        return call("xlen", self.key())

    def edge(self, odd: str) -> Any:
        id = self.id()
        return self.r.choice((odd, odd, id, f"({self.high - 3}-1"))

    def xrange(self) -> Call:
        options = self.maybe(0.4, count=self.r.choice((1, 2, 100, 0)))
        return call("xrange", self.key(), self.edge("-"), self.edge("+"), **options)

    def xrevrange(self) -> Call:
        options = self.maybe(0.4, count=self.r.choice((1, 2, 100)))
        return call("xrevrange", self.key(), self.edge("+"), self.edge("-"), **options)

    def streams(self, odd: str) -> dict[Any, Any]:
        keys = [self.key() for _ in range(self.r.choice((1, 1, 1, 2)))]
        return {key: odd if self.chance(0.7) else self.id() for key in keys}

    def limits(self) -> dict[str, Any]:
        options = self.maybe(0.5, count=self.r.choice((1, 2, 5)))
        if self.newer:
            options |= self.maybe(0.1, max_count=self.r.choice((1, 5)), max_size=1)
        return options

    def xread(self) -> Call:
        return call(
            "xread", self.streams(self.r.choice("0$+" if self.newer else "0$")), **self.limits()
        )

    def xreadgroup(self) -> Call:
        options = self.limits() | self.maybe(0.1, noack=True)
        if self.newer:
            options |= self.maybe(0.4, claim_min_idle_time=self.r.choice((0, 10, 1000)))
        return call("xreadgroup", self.group(), self.consumer(), self.streams(">"), **options)

    # --- groups

    def xgroup_create(self) -> Call:
        options = self.maybe(0.6, mkstream=True) | self.maybe(
            0.1, entries_read=self.r.choice((0, 2, 50, -1, -2))
        )
        if self.chance(0.8):
            options["id"] = self.r.choice(("0", "0", "$", self.id()))
        return call("xgroup_create", self.key(), self.group(), **options)

    def xgroup_setid(self) -> Call:
        options = self.maybe(0.2, entries_read=self.r.choice((0, 2, 50)))
        return call(
            "xgroup_setid",
            self.key(),
            self.group(),
            self.r.choice(("0", "$", self.id())),
            **options,
        )

    def xgroup_destroy(self) -> Call:
        return call("xgroup_destroy", self.key(), self.group())

    def xgroup_createconsumer(self) -> Call:
        return call("xgroup_createconsumer", self.key(), self.group(), self.consumer())

    def xgroup_delconsumer(self) -> Call:
        return call("xgroup_delconsumer", self.key(), self.group(), self.consumer())

    def xack(self) -> Call:
        return call("xack", self.key(), self.group(), *self.ids(0 if self.chance(0.05) else 1))

    def idle(self) -> int:
        return self.r.choice((0, 0, 1, 10, 500))

    def xclaim(self) -> Call:
        r = self.r
        options = self.maybe(
            0.15, idle=r.choice((0, 5, 10_000)), time=r.choice((0, 1_692_632_000_001)),
            retrycount=r.choice((0, 7)), force=True, justid=True,
        )  # fmt: skip
        return call(
            "xclaim", self.key(), self.group(), self.consumer(), self.idle(), self.ids(), **options
        )

    def xautoclaim(self) -> Call:
        options = self.maybe(0.3, count=self.r.choice((1, 2, 100)), justid=True)
        options |= self.maybe(0.4, start_id=self.r.choice(("0-0", "-", self.id())))
        return call("xautoclaim", self.key(), self.group(), self.consumer(), self.idle(), **options)

    def xpending(self) -> Call:
        return call("xpending", self.key(), self.group())

    def xpending_range(self) -> Call:
        options = self.maybe(0.3, consumername=self.consumer(), idle=self.idle())
        count = self.r.choice((1, 3, 100))
        return call(
            "xpending_range",
            self.key(),
            self.group(),
            self.edge("-"),
            self.edge("+"),
            count,
            **options,
        )

    # --- looking

    def xinfo_stream(self) -> Call:
        return call("xinfo_stream", self.key(), **self.maybe(0.6, full=True))

    def xinfo_groups(self) -> Call:
        return call("xinfo_groups", self.key())

    def xinfo_consumers(self) -> Call:
        return call("xinfo_consumers", self.key(), self.group())

    # --- keys beside them

    def delete(self) -> Call:
        return call("delete", self.key())

    def set(self) -> Call:
        return call("set", "text", "word")

    # --- since 8.2

    def policy(self) -> dict[str, Any]:
        return self.maybe(0.7, ref_policy=self.r.choice(POLICIES[1:]))

    def xackdel(self) -> Call:
        return call("xackdel", self.key(), self.group(), *self.ids(), **self.policy())

    def xdelex(self) -> Call:
        return call("xdelex", self.key(), *self.ids(), **self.policy())

    def xnack(self) -> Call:
        options = self.maybe(0.2, retrycount=self.r.choice((0, 3)), force=True)
        return call("xnack", self.key(), self.group(), self.r.choice(MODES), *self.ids(), **options)

    def xcfgset(self) -> Call:
        options: dict[str, Any] = self.r.choice(
            ({"idmp_duration": 5}, {"idmp_maxsize": 1}, {"idmp_duration": 300, "idmp_maxsize": 100})
        )
        return call("xcfgset", self.key(), **options)
