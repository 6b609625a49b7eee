"""Mutants of hooks and middleware: what a program is told is true, and what it puts around a handler counts once."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

ENDS: Final = "api/queue/ends.py"
AROUND: Final = "api/queue/running/middleware.py"
HOOKS_TESTS: Final = "tests/jobs/test_hooks.py"
TESTS: Final = "tests/jobs/test_middleware.py"

MUTANTS: Final = (
    Mutant(
        "hooks/told-before-the-end",
        ENDS,
        "        held = self._end(again or verb)\n",
        "        if again is not None:\n"
        "            self._on_retry(self, error, again.pause)\n"
        "        held = self._end(again or verb)\n",
        (f"{HOOKS_TESTS}::test_it_is_called_when_the_disk_has_the_end",),
        "A retry is told after the failure is stored.",
    ),
    Mutant(
        "hooks/a-pause-of-its-own",
        ENDS,
        "        held = self._end(again or verb)\n",
        "        held = self._end(verb)\n",
        (f"{HOOKS_TESTS}::test_the_pause_with_jitter_is_the_one_that_was_stored[embedded]",),
        "The pause that is told is the one that is stored.",
    ),
    Mutant(
        "hooks/every-end-is-done",
        "api/queue/running/threads.py",
        '            if job.state == "acked":\n',
        '            if job.state != "open":\n',
        (f"{HOOKS_TESTS}::test_only_jobs_that_are_done_are_told[embedded-nack]",),
        "A job that was given back is not told as done.",
    ),
    Mutant(
        "middleware/next-as-often-as-one-likes",
        AROUND,
        "            begun = True\n            return self.go(place + 1, job)\n",
        "            return self.go(place + 1, job)\n",
        (f"{TESTS}::test_a_second_call_of_next_is_an_error_and_calls_nothing[embedded-0-False]",),
        "A handler is called once for a delivery.",
    ),
    Mutant(
        "middleware/context-of-the-thread",
        AROUND,
        "        return copy_context().run(self.go, 0, job)\n",
        "        return self.go(0, job)\n",
        (f"{TESTS}::test_a_context_variable_is_set_for_one_job[embedded]",),
        "A context variable is set for one job.",
    ),
)
