"""Mutants of deaths: each is told at least once, to one of the processes that share the position, and then kept."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

TELLING: Final = "api/queue/running/telling.py"
DEATHS: Final = "api/queue/deaths.py"
TESTS: Final = "tests/jobs/test_on_dead.py"
KEPT_TESTS: Final = "tests/jobs/test_keep_dead.py"
FACES_TESTS: Final = "tests/client/faces/test_keep_dead.py"

MUTANTS: Final = (
    Mutant(
        "deaths/told-before-the-call",
        TELLING,
        "            self._on_dead(job)\n",
        "            self._deaths.told(job)\n            self._on_dead(job)\n",
        (f"{TESTS}::test_the_next_process_tells_it_after_kill_9[on_dead-embedded]",),
        "A death is told again if the process is killed in the call.",
    ),
    Mutant(
        "deaths/not-told-again",
        DEATHS,
        '        words += [b"CLAIM", self._again_ms, b"STREAMS", self._key, b">"]',
        '        words += [b"STREAMS", self._key, b">"]',
        (f"{TESTS}::test_a_callback_that_raises_is_called_again_and_ends_nothing",),
        "A death is told again if the call raised.",
    ),
    Mutant(
        "deaths/of-this-run-only",
        DEATHS,
        '            if error.code != "BUSYGROUP":\n                raise\n',
        '            if error.code != "BUSYGROUP":\n                raise\n'
        '            self._call(raw, [b"XGROUP", b"SETID", self._key, self._group_key, b"$"])\n',
        (
            f"{TESTS}::test_deaths_before_the_first_run_with_on_dead_are_not_told_and_later_ones_are",
        ),
        "A death that came while nothing ran is told by the next run.",
    ),
    Mutant(
        "deaths/an-older-store-drops-them",
        "store/checkpoints.py",
        "        self._began_empty = owned.made > 0\n",
        "        self._began_empty = owned.made >= 0\n",
        (f"{KEPT_TESTS}::test_the_store_of_an_earlier_version_keeps_what_it_had",),
        "The store of an earlier version keeps all dead jobs.",
    ),
    Mutant(
        "deaths/kept-by-number-alone",
        "jobs/work/retention.py",
        "    if kept.seconds and dead.first_id() < end:\n",
        "    if False:\n",
        (f"{FACES_TESTS}::test_old_ones_go_when_the_next_job_dies[Embedded]",),
        "A dead job goes when it is too old.",
    ),
    Mutant(
        "deaths/of-a-fetch-stay",
        "jobs/work/fetch.py",
        "            sweep_dead(self.known.core, self.known.db, self.options)\n",
        "",
        (f"{FACES_TESTS}::test_so_do_deaths_that_a_fetch_decides[Embedded]",),
        "Deaths that a fetch decides drop those beyond the limit.",
    ),
)
