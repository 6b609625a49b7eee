"""Mutants of what the server keeps apart: seats for operators, keys of its own, snapshots for followers, dead jobs.

And of an imported append-only file: its end is judged as Redis judges it.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

RESERVE: Final = "server/reserve.py"
RESERVE_TESTS: Final = "tests/server/test_reserve.py"
SERIES_TESTS: Final = "tests/server/access/test_series.py"
PASSING: Final = "snapshot/passing.py"
PORTABLE: Final = "snapshot/portable.py"
PASSING_TESTS: Final = "tests/snapshot/test_passing.py"
KEPT_TESTS: Final = "tests/store/checkpoint/test_passing_snapshots.py"
DEATH_TESTS: Final = "tests/jobs/test_deaths.py"
IMPORT: Final = "tools/importing/from_aof.py"
IMPORT_TESTS: Final = "tests/tools/test_import_aof.py"

MUTANTS: Final = (
    Mutant(
        "seats/data-on-a-seat",
        RESERVE,
        "        if about & _DATA or not (about & _OPERATE or session in self._operators):\n",
        "        if not (about & _OPERATE or session in self._operators):\n",
        (f"{RESERVE_TESTS}::test_an_ordinary_client_is_refused_with_its_first_command",),
        "A client beyond maxclients is refused with its first command on data.",
    ),
    Mutant(
        "seats/operators-give-way-first",
        RESERVE,
        "            self.refuse(next(iter(self._trials or self._operators)))\n",
        "            self.refuse(next(iter(self._operators or self._trials)))\n",
        (f"{RESERVE_TESTS}::test_operators_give_way_last",),
        "A new connection takes the seat of one on trial before that of an operator.",
    ),
    Mutant(
        "seats/a-busy-operator-gives-way",
        RESERVE,
        "            self._operators.pop(session, None)\n            self._operators[session] = None\n",
        "            self._operators.setdefault(session, None)\n",
        (f"{RESERVE_TESTS}::test_operators_give_way_last",),
        "Of operators, the one that has done nothing for longest gives way.",
    ),
    Mutant(
        "reserved/a-series-of-all-users",
        "server/once.py",
        '            SERIES + series if user.name == DEFAULT else b"%b%b\\0%b" % (SERIES, user.name, series)\n',
        "            SERIES + series\n",
        (f"{SERIES_TESTS}::test_a_series_belongs_to_the_user_who_opened_it",),
        "A numbered write never gets the reply of another user's write.",
    ),
    Mutant(
        "reserved/a-queue-over-a-series",
        "server/reserved.py",
        '    if command.name.startswith(b"queue|"):\n',
        '    if command.name.startswith(b"QUEUE|"):\n',
        (f"{SERIES_TESTS}::test_a_queue_whose_other_keys_would_be_series_is_refused",),
        "No queue has keys in which the server remembers numbered writes.",
    ),
    Mutant(
        "reserved/listed",
        "server/lists.py",
        "    return not key.startswith(SERIES)\n",
        "    return key != SERIES\n",
        (f"{SERIES_TESTS}::test_lists_and_events_leave_them_out",),
        "KEYS, SCAN and RANDOMKEY leave out the keys of numbered writes.",
    ),
    Mutant(
        "passing/listed-too-late",
        PORTABLE,
        "    if passing:\n        spared.add(disk, directory, final)\n",
        "",
        (f"{PASSING_TESTS}::test_no_power_cut_leaves_one_without_an_owner",),
        "A snapshot for a follower is in the list before the directory has it.",
    ),
    Mutant(
        "passing/a-users-snapshot-goes",
        PORTABLE,
        "            if not passing:\n                spared.take(disk, directory, path)\n",
        "",
        (f"{KEPT_TESTS}::test_a_user_asks_for_one_that_a_follower_has",),
        "A snapshot that a user asked for stays when the follower that had it goes.",
    ),
    Mutant(
        "passing/an-unreadable-list-stops-the-store",
        PASSING,
        "    except (Damage, NewerFormat) as error:\n",
        "    except NewerFormat as error:\n",
        (f"{PASSING_TESTS}::test_a_list_that_cannot_be_read_names_none",),
        "A list of followers' snapshots that cannot be read deletes nothing and stops nobody.",
    ),
    Mutant(
        "deaths/told-of-a-unit-that-failed",
        "jobs/work/fetch.py",
        "            ends.failed()\n",
        "            ends.failed()\n        tell(self.options, self._dying)\n",
        (f"{DEATH_TESTS}::test_a_unit_that_fails_tells_nothing",),
        "A job is logged as dead when that is stored, once.",
    ),
    Mutant(
        "imports/a-damaged-tail-is-a-cut-one",
        IMPORT,
        "        if not truncate_tail:\n",
        "        if truncate_tail is None:\n",
        (f"{IMPORT_TESTS}::test_a_damaged_tail_is_judged_as_redis_does",),
        "Zeros or garbage behind an imported append-only file are damage unless the caller consents.",
    ),
    Mutant(
        "imports/any-file-may-be-cut",
        IMPORT,
        "        if not last:\n            raise\n",
        "",
        (f"{IMPORT_TESTS}::test_only_the_last_file_may_be_cut",),
        "Of several append-only files only the last may end in the middle of a command.",
    ),
)
