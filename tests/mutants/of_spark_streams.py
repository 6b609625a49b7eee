"""Mutants of the log as a stream, of bookmarks, and of the sink."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_LOSSES: Final = "tests/spark/test_losses.py"
_SPLIT: Final = "tests/spark/test_split_units.py"
_STREAM: Final = "tests/spark/test_stream.py"
_POWER: Final = "tests/store/checkpoint/test_bookmark_power.py"
_CHUNKS: Final = "tests/spark/source/writing/test_chunks.py"

MUTANTS: Final = (
    Mutant(
        "streams/crc-of-an-offset-ignored",
        "spark/source/log/offsets.py",
        "        if position.lsn == at.lsn and position.crc == at.crc:\n",
        "        if position.lsn == at.lsn:\n",
        (f"{_LOSSES}::test_a_frame_with_the_same_lsn_and_another_checksum",),
        "An offset is a frame's LSN and checksum.",
    ),
    Mutant(
        "streams/later-life-ignored",
        "spark/source/log/offsets.py",
        "        if ends is not None and ends < at.lsn:\n",
        "        if False:\n",
        (f"{_LOSSES}::test_the_new_history_is_released_too",),
        "Records that another life wrote anew were taken back, not released.",
    ),
    Mutant(
        "streams/first-batch-forgotten",
        "spark/source/log/stream.py",
        "        if last.begun is not None:\n",
        "        if False:\n",
        (f"{_STREAM}::test_a_first_batch_that_is_planned_is_the_same_after_a_restart",),
        "A first batch that is run again begins where it was planned to.",
    ),
    Mutant(
        "streams/unit-cut",
        "spark/source/log/stream.py",
        "            if nbytes > limits.nbytes and end != begin:\n",
        "            if nbytes > limits.nbytes:\n",
        (f"{_STREAM}::test_limits_cut_at_the_end_of_units",),
        "A batch has at least one unit, however small its limit is.",
    ),
    Mutant(
        "streams/frame-that-was-read-in-part-not-checked",
        "spark/source/log/offsets.py",
        "            if isinstance(whole, Loss) and whole.kind != RELEASED:\n",
        "            if False:\n",
        (f"{_SPLIT}::test_a_unit_that_was_taken_back_when_a_part_of_it_was_read[3]",),
        "A query goes on inside a unit only if it is the unit whose first rows it has read.",
    ),
    Mutant(
        "streams/unsynced-records-read",
        "spark/source/log/stream.py",
        "            lsn_max = self._synced(log)\n",
        "            lsn_max = _ANY\n",
        (f"{_STREAM}::test_level_fsynced",),
        "With level=fsynced, nothing is read that a power cut can take back.",
    ),
    Mutant(
        "streams/claims-told-as-deliveries",
        "spark/source/log/events.py",
        "        while begun and each[begun - 1] == 1:\n",
        "        while begun:\n",
        ("tests/spark/test_events.py::test_the_commands_that_write_deliveries",),
        "Entries that XREADGROUP claims beside new ones are told as claimed.",
    ),
    Mutant(
        "bookmarks/checksum-ignored",
        "aof/textfile.py",
        "        if int(match[4], 16) != crc32c_of(data[: match.end(3)]):\n",
        "        if False:\n",
        ("tests/store/checkpoint/test_bookmarks.py::test_any_byte_of_a_bookmark",),
        "A damaged bookmark is never taken for another one.",
    ),
    Mutant(
        "bookmarks/released-before-they-are-durable",
        "store/keepers.py",
        "        disk.sync_directory(root / identity.BOOKMARKS)\n",
        "        pass\n",
        (f"{_POWER}::test_a_bookmark_names_no_deleted_position_and_is_never_half_written[0]",),
        "A power cut does not bring back a bookmark whose log is deleted.",
    ),
    Mutant(
        "sink/attempts-of-a-run-not-ordered",
        "spark/source/writing/chunks.py",
        "                if found.run == own.run and found.attempt > own.attempt:\n",
        "                if False:\n",
        (f"{_CHUNKS}::test_an_earlier_attempt_that_begins_late_is_refused",),
        "An attempt that begins after a later one writes nothing.",
    ),
    Mutant(
        "sink/chunk-sent-blindly",
        "spark/source/writing/chunks.py",
        "        if found == after:\n",
        "        if False:\n",
        (f"{_CHUNKS}::test_a_broken_connection_loses_and_doubles_nothing",),
        "A chunk whose answer was lost is known by its progress.",
    ),
)
