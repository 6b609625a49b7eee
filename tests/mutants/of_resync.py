"""Mutants of resync: what is fetched, what is believed of it, how it takes the place of a store, what is kept."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_SWAP: Final = "tests/snapshot/test_swap.py"
_LIES: Final = "tests/replication/test_copy_lies.py"
_RESYNC: Final = "tests/replication/test_resync.py"

MUTANTS: Final = (
    Mutant(
        "swap/mark-removed-before-the-moves",
        "snapshot/swap.py",
        "    for name in _MOVED:\n        if disk.exists(new / name):\n",
        "    recipe.remove(disk, root / identity.SWAP)\n"
        "    disk.create(root / identity.SWAP).close()\n"
        "    for name in _MOVED:\n"
        "        if disk.exists(new / name):\n",
        (
            "tests/snapshot/test_swap.py::test_every_power_cut_leaves_one_of_both",
            "tests/crash/test_followers.py::test_a_copy_of_the_leaders_checkpoint_loses_power",
        ),
        "A swap that a power cut interrupts can be finished.",
    ),
    # --- the swap
    Mutant(
        "swap/begun-before-durable",
        "snapshot/swap.py",
        "    recipe.publish(disk, root / identity.SWAP, render(swap))\n",
        "    file = disk.create(root / identity.SWAP)\n"
        "    file.write(0, render(swap))\n"
        "    file.close()\n",
        (f"{_SWAP}::test_every_power_cut_leaves_one_of_both",),
        "SWAP is durable before the first part of the old store is moved.",
    ),
    Mutant(
        "swap/target-of-a-move-unsynced",
        "disk/recipe.py",
        "    disk.sync_directory(target.parent)\n    disk.sync_directory(source.parent)\n",
        "    disk.sync_directory(source.parent)\n",
        (f"{_SWAP}::test_a_move_is_durable_in_both_directories",),
        "A moved file is in its new directory before it has left the old one, on file systems without a journal too.",
    ),
    Mutant(
        "swap/moves-unsynced",
        "disk/recipe.py",
        "    disk.sync_directory(target.parent)\n    disk.sync_directory(source.parent)\n",
        "",
        (f"{_SWAP}::test_every_power_cut_leaves_one_of_both",),
        "Each move of a swap is durable before the next one.",
    ),
    Mutant(
        "swap/reader-calls-it-damage",
        "store/read_only.py",
        "                if not self._is_replaced():\n                    raise\n        # Start over",
        "                raise\n        # Start over",
        ("tests/store/following/test_swap.py::test_a_reader_that_looks_between_two_moves",),
        "A reader that looks between two moves of a swap waits, and calls nothing damaged.",
    ),
    # --- what is believed
    Mutant(
        "resync/offer-not-compared",
        "replication/resync.py",
        "        if found.uuid != self._asked.uuid or offer != (\n",
        "        if found.uuid != self._asked.uuid or () != () != (\n",
        (f"{_LIES}::test_the_manifest_is_compared_before_the_data_is_fetched",),
        "The snapshot that is fetched is the one that was offered, by its hash too.",
    ),
    Mutant(
        "resync/walk-skipped",
        "snapshot/restore.py",
        "        walk_or_raise(real, folder, progress)\n",
        "",
        (f"{_LIES}::test_a_sound_file_that_holds_nonsense",),
        "A copy is walked before it takes the place of a store.",
    ),
    Mutant(
        "resync/copies-confused",
        "replication/resync.py",
        '        target = copies / f"{directory_name(offer.lsn)}.{offer.blake2b[:8].hex()}"\n',
        "        target = copies / directory_name(offer.lsn)\n",
        (f"{_LIES}::test_another_snapshot_of_the_same_lsn",),
        "An unfinished copy of one snapshot is not in the way of another one of the same LSN.",
    ),
    Mutant(
        "fetch/takes-more-than-offered",
        "replication/fetch.py",
        "        if self._at > self._size(self._file):\n",
        "        if False:\n",
        (
            "tests/replication/test_offer.py::test_more_than_was_offered",
            f"{_LIES}::test_a_file_that_changes_its_size",
        ),
        "A leader cannot make its follower take more than it offered.",
    ),
    # --- what is kept
    Mutant(
        "resync/removed-by-lives-alone",
        "replication/resync.py",
        "asked.same and asked.shared >= self._last\n",
        "asked.shared >= self._last\n",
        (f"{_RESYNC}::test_a_follower_that_was_away",),
        "An old store is removed only if a checksum proves that the leader has every record of it.",
    ),
    Mutant(
        "resync/surplus-removed",
        "replication/resync.py",
        "asked.same and asked.shared >= self._last\n",
        "asked.same\n",
        ("tests/replication/test_copy_lies.py::test_records_behind_what_both_share_are_kept",),
        "An old store that has a surplus is kept.",
    ),
    Mutant(
        "history/released-clone-unseen",
        "replication/history.py",
        "    if frame is NoFrame.RELEASED and known in (None, follow.crc):\n",
        "    if frame is NoFrame.RELEASED:\n",
        ("tests/replication/test_history.py::test_the_table",),
        "A clone is recognised by the checksum that its leader remembers.",
    ),
    Mutant(
        "offer/lease-not-held",
        "server/offering.py",
        "            lease.enter_context(place.hold())\n",
        "",
        (f"{_RESYNC}::test_what_a_follower_fetches_is_not_pruned",),
        "A snapshot that a follower fetches is not deleted.",
    ),
    Mutant(
        "offer/pushes-out-kept-ones",
        "store/checkpoints.py",
        "                    self._disk, directory, keep, passing=others, waits=self._waits\n",
        "                    self._disk, directory, keep, waits=self._waits\n",
        ("tests/store/checkpoint/test_passing_snapshots.py::test_those_that_the_store_keeps_stay",),
        "Snapshots for followers push out none that the store keeps.",
    ),
    Mutant(
        "offer/older-than-shared",
        "replication/offer.py",
        "            and found.lsn >= least\n",
        "",
        ("tests/replication/test_resync.py::test_a_snapshot_is_not_older_than_what_both_have",),
        "A follower never falls back behind what it has in common with its leader.",
    ),
    # --- compared
    Mutant(
        "verify/digests-not-compared",
        "replication/verify.py",
        "        if own.digest != found[2].decode():\n",
        "        if False:\n",
        ("tests/replication/test_verify.py::test_an_embedded_follower",),
        "A follower whose data differs from its leader's stops.",
    ),
    Mutant(
        "verify/follows-on",
        "replication/follower.py",
        "        if self._roles.differs is not None and not self._roles.consent:\n",
        "        if False:\n",
        (
            "tests/replication/test_verify.py::test_a_difference_stops_the_follower_until_a_copy_replaces_it",
        ),
        "A follower whose data differs follows only when a person has decided.",
    ),
    Mutant(
        "verify/old-data-removed",
        "replication/resync.py",
        "        proven = proven and roles.differs is None\n",
        "",
        (
            "tests/replication/test_verify.py::test_a_difference_stops_the_follower_until_a_copy_replaces_it",
        ),
        "Data that differs from the leader's is kept, although both logs are the same.",
    ),
    # --- compressed
    Mutant(
        "protocol/bomb",
        "replication/protocol.py",
        "        found = unpacker.decompress(payload[1:], kind.nbytes_max + 1)\n",
        "        found = unpacker.decompress(payload[1:])[: kind.nbytes_max]\n",
        ("tests/replication/test_compression.py::test_what_is_refused",),
        "A compressed message cannot hold more than its type allows.",
    ),
    Mutant(
        "protocol/compressed-unasked",
        "replication/intake.py",
        "FROM_LEADER_PACKED if compress else FROM_LEADER)\n",
        "FROM_LEADER_PACKED)\n",
        ("tests/replication/test_compression.py::test_it_must_be_asked_for",),
        "A leader compresses only if its follower has asked for it.",
    ),
)
