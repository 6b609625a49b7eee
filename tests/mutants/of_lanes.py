"""Mutants of priorities and keys: a fetch looks into all lanes, in order and by turns; a key keeps order and limit."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

FETCH: Final = "jobs/work/fetch.py"
KEYS: Final = "jobs/work/keys.py"
KNOWN: Final = "jobs/work/known.py"
PAUSES: Final = "jobs/work/pauses.py"
PRIORITY_TESTS: Final = "tests/jobs/test_priorities.py"
KEY_TESTS: Final = "tests/jobs/test_keys.py"

MUTANTS: Final = (
    Mutant(
        "lanes/a-fetch-forgets-the-lanes-of-before",
        KNOWN,
        "            if priority not in self.lanes and self._options.lane(priority).key in keys:\n",
        "            if priority in self.lanes and self._options.lane(priority).key in keys:\n",
        (f"{PRIORITY_TESTS}::test_lanes_survive_a_restart",),
        "Lanes that an earlier process made are found.",
    ),
    Mutant(
        "lanes/the-lowest-first",
        KNOWN,
        "        self.lanes = {each: lanes[each] for each in sorted(lanes, reverse=True)}\n",
        "        self.lanes = {each: lanes[each] for each in sorted(lanes)}\n",
        (f"{PRIORITY_TESTS}::test_the_highest_priority_comes_first",),
        "A fetch looks into the lane of the highest priority first.",
    ),
    Mutant(
        "lanes/no-turns",
        FETCH,
        "        if self.known.turns % FAIR == FAIR - 1:\n",
        "        if self.known.turns < 0:\n",
        (f"{PRIORITY_TESTS}::test_no_priority_starves",),
        "One fetch in ten begins with the lane whose next job was put first.",
    ),
    Mutant(
        "lanes/the-turn-of-the-highest",
        FETCH,
        "            first = min(ready, key=lambda lane: _next_job(lane, mono))\n",
        "            first = ready[0]\n",
        (f"{PRIORITY_TESTS}::test_the_turn_goes_to_the_job_that_was_put_first",),
        "The turn belongs to the job that was put first.",
    ),
    Mutant(
        "lanes/a-limit-counts-one-lane",
        FETCH,
        "            limits.heed(ctx, options, [lane.group for lane in lanes], len(ends.held))\n",
        "            limits.heed(ctx, options, [lanes[-1].group], len(ends.held))\n",
        (f"{PRIORITY_TESTS}::test_limits_count_all_lanes",),
        "`concurrency` counts the jobs of all lanes.",
    ),
    Mutant(
        "lanes/a-lane-lacks-a-group",
        "jobs/lanes.py",
        "    return [create_group(lane_key, name) for name in queue.groups if name not in known]\n",
        "    return [create_group(lane_key, name) for name in queue.groups if name not in known][:1]\n",
        (f"{PRIORITY_TESTS}::test_every_group_gets_the_jobs_of_all_lanes",),
        "A lane is created with all groups of its queue.",
    ),
    Mutant(
        "lanes/redriven-into-lane-0",
        "jobs/verbs/dead.py",
        "            options = JobOptions(priority=rows.priority_of(row))\n",
        "            options = JobOptions(priority=0)\n",
        (f"{PRIORITY_TESTS}::test_a_redriven_job_returns_to_its_lane",),
        "A redriven job returns to its lane.",
    ),
    Mutant(
        "lanes/a-worker-begins-in-one-lane",
        FETCH,
        "        if any(history.get(lane.known.priority) != ENDED for lane in lanes):\n",
        "        if all(history.get(lane.known.priority) != ENDED for lane in lanes):\n",
        (
            "tests/server/test_queue_commands.py"
            "::test_a_worker_that_returns_gets_its_jobs_of_all_priorities",
        ),
        "A worker that begins gets its earlier jobs of all lanes.",
    ),
    Mutant(
        "lanes/a-worker-begins-again-and-again",
        "client/consumer.py",
        "        queue.begun.add(worker)\n",
        "",
        ("tests/client/faces/test_faces_agree.py::test_a_worker_begins_once",),
        "A shared worker begins once.",
    ),
    Mutant(
        "keys/a-restart-forgets-jobs-in-progress",
        KEYS,
        "                lane.running[job] = key\n        self._lanes[priority] = lane\n",
        "                pass\n        self._lanes[priority] = lane\n",
        (f"{KEY_TESTS}::test_the_limit_survives_a_restart",),
        "Jobs of a key that were in progress before a restart count.",
    ),
    Mutant(
        "keys/a-retry-frees-its-key",
        PAUSES,
        "        self._pause(job, deferral)\n        if self.lane_0 is not None:",
        "        if self.keys is None or not self.keys.released(self.priority, job):\n"
        "            self._pause(job, deferral)\n"
        "        if self.lane_0 is not None:",
        (f"{KEY_TESTS}::test_a_pause_keeps_the_order",),
        "A job that waits for its retry keeps its key, so no later job overtakes it.",
    ),
    Mutant(
        "keys/new-jobs-overtake",
        KEYS,
        "        return self.busy.get(key, 0) < most and not self._lane(priority).has(key)\n",
        "        return self.busy.get(key, 0) < most\n",
        (f"{KEY_TESTS}::test_a_job_that_goes_back_is_not_overtaken",),
        "Jobs of a key that are set aside come before new ones.",
    ),
    Mutant(
        "keys/a-batch-takes-two",
        KEYS,
        "            if busy.get(key, 0) + count > most or key in queues:\n",
        "            if busy.get(key, 0) >= most or key in queues:\n",
        (f"{KEY_TESTS}::test_a_batch_has_one_job_of_each_key",),
        "The jobs of one batch count together.",
    ),
    Mutant(
        "keys/set-aside-as-delivered",
        "jobs/work/keyed.py",
        "            counts = (0,) * len(self.passed)\n",
        "            counts = (1,) * len(self.passed)\n",
        (
            f"{KEY_TESTS}::test_the_limit_survives_a_restart",
            f"{KEY_TESTS}::test_a_checkpoint_and_an_export_show_what_is_set_aside",
        ),
        "A job that is set aside was not delivered, also after a restart.",
    ),
    Mutant(
        "keys/one-lane-hears-of-the-end",
        KEYS,
        "            for other in self._lanes.values():\n                if other.queues:\n",
        "            for other in (lane,):\n                if other.queues:\n",
        (f"{KEY_TESTS}::test_higher_priorities_of_a_key_come_first",),
        "The end of a job frees its key for the jobs of all lanes.",
    ),
)
