"""Mutants of how a store is served: tidelog.toml, one durability for all, and the handover of an owner."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

STORED_FILE: Final = "server/config/stored.py"
LINK: Final = "client/link.py"
WIRE: Final = "client/wire.py"
HANDOVER_FILE: Final = "server/handover.py"
STORED: Final = "tests/server/test_stored.py"
DURABILITY: Final = "tests/client/test_durability.py"
HANDOVER: Final = "tests/client/test_handover.py"

MUTANTS: Final = (
    Mutant(
        "stored/others-may-read-it",
        STORED_FILE,
        "        if found.mode & 0o077:\n",
        "        if found.mode & 0o007:\n",
        (f"{STORED}::test_others_may_not_read_it",),
        "A tidelog.toml that others can read is refused.",
    ),
    Mutant(
        "stored/a-password-in-clear",
        STORED_FILE,
        "            if isinstance(value, str) and value:\n                raise ConfigError(where + ",
        "            if isinstance(value, int) and value:\n                raise ConfigError(where + ",
        (f"{STORED}::test_what_makes_no_sense",),
        "A tidelog.toml holds no password.",
    ),
    Mutant(
        "stored/half-written",
        STORED_FILE,
        '    if data and not data.endswith(b"\\n"):\n',
        "    if not data:\n",
        (f"{STORED}::test_what_makes_no_sense",),
        "A tidelog.toml whose last line has no end is refused.",
    ),
    Mutant(
        "stored/two-changes-at-once",
        STORED_FILE,
        "        while (turn := take_turn(self._root)) is None:\n",
        "        while (turn := take_turn(self._root) or Turn(None)) is None:\n",
        (f"{STORED}::test_changes_at_the_same_time_lose_nothing",),
        "Of two changes of tidelog.toml at the same time none is lost.",
    ),
    Mutant(
        "durability/less-without-a-word",
        LINK,
        "        if POLICIES.index(policy) > POLICIES.index(wanted):  # the safest is the first\n",
        "        if POLICIES.index(policy) < POLICIES.index(wanted):  # the safest is the first\n",
        (f"{DURABILITY}::test_more_than_the_server_has_is_refused",),
        "A client that asks for more durability than the server has is refused.",
    ),
    Mutant(
        "handover/a-client-opens-what-an-operator-starts",
        LINK,
        "                if root is None or waits:\n",
        "                if root is None:\n",
        (f"{HANDOVER}::test_a_client_may_start_nothing",),
        "No client starts the server of a store that an operator starts.",
    ),
    Mutant(
        "handover/in-doubt",
        WIRE,
        '            raise Broken(f"{self._name} is served by another process now", sent=sent)\n',
        '            raise Broken(f"{self._name} is served by another process now", sent=True)\n',
        (f"{HANDOVER}::test_serve_takes_over",),
        "A call that crosses a handover, and was not run, is repeated, whatever it is.",
    ),
    Mutant(
        "handover/a-blocked-read-goes-on",
        HANDOVER_FILE,
        "                session.unblock(LINE if knows else None)\n",
        "                pass\n",
        (f"{HANDOVER}::test_a_client_that_does_not_know",),
        "A handover ends blocked reads as if they were late.",
    ),
)
