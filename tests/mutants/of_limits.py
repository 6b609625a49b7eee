"""Mutants of the limits of queues: they hold, they end, and they are in the log."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

LIMITS: Final = "jobs/work/limits.py"
FETCH: Final = "jobs/work/fetch.py"
TESTS: Final = "tests/jobs/test_limits.py"

MUTANTS: Final = (
    Mutant(
        "limits/paused-jobs-hold-places",
        LIMITS,
        "    held = sum(len(group.pending) - group.pending.nacked() for group in groups)\n",
        "    held = sum(len(group.pending) for group in groups)\n",
        (f"{TESTS}::test_a_retry_needs_a_place",),
        "Only jobs that workers hold count against `concurrency`.",
    ),
    Mutant(
        "limits/retries-without-a-place",
        "jobs/work/look.py",
        "and not self._full and limits.free > 0:\n",
        "and not self._full:\n",
        (f"{TESTS}::test_a_retry_needs_a_place",),
        "A retry needs a free place.",
    ),
    Mutant(
        "limits/a-slice-ends-with-its-first-job",
        LIMITS,
        "        end = step + rate.period\n",
        "        end = rate.period - step\n",
        (f"{TESTS}::test_a_rate_holds_in_every_period",),
        "A rate holds in every span of time that is as long as its period.",
    ),
    Mutant(
        "limits/a-rate-is-not-logged",
        LIMITS,
        "        ctx.effects.append((SET, ctx.db, self._key, text, max(until, ctx.now + 1)))\n",
        "        del text, until\n",
        (f"{TESTS}::test_a_rate_survives_a_restart_and_ends_by_itself",),
        "Deliveries are counted in the log.",
    ),
    Mutant(
        "limits/retries-are-free",
        FETCH,
        "            limits.rate.log(ctx, len(self.delivery.jobs))\n",
        "            limits.rate.log(ctx, sum(count == 1 for _, _, count in self.delivery.jobs))\n",
        (f"{TESTS}::test_every_delivery_counts",),
        "Retries count against the rate.",
    ),
)
