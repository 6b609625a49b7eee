"""Mutants of what a leader does for many followers, and of a follower whose leader, disk or clock is not as usual."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_FEEDS: Final = "tests/replication/test_feeds.py"
_FOLLOWER: Final = "tests/replication/test_follower.py"
_RETENTION: Final = "tests/replication/test_retention.py"
_HALF: Final = "tests/replication/test_half_handshakes.py"
_CIRCLE: Final = "tests/replication/test_circle.py"
_FSYNC: Final = "tests/replication/test_failed_fsync.py"
_OWN: Final = "tests/replication/test_own_faults.py"
_FIGURES: Final = "tests/replication/test_figures.py"

MUTANTS: Final[tuple[Mutant, ...]] = (
    # --- the log that is kept for them
    Mutant(
        "keepers/followers-fill-the-disk",
        "store/keepers.py",
        "    return {each: why for each in followers if each.lsn + 1 < begin}\n",
        "    return {}\n",
        (f"{_RETENTION}::test_nothing_is_kept_for_followers_when_the_disk_is_full",),
        "While the disk is nearly full, the oldest log that only followers need is deleted.",
    ),
    Mutant(
        "keepers/room-where-others-need-the-log",
        "store/keepers.py",
        "        if nbytes <= 0 or int(behind.stem) > needed_from + 1:\n",
        "        if nbytes <= 0:\n",
        (f"{_RETENTION}::test_no_room_is_made_where_a_snapshot_needs_the_log",),
        "A follower loses its log only if that gives room.",
    ),
    # --- many of them
    Mutant(
        "feeds/each-holds-all-it-may",
        "replication/feeds.py",
        "        share = AHEAD_BYTES_ALL // max(len(self._links), 1)\n",
        "        share = AHEAD_BYTES_MAX\n",
        (f"{_FEEDS}::test_many_followers_that_read_nothing_share_the_memory",),
        "Many connections that read nothing share the memory that few may have.",
    ),
    Mutant(
        "shaking/any-number-waits",
        "server/shaking.py",
        "        if self.waiting >= WAITING_MAX:\n",
        "        if False:\n",
        (f"{_HALF}::test_more_than_may_wait_are_refused_and_cost_no_thread",),
        "A bounded number of handshakes waits, and a further one is refused.",
    ),
    Mutant(
        "shaking/the-silent-stay",
        "server/shaking.py",
        "        if len(self._silent) >= SILENT_MAX:\n",
        "        if False:\n",
        (f"{_HALF}::test_those_that_said_nothing_make_room_and_followers_stay",),
        "Of links that have said nothing since their request only the newest stay.",
    ),
    # --- who leads
    Mutant(
        "feeds/superseded-untold",
        "replication/feeds.py",
        "        if newer != self._newer:\n",
        "        if False:\n",
        (f"{_FEEDS}::test_a_newer_copy_is_told_of_once",),
        "A leader that is superseded says so.",
    ),
    Mutant(
        "feeds/superseded-again-and-again",
        "replication/feeds.py",
        "        if newer != self._newer:\n",
        "        if True:\n",
        (f"{_FEEDS}::test_a_newer_copy_is_told_of_once",),
        "The same copy that is refused again is no news.",
    ),
    Mutant(
        "follow/circle",
        "server/commands/follow.py",
        "    if not replicating.following or link is None or asked.heir or asked.id.hex() == role.id:\n",
        "    if role is not None:\n",
        (f"{_CIRCLE}::test_two_that_follow_each_other",),
        "A follower without a leader that is connected takes no new followers.",
    ),
    # --- the follower
    Mutant(
        "follower/time-behind-the-frames",
        "replication/follower.py",
        "        if not self._timed:\n",
        "        if False:\n",
        (f"{_FOLLOWER}::test_the_leaders_time_comes_before_its_frames",),
        "The leader's time is told before its first frame is applied.",
    ),
    Mutant(
        "follower/goes-on-after-a-failed-fsync",
        "replication/follower.py",
        "        if log.failure is not None and not log.in_doubt:\n",
        "        if False:\n",
        (f"{_FSYNC}::test_it_is_told_and_nothing_more_is_acknowledged",),
        "A follower whose disk failed an fsync acknowledges nothing more.",
    ),
    Mutant(
        "link/dead-and-connected",
        "replication/link.py",
        "        except Exception as error:\n            self.fail(error)\n",
        "        except ZeroDivisionError:\n            pass\n",
        (f"{_OWN}::test_the_follower_tells_of_it_and_goes_on_afterwards",),
        "An exception that nobody expects ends the connection.",
    ),
    Mutant(
        "feed/lag-in-bytes-by-signs-of-life",
        "replication/feed.py",
        "        part = (max(self.acked_lsn, lsn) - lsn) / max(lsn_above - lsn, 1)\n",
        "        part = 0\n",
        (f"{_FIGURES}::test_bytes_between_two_signs_of_life_are_shared_out",),
        "The bytes between two signs of life are shared out over their records.",
    ),
)
