"""entries-read and lag: the table of examples in spec 9, in its 8.2+ column."""

from __future__ import annotations

import pytest
from tests.engine.driver import Engine

# fmt: off
TABLE = [
    # where the group is created, what happens then, entries-read, lag
    ("0",                   [],                                                   None, 5),
    ("$",                   [],                                                   None, 0),
    ("1-0",                 [],                                                   None, 4),
    ("3-0",                 [],                                                   None, None),
    ("3-0 ENTRIESREAD 3",   [],                                                   3,    2),
    ("9-0",                 [],                                                   None, None),
    ("0",                   ["read 2"],                                           2,    3),
    ("2-0",                 ["read 1"],                                           None, None),
    ("2-0",                 ["read 9"],                                           5,    0),
    ("0",                   ["read 2", "XDEL s 1-0"],                             2,    3),
    ("0",                   ["read 2", "XDEL s 4-0"],                             2,    None),
    ("0",                   ["read 2", "XDEL s 4-0", "read 1"],                   None, None),
    ("0",                   ["read 2", "XDEL s 4-0", "read 9"],                   5,    0),
    ("0",                   ["read 2", "XDEL s 1-0 2-0 3-0"],                     2,    2),
    ("0",                   ["XDEL s 1-0"],                                       None, 4),
    ("0",                   ["XDEL s 3-0"],                                       None, None),
    ("0",                   ["read 1", "XTRIM s MAXLEN 2"],                       1,    2),
    ("0",                   ["read 1", "XTRIM s MAXLEN 2", "read 1"],             4,    1),
    ("0",                   ["read 1", "XTRIM s MAXLEN 0"],                       1,    0),
    ("0",                   ["read 1", "XDEL s 1-0 2-0 3-0 4-0 5-0"],             1,    0),
    ("0 ENTRIESREAD 99",    [],                                                   5,    5),
    ("0",                   ["XCLAIM s g c 0 1-0 FORCE LASTID 3-0"],              None, None),
    ("0",                   ["read 9", "XGROUP SETID s g 0"],                     None, 5),
]
# fmt: on


@pytest.mark.parametrize(("created", "actions", "entries_read", "lag"), TABLE)
def test_check_table(
    created: str, actions: list[str], entries_read: int | None, lag: int | None
) -> None:
    engine = Engine()
    for n in range(1, 6):
        engine(f"XADD s {n}-0 f v")
    engine(f"XGROUP CREATE s g {created}")
    for action in actions:
        word, _, count = action.partition(" ")
        if word == "read":
            engine(f"XREADGROUP GROUP g c COUNT {count} STREAMS s >")
        else:
            engine(action)
    (group,) = engine("XINFO GROUPS s")
    assert (group["entries-read"], group["lag"]) == (entries_read, lag)
    engine.check()


def test_a_new_stream() -> None:
    engine = Engine()
    engine("XGROUP CREATE s g $ MKSTREAM")
    (group,) = engine("XINFO GROUPS s")
    assert (group["entries-read"], group["lag"]) == (None, 0)


def test_setid_clamps_entries_read_too() -> None:
    engine = Engine()
    engine("XADD s 1-0 f v")
    engine("XGROUP CREATE s g 0")
    engine("XGROUP SETID s g 0 ENTRIESREAD 7")
    assert engine("XINFO GROUPS s")[0]["entries-read"] == 1


def test_reading_in_two_steps_counts_as_in_one() -> None:
    """The rule goes entry by entry; a whole run is counted at once."""
    for deleted in ("", "2-0", "4-0", "6-0", "2-0 3-0", "1-0 6-0"):
        ends = []
        for step in (1, 2, 3, 7):
            engine = Engine()
            for n in range(1, 8):
                engine(f"XADD s {n}-0 f v")
            engine("XGROUP CREATE s g 0")
            if deleted:
                engine(f"XDEL s {deleted}")
            while engine(f"XREADGROUP GROUP g c COUNT {step} STREAMS s >"):
                pass
            (group,) = engine("XINFO GROUPS s")
            ends.append((group["entries-read"], group["lag"]))
        assert len(set(ends)) == 1
