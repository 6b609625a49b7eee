"""Mutants of what opens a log: recovery, the reader, verdicts, where a checkpoint's log begins, release."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, planted

MUTANTS: Final = (
    Mutant(
        "recovery/served-before-fsync",
        "aof/reading/recovery.py",
        "        file.fsync()\n        # An earlier fsync",
        "        # An earlier fsync",
        (
            "tests/aof/test_recovery.py::test_the_copy_of_a_tail_comes_first_then_the_cut_then_the_promise",
        ),
        "Records that recovery serves are on the disk.",
    ),
    planted(
        "recovery/keeps-page-cache",
        "tests/aof/test_recovery.py::test_the_copy_of_a_tail_comes_first_then_the_cut_then_the_promise",
    ),
    Mutant(
        "recovery/cut-before-copy",
        "aof/reading/recovery.py",
        "    if scan.verdict is Verdict.TORN:\n        quarantined = _quarantine(disk, root, scan)\n"
        "    if scan.size > scan.offset:\n        _cut(disk, scan)\n",
        "    if scan.size > scan.offset:\n        _cut(disk, scan)\n"
        "    if scan.verdict is Verdict.TORN:\n        quarantined = _quarantine(disk, root, scan)\n",
        (
            "tests/aof/test_recovery.py::test_the_copy_of_a_tail_comes_first_then_the_cut_then_the_promise",
        ),
        "A torn tail lies in quarantine before it is cut off.",
    ),
    planted("recovery/no-quarantine", "tests/aof/test_recovery.py::test_a_torn_tail_is_cut_off"),
    Mutant(
        "recovery/torn-tail-stays",
        "aof/reading/recovery.py",
        "    if scan.size > scan.offset:\n        _cut(disk, scan)\n",
        "",
        ("tests/aof/test_recovery.py::test_a_torn_tail_is_cut_off",),
        "Recovery cuts a torn tail off: the next life writes its segment behind it.",
    ),
    Mutant(
        "recovery/cut-unsynced",
        "aof/reading/recovery.py",
        "        file.truncate(scan.offset)\n        file.fsync()\n",
        "        file.truncate(scan.offset)\n",
        (
            "tests/aof/test_recovery.py::test_the_copy_of_a_tail_comes_first_then_the_cut_then_the_promise",
        ),
        "A torn tail that was cut off does not come back after a power cut.",
    ),
    Mutant(
        "recovery/nothing-promised",
        "aof/reading/recovery.py",
        "    _promise(disk, directory, uuid, Promise(scan.header.incarnation, last_lsn))\n",
        "",
        ("tests/aof/test_recovery.py::test_what_was_read_is_promised_before_it_is_served",),
        "DURABLE states what recovery served.",
    ),
    Mutant(
        "recovery/promise-unsynced",
        "aof/reading/recovery.py",
        "        slots.sync()\n",
        "        pass\n",
        ("tests/aof/test_recovery.py::test_what_was_read_is_promised_before_it_is_served",),
        "The promise of recovery is on the disk before anything is served.",
    ),
    Mutant(
        "recovery/life-of-one-record-unchecked",
        "aof/reading/recovery.py",
        "promise.incarnation not in lives and promise.lsn >= next_lsn:\n",
        "promise.incarnation not in lives and promise.lsn > next_lsn:\n",
        ("tests/aof/test_recovery.py::test_a_life_of_one_record_that_has_no_segment_is_missed",),
        "A life that promised its first record alone and has no segment is missed.",
    ),
    Mutant(
        "recovery/lives-unchecked",
        "aof/reading/recovery.py",
        "        if promise.incarnation not in lives and promise.lsn >= next_lsn:\n",
        "        if False:\n",
        (
            "tests/aof/test_recovery.py::test_a_life_that_made_a_promise_and_has_no_segment_is_missed",
        ),
        "A life that made a promise and has no segment is missed.",
    ),
    Mutant(
        "recovery/emptied-log-unchecked",
        "aof/reading/recovery.py",
        "    if not found and not disk.exists(directory / durable.NAME):\n",
        "    if False:\n",
        ("tests/aof/test_recovery.py::test_a_log_that_was_emptied_is_refused",),
        "A store whose aof/ was emptied is refused.",
    ),
    Mutant(
        "recovery/missing-beginning-unchecked",
        "aof/reading/recovery.py",
        "    if found and found[0].header.first_lsn != 1 and not released:\n",
        "    if False:\n",
        (
            "tests/aof/test_start.py::test_a_log_without_its_beginning_and_without_a_checkpoint_is_refused",
        ),
        "A log without its beginning and without a checkpoint is refused.",
    ),
    planted(
        "reader/body-unchecked",
        "tests/aof/test_recovery.py::test_what_was_read_is_promised_before_it_is_served",
    ),
    Mutant(
        "reader/chain-unchecked",
        "aof/reading/reader.py",
        "                if first != lsn or before != prev or not count",
        "                if first != lsn or not count",
        (
            "tests/aof/test_verdicts.py::test_a_frame_of_another_history_is_foreign",
            "tests/aof/test_verdicts.py::test_a_segment_of_another_history_is_not_read_on_into",
        ),
        "A frame states the checksum of the frame before it: one of another history is none.",
    ),
    Mutant(
        "reader/lsn-unchecked",
        "aof/reading/reader.py",
        "                if first != lsn or before != prev or not count",
        "                if before != prev or not count",
        ("tests/aof/test_verdicts.py::test_a_frame_that_leaves_out_an_lsn_is_foreign",),
        "The LSNs of frames follow each other.",
    ),
    Mutant(
        "reader/durable-unread",
        "aof/reading/reader.py",
        "            if promise.incarnation == self.header.incarnation and promise.lsn >= self.lsn:\n",
        "            if False:\n",
        (
            "tests/aof/test_verdicts.py::test_zeros_where_durable_proves_records",
            "tests/aof/test_recovery.py::test_what_was_read_is_promised_before_it_is_served",
        ),
        "A damaged frame that DURABLE proves was promised is corruption.",
    ),
    Mutant(
        "reader/durable-of-any-life",
        "aof/reading/reader.py",
        "            if promise.incarnation == self.header.incarnation and promise.lsn >= self.lsn:\n",
        "            if promise.lsn >= self.lsn:\n",
        ("tests/aof/test_verdicts.py::test_durable_of_another_life_proves_nothing_here",),
        "DURABLE counts for the life that it states only.",
    ),
    Mutant(
        "reader/stated-end-unread",
        "aof/reading/reader.py",
        "            if here != self.end:\n",
        "            if False:\n",
        ("tests/aof/test_bit_flips.py::test_every_segment_of_another_copy",),
        "A segment ends where the next one says it ended.",
    ),
    planted(
        "reader/any-later-frame-is-proof",
        "tests/aof/test_verdicts.py::test_a_hole_before_a_whole_frame_is_torn",
    ),
    Mutant(
        "reader/later-frames-prove-nothing",
        "aof/reading/reader.py",
        "        if self.header.role == segment.LEADER and self.found is not Found.BLANK:\n",
        "        if False:\n",
        (
            "tests/aof/test_verdicts.py::test_a_later_frame_that_knew_of_a_sync_is_proof_if_it_is_our_own",
        ),
        "A later frame that knew of a sync proves that what was before it had been promised.",
    ),
    Mutant(
        "reader/half-a-frame-is-the-end",
        "aof/reading/reader.py",
        "        self._looks = _LOOKS_MAX if live and self.last else 0\n",
        "        self._looks = 0\n",
        (
            "tests/aof/test_recovery.py::test_a_reader_beside_a_writer_waits_for_the_other_half_of_a_frame",
        ),
        "A reader beside a writer looks again at a frame that is half there.",
    ),
    Mutant(
        "reader/another-stores-segment",
        "aof/reading/reader.py",
        "        if uuid is not None and header.uuid != uuid:\n",
        "        if False:\n",
        ("tests/aof/test_recovery.py::test_a_segment_of_another_store_is_refused",),
        "A segment of another store is refused.",
    ),
    Mutant(
        "reader/no-unit-end",
        "aof/reading/reader.py",
        "        if len(records) != count or not is_end(records[-1]):\n",
        "        if len(records) != count:\n",
        ("tests/aof/test_verdicts.py::test_a_frame_that_ends_in_the_middle_of_a_unit_is_refused",),
        "A frame holds whole units: its last record is marked.",
    ),
    Mutant(
        "reader/cut-record-is-whole",
        "aof/reading/reader.py",
        "    return records if records and records.pop() is None else []\n",
        "    return [each for each in records if each is not None]\n",
        ("tests/tools/test_unfit_records.py::test_a_frame_that_ends_inside_a_record",),
        "Bytes behind the last record that begin another one are damage.",
    ),
    Mutant(
        "verdicts/promised-damage-is-torn",
        "aof/reading/verdicts.py",
        "    Case(Verdict.CORRUPT, Found.BROKEN,  None,  True),",
        "    Case(Verdict.TORN, Found.BROKEN,  None,  True),",
        (
            "tests/aof/test_verdicts.py::test_only_the_last_segment_can_be_torn_and_nothing_promised_is",
        ),
        "Damage of what was promised is corruption, and the store refuses to open.",
    ),
    Mutant(
        "verdicts/promised-zeros-are-the-end",
        "aof/reading/verdicts.py",
        "    Case(Verdict.CORRUPT, Found.BLANK,   None,  True),",
        "    Case(Verdict.END, Found.BLANK,   None,  True),",
        (
            "tests/aof/test_verdicts.py::test_only_the_last_segment_can_be_torn_and_nothing_promised_is",
        ),
        "Zeros where a frame was promised are corruption.",
    ),
    Mutant(
        "start/another-history",
        "aof/start.py",
        "        if before.crc != start.crc:\n",
        "        if False:\n",
        ("tests/aof/test_start.py::test_what_does_not_belong_together_is_refused",),
        "A log that continues another history than the checkpoint's is refused.",
    ),
    Mutant(
        "start/another-life",
        "aof/start.py",
        "    if first.header.incarnation != start.incarnation:\n",
        "    if False:\n",
        ("tests/aof/test_start.py::test_what_does_not_belong_together_is_refused",),
        "A segment of another life than the checkpoint's is refused.",
    ),
    Mutant(
        "start/another-frame",
        "aof/start.py",
        "    if not _belongs(disk, first.path, crc32c_of(uuid), start):\n",
        "    if False:\n",
        ("tests/aof/test_start.py::test_what_does_not_belong_together_is_refused",),
        "The frame that the checkpoint ends with is where the checkpoint says.",
    ),
    Mutant(
        "start/store-before-its-segment",
        "aof/start.py",
        "    recipe.publish(disk, directory / segment.file_name(start.lsn + 1), header.pack())\n"
        "    identity.create(disk, root, uuid)\n",
        "    identity.create(disk, root, uuid)\n"
        "    recipe.publish(disk, directory / segment.file_name(start.lsn + 1), header.pack())\n",
        ("tests/aof/test_start.py::test_power_loss_while_a_restored_log_is_begun",),
        "STORE is the last file of a restore.",
    ),
    Mutant(
        "release/one-record-too-far",
        "aof/release.py",
        "        if int(next_path.stem) > keep_from_lsn + 1:\n",
        "        if int(next_path.stem) > keep_from_lsn + 2:\n",
        ("tests/aof/test_start.py::test_what_is_released_and_what_stays",),
        "A segment that holds a record behind the checkpoint stays.",
    ),
    Mutant(
        "release/newest-first",
        "aof/release.py",
        "    for path in paths[: _old(disk, paths, keep_bytes)]:\n",
        "    for path in reversed(paths[: _old(disk, paths, keep_bytes)]):\n",
        ("tests/aof/test_start.py::test_power_loss_while_segments_are_released",),
        "At every moment of a release what is left is the log's end without a gap.",
    ),
    Mutant(
        "release/removal-not-durable",
        "aof/release.py",
        "        recipe.remove(disk, path)\n",
        "        disk.unlink(path)\n",
        ("tests/aof/test_start.py::test_power_loss_while_segments_are_released",),
        "Each removal is durable before the next begins.",
    ),
)
