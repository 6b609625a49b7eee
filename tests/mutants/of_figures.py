"""Mutants of the figures: helper streams are not the user's, queues in a scrape, advice."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

NAMES_TESTS: Final = "tests/figures/test_names.py"
SCRAPE_TESTS: Final = "tests/server/monitoring/test_metrics_queues.py"
DOCTOR_TESTS: Final = "tests/tools/test_doctor.py"

MUTANTS: Final = (
    Mutant(
        "figures/a-name-makes-a-helper",
        "figures/names.py",
        "            return fields <= {*first[::2]}\n",
        "            return True\n",
        (f"{NAMES_TESTS}::test_the_first_entry_tells_a_helper",),
        "A user's stream with the name of a helper is shown as the user's.",
    ),
    Mutant(
        "figures/helpers-in-a-scrape",
        "figures/resident.py",
        "        plain = [name for name in seen if owner_of(name) not in there]\n",
        "        plain = seen\n",
        (f"{NAMES_TESTS}::test_a_scrape_shows_no_helper",),
        "A scrape shows no stream that a queue keeps for itself.",
    ),
    Mutant(
        "figures/paused-jobs-wait",
        "figures/working.py",
        "                paused += nacked - len(lane.due(group, mono))\n",
        "                paused += 0\n",
        (f"{SCRAPE_TESTS}::test_the_figures_of_a_queue",),
        "A scrape tells failed jobs that wait for their retry from those that are due.",
    ),
    Mutant(
        "figures/a-waiting-worker-is-dead",
        "jobs/living.py",
        "    return found | waiting_workers(known)\n",
        "    return found\n",
        (f"{SCRAPE_TESTS}::test_a_worker_that_waits_is_alive",),
        "A worker that waits for jobs counts as alive.",
    ),
    Mutant(
        "figures/dead-jobs-only-of-this-life",
        "figures/working.py",
        "                    return list(keys)\n",
        "                    return []\n",
        (f"{SCRAPE_TESTS}::test_dead_jobs_of_an_earlier_life_are_counted_and_stay_cold",),
        "A scrape counts the dead jobs of a queue that nobody has used since the store was opened.",
    ),
    Mutant(
        "figures/no-worker-is-well",
        "figures/advice.py",
        "        if row.waiting and not row.workers:\n",
        "        if row.waiting and row.workers < 0:\n",
        (f"{DOCTOR_TESTS}::test_each_misconfiguration_is_named_alone[no-workers]",),
        "The doctor names a queue whose jobs wait for a worker that never came.",
    ),
)
