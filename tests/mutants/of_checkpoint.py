"""Mutants of checkpoints, snapshots and readers: what is written when, and what is compared."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, planted

MUTANTS: Final = (
    planted(
        "checkpoint/commit-before-sync",
        "tests/store/checkpoint/test_checkpoint_order.py::test_sync_meta_commit_release",
        "tests/store/checkpoint/test_checkpoint_order.py::test_power_is_cut_around_checkpoints",
    ),
    Mutant(
        "checkpoint/no-sync",
        "snapshot/checkpoint.py",
        "            sync()\n            if cancelled():\n",
        "            if cancelled():\n",
        ("tests/store/checkpoint/test_checkpoint_order.py::test_sync_meta_commit_release",),
        "The log is on the disk through P before the checkpoint is committed.",
    ),
    Mutant(
        "checkpoint/cancelled-too-late",
        "snapshot/checkpoint.py",
        "            sync()\n            if cancelled():\n                raise Cancelled\n",
        "            sync()\n",
        (
            "tests/store/checkpoint/test_checkpoint_rebuilt.py::test_memory_that_is_rebuilt_meanwhile_ends_no_checkpoint",
        ),
        "A checkpoint beside a unit that broke is given up.",
    ),
    Mutant(
        "checkpoint/rows-of-another-moment",
        "snapshot/checkpoint.py",
        "    if environment.committed() != seen:\n",
        "    if False:\n",
        (
            "tests/snapshot/test_checkpoint.py::test_rows_of_another_moment_are_not_built_upon",
            "tests/store/checkpoint/test_checkpoint_rebuilt.py::test_a_checkpoint_over_one_that_another_process_committed_is_refused",
        ),
        "A checkpoint is built upon the rows that its state rests on.",
    ),
    planted(
        "environment/unsynced",
        "tests/store/checkpoint/test_checkpoint_power.py::test_the_calls_are_those_that_are_to_be_tried",
    ),
    planted(
        "environment/made-under-its-own-name",
        "tests/snapshot/test_environment.py::test_what_a_creation_that_was_cut_short_left_is_replaced",
    ),
    Mutant(
        "environment/table-of-readers-is-a-hole",
        "snapshot/rows/environment.py",
        "        if file.fill(0, nbytes) < nbytes:\n",
        "        if file.truncate(nbytes):\n",
        ("tests/crash/test_full.py::test_each_size_that_is_too_small",),
        "LMDB's table of readers has blocks before LMDB stores into its map.",
    ),
    Mutant(
        "datafile/last-page-believed",
        "snapshot/rows/datafile.py",
        "    if missing > free:\n",
        "    if missing > free and False:\n",
        (
            "tests/snapshot/test_datafile.py::test_a_damaged_number_of_the_last_page_makes_no_file_grow",
        ),
        "A file grows to a last page only if its missing pages are listed as free.",
    ),
    Mutant(
        "environment/rows-unchecked",
        "snapshot/rows/environment.py",
        "        payload = value[:-CRC_BYTES]  # as `opened`, a call less\n"
        '        if crc32c_after(crc32c_of(key), payload) != int.from_bytes(value[-CRC_BYTES:], "little"):\n',
        "        payload = value[:-CRC_BYTES]  # as `opened`, a call less\n        if False:\n",
        ("tests/snapshot/test_environment.py::test_every_flipped_bit_of_a_value_is_noticed",),
        "Every row that is read matches its checksum.",
    ),
    Mutant(
        "portable/data-unsynced",
        "snapshot/portable.py",
        "        file.fsync()\n    finally:\n        file.close()\n    size, digest",
        "        pass\n    finally:\n        file.close()\n    size, digest",
        ("tests/snapshot/portable/test_portable_power_loss.py::test_power_loss_while_one_is_made",),
        "The data of a snapshot is on the disk before its name is.",
    ),
    Mutant(
        "portable/name-unsynced",
        "snapshot/portable.py",
        "    disk.rename(work, final)\n    disk.sync_directory(directory)\n",
        "    disk.rename(work, final)\n",
        ("tests/snapshot/portable/test_portable_power_loss.py::test_power_loss_while_one_is_made",),
        "A snapshot that was told of is there after a power cut.",
    ),
    Mutant(
        "restore/copy-not-compared",
        "snapshot/restore.py",
        "        if found != (manifest.data_bytes, manifest.blake2b):\n",
        "        if False:\n",
        (
            "tests/snapshot/portable/test_restore_power_loss.py::test_a_changed_byte_is_noticed_while_copying",
        ),
        "The copy of a restore is what the manifest says.",
    ),
    Mutant(
        "restore/mark-removed-first",
        "snapshot/restore.py",
        "        create_behind(disk, target, uuid, start, created_ms)\n"
        "        recipe.remove(disk, target / UNFINISHED)\n",
        "        recipe.remove(disk, target / UNFINISHED)\n"
        "        create_behind(disk, target, uuid, start, created_ms)\n",
        ("tests/snapshot/portable/test_restore_power_loss.py::test_power_loss_at_every_operation",),
        "A restore that was cut short says so until it is a store.",
    ),
    Mutant(
        "sums/damaged-row-raises",
        "snapshot/rows/sums.py",
        "(ValueError, TypeError, AttributeError, msgpack.UnpackException)",
        "(ValueError, AttributeError, msgpack.UnpackException)",
        ("tests/snapshot/test_sums.py::test_a_row_without_sums_has_none",),
        "A damaged row that describes a checkpoint is damage, whatever its bytes.",
    ),
    planted(
        "checkpoints/sync-one-short",
        "tests/store/checkpoint/test_checkpoint_order.py::test_the_last_record_before_it_is_durable_too",
    ),
    Mutant(
        "checkpoints/position-one-short",
        "store/checkpoints.py",
        "                position = core.log.position()\n",
        "                position = core.log.position()\n"
        "                position = position._replace(lsn=position.lsn - 1)\n",
        (
            "tests/store/checkpoint/test_ids_again.py::test_entries_behind_a_page_that_ends_deleted_are_found",
        ),
        "A checkpoint names the last record that it holds.",
    ),
    Mutant(
        "checkpoints/position-one-past",
        "store/checkpoints.py",
        "                position = core.log.position()\n",
        "                position = core.log.position()\n"
        "                position = position._replace(lsn=position.lsn + 1)\n",
        (
            "tests/store/checkpoint/test_ids_again.py::test_entries_behind_a_page_that_ends_deleted_are_found",
        ),
        "A checkpoint names the last record that it holds.",
    ),
    planted(
        "checkpoints/released-before-commit",
        "tests/store/checkpoint/test_checkpoint_order.py::test_sync_meta_commit_release",
    ),
    Mutant(
        "checkpoints/failed-not-taken-back",
        "store/checkpoints.py",
        "                        thaw(state, frozen)\n",
        "                        settle(state, frozen)\n",
        (
            "tests/store/checkpoint/test_checkpoint_order.py::test_what_a_failed_checkpoint_left_out_is_in_the_next_one",
        ),
        "After a failed checkpoint what it left out is in the next one.",
    ),
    Mutant(
        "checkpoints/settled-before-commit",
        "store/checkpoints.py",
        "                frozen = freeze(state)\n",
        "                frozen = freeze(state)\n                settle(state, frozen)\n",
        (
            "tests/store/checkpoint/test_checkpoint_order.py::test_what_a_failed_checkpoint_left_out_is_in_the_next_one",
        ),
        "Only what is committed may count as stored.",
    ),
    Mutant(
        "checkpoints/rebuilt-memory-not-doubted",
        "store/checkpoints.py",
        "                elif self._beneath != meta.number:\n",
        "                elif False:\n",
        (
            "tests/store/checkpoint/test_checkpoint_rebuilt.py::test_memory_that_is_rebuilt_right_before_a_commit_is_rebuilt_again",
        ),
        "Memory that was rebuilt from the checkpoint before is rebuilt again after the commit.",
    ),
    Mutant(
        "checkpoints/log-of-snapshot-released",
        "store/keepers.py",
        "            if lsns:\n",
        "            if False:\n",
        (
            "tests/store/checkpoint/test_checkpoint_options.py::test_the_log_behind_the_oldest_snapshot_stays",
        ),
        "The log behind the oldest snapshot stays.",
    ),
    Mutant(
        "checkpoints/log-of-unfinished-snapshot-released",
        "store/checkpoints.py",
        "            keep_from = min([lsn, *self._making])",
        "            keep_from = min([lsn])",
        (
            "tests/store/checkpoint/test_checkpoint_rebuilt.py::test_the_log_behind_a_snapshot_that_is_being_made_stays",
        ),
        "The log behind a snapshot that is being made stays.",
    ),
    Mutant(
        "tail/history-not-compared",
        "aof/tail.py",
        "        if header.before.crc == at.crc:\n            return None\n",
        "        return None\n",
        ("tests/aof/test_tail.py::test_another_history_goes_on_at_the_same_lsn",),
        "A reader shows one history, also when another one has a segment at the same LSN.",
    ),
    Mutant(
        "tail/life-not-compared",
        "aof/tail.py",
        "    elif header.first_lsn == at.segment and header.incarnation == at.incarnation:\n",
        "    elif header.first_lsn == at.segment:\n",
        ("tests/aof/test_tail.py::test_another_life_has_a_segment_of_the_same_name",),
        "A reader shows one history, also when another one has a segment of the same name.",
    ),
    Mutant(
        "tail/cut-off-unseen",
        "aof/tail.py",
        "            if start is not None and scan.size < start.offset:\n",
        "            if False:\n",
        ("tests/aof/test_tail.py::test_records_that_were_read_and_cut_off",),
        "A tail notices that a power cut took back what it has read.",
    ),
    Mutant(
        "tail/lives-unchecked",
        "aof/tail.py",
        "        check_lives(self._directory, promises, found, scan)\n",
        "",
        ("tests/aof/test_tail.py::test_a_promise_of_a_life_without_a_segment",),
        "A tail notices that the segment of a life is missing.",
    ),
    Mutant(
        "keepers/bookmarks-unread",
        "store/keepers.py",
        "    for name, lsn in marks:\n",
        "    for name, lsn in []:\n",
        ("tests/store/checkpoint/test_bookmarks.py::test_the_log_behind_a_bookmark_stays",),
        "The log behind a bookmark stays.",
    ),
    Mutant(
        "keepers/bookmark-without-limit",
        "store/keepers.py",
        "sum(sizes[max(begun - 1, 0) :]) > keeper.nbytes_max:",
        "False:",
        (
            "tests/store/checkpoint/test_bookmarks.py::test_a_bookmark_too_far_behind_is_void_and_said_to_be",
        ),
        "A forgotten bookmark does not keep the log for ever.",
    ),
)
