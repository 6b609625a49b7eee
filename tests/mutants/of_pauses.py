"""Mutants of paused queues: they deliver nothing, also after a restart, and wake those who wait when they go on."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

TESTS: Final = "tests/client/faces/test_pause.py"

MUTANTS: Final = (
    Mutant(
        "pauses/a-restart-ends-one",
        "jobs/work/known.py",
        "                self.is_halted(ctx.database.keys)\n",
        "",
        (f"{TESTS}::test_no_group_gets_a_job_until_the_queue_goes_on",),
        "A pause outlives a restart.",
    ),
    Mutant(
        "pauses/one-group-is-paused",
        "jobs/verbs/pause.py",
        "    for group in engine.known.later.groups:\n",
        "    for group in (engine.known,):\n",
        (f"{TESTS}::test_no_group_gets_a_job_until_the_queue_goes_on",),
        "A paused queue delivers to none of its groups.",
    ),
    Mutant(
        "pauses/nobody-is-woken",
        "jobs/verbs/resume.py",
        "    engine.core.waiting.signal([engine.known.place])\n",
        "",
        (f"{TESTS}::test_a_worker_that_waits_is_woken",),
        "A worker that waits for a paused queue gets a job as soon as the queue goes on.",
    ),
    Mutant(
        "pauses/ticks-stop",
        "jobs/work/fetch.py",
        "            look_at = min(mono + LOOK_SECONDS, known.chores_at)  # ticks and delays go on\n",
        "            look_at = mono + 1e9\n",
        (f"{TESTS}::test_delays_go_on_while_a_worker_waits",),
        "Delays and ticks go on while a queue is paused.",
    ),
    Mutant(
        "pauses/the-long-way-for-ever",
        "jobs/work/known.py",
        "        self.plain = not (self.halted or self.lanes or self.keys is not None)\n",
        "",
        (f"{TESTS}::test_the_short_way_is_open_again_afterwards",),
        "A pause that is over costs nothing.",
    ),
)
