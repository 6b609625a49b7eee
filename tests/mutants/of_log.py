"""Mutants of the log's writer: adding, waiting, syncing, rolling, group commit, DURABLE."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, planted

MUTANTS: Final = (
    planted("log/no-fdatasync", "tests/aof/test_errors.py::test_an_error_at_every_call"),
    Mutant(
        "log/syncs-another-file",
        "aof/log.py",
        "                file.fdatasync()\n",
        "                if self._durable is not None:\n                    self._durable.sync()\n",
        ("tests/aof/test_errors.py::test_an_error_at_every_call",),
        "The fsync that answers a caller must be that of the segment.",
    ),
    planted("log/sync-tried-again", "tests/aof/test_errors.py::test_an_error_at_every_call"),
    planted(
        "log/synced-takes-what-came-meanwhile",
        "tests/aof/test_sync_beside.py::test_what_is_written_while_a_sync_runs_is_not_called_durable",
    ),
    Mutant(
        "log/file-before-lsn",
        "aof/log.py",
        "            lsn = self.written_lsn\n            if lsn <= self.synced_lsn:\n                return\n"
        "            if self._fsync_failed:  # a sync failed, but an interrupt prevented the report\n"
        '                raise OSError(errno.EIO, "an earlier sync failed")\n'
        "            # the log was retired, but an interrupt prevented the report\n"
        "            if self._append is _no_segment:\n"
        '                raise LogClosed("the log was retired")\n'
        "            self._sync_since, self._dirty_since = self._dirty_since, 0.0\n"
        "            file, offset = self._file, self.offset\n",
        "            file, offset = self._file, self.offset\n"
        "            lsn = self.written_lsn\n            if lsn <= self.synced_lsn:\n                return\n"
        "            self._sync_since, self._dirty_since = self._dirty_since, 0.0\n",
        (
            "tests/aof/test_sync_beside.py::test_a_sync_beside_a_roll_says_of_the_new_segment_only_what_it_synced_there",
        ),
        "A sync beside a roll must not sync the old segment for records of the new one.",
    ),
    planted(
        "log/durable-before-sync",
        "tests/aof/test_sync_beside.py::test_durable_is_written_when_the_sync_has_returned",
    ),
    planted(
        "log/header-knows-its-own-lsn",
        "tests/aof/test_verdicts.py::test_a_hole_before_a_whole_frame_is_torn",
    ),
    Mutant(
        "log/no-doubt-after-broken-write",
        "aof/log.py",
        "                self._dirty_since = time.monotonic()\n        except BaseException as error:\n"
        "            self._doubts(error)\n",
        "                self._dirty_since = time.monotonic()\n        except BaseException as error:\n",
        ("tests/aof/test_log.py::test_an_append_that_breaks_off_puts_the_log_in_doubt",),
        "After a write that broke off the log takes no further unit.",
    ),
    Mutant(
        "log/received-chain-unchecked",
        "aof/log.py",
        "        if batch.first != self.next_lsn or batch.prev != self._chain:\n",
        "        if batch.first != self.next_lsn:\n",
        ("tests/aof/test_receive.py::test_only_what_continues_the_log_is_received",),
        "A follower's log takes only frames that continue its chain.",
    ),
    Mutant(
        "log/follower-takes-units",
        "aof/log.py",
        "        if self.role == segment.FOLLOWER:\n            raise FollowerLog\n",
        "",
        ("tests/aof/test_receive.py::test_nothing_else_enters_a_followers_log",),
        "A follower's log refuses every unit that is not received.",
    ),
    Mutant(
        "log/good-after-failed-sync",
        "aof/log.py",
        "            if self._fsync_failed:\n                offset = self._synced_offset\n",
        "",
        ("tests/aof/test_receive.py::test_after_a_failed_sync_only_what_was_synced_is_good",),
        "After a failed fsync, a leader ships nothing that was not synced before.",
    ),
    Mutant(
        "received/unknown-records",
        "aof/received.py",
        "    if not all(map(is_known, kinds)):\n",
        "    if False:\n",
        ("tests/aof/test_received.py::test_a_record_of_a_newer_tidelog_is_named",),
        "A record of a newer version is never appended.",
    ),
    Mutant(
        "received/unfinished-units",
        "aof/received.py",
        "            if not opcodes[at] & END:\n",
        "            if False:\n",
        (
            "tests/aof/test_received.py::test_records_that_recovery_could_not_apply_are_refused",
            "tests/aof/test_received.py::test_a_unit_may_have_several_records",
        ),
        "A frame that does not end with the end of a unit is refused.",
    ),
    Mutant(
        "rewind/durable-not-lowered",
        "aof/rewind.py",
        "    durable.lower(disk, directory, uuid, Promise(at.incarnation, at.lsn))\n",
        "",
        ("tests/aof/test_rewind.py::test_every_power_cut_leaves_a_store_that_opens",),
        "DURABLE is lowered before the log is cut.",
    ),
    Mutant(
        "rewind/oldest-first",
        "aof/rewind.py",
        "    for info in reversed(found):\n",
        "    for info in found:\n",
        ("tests/aof/test_rewind.py::test_every_power_cut_leaves_a_store_that_opens",),
        "A rewind removes the newest segment first.",
    ),
    Mutant(
        "log/wait-ignores-level",
        "aof/log.py",
        "        if level == WRITTEN and not self.parked:\n            if self.written_lsn < lsn:\n",
        "        if not self.parked:\n            if self.written_lsn < lsn:\n",
        ("tests/aof/test_log.py::test_waiting_for_the_disk_moves_durable",),
        "A caller that waits for FSYNCED must wait for the disk.",
    ),
    Mutant(
        "log/checkpoint-waits-for-written",
        "aof/log.py",
        '        Raises LogPoisoned; the caller must then not commit a checkpoint that depends on them."""\n'
        "        self._commit.wait(lsn)\n",
        '        Raises LogPoisoned; the caller must then not commit a checkpoint that depends on them."""\n'
        "        self.wait(lsn, WRITTEN)\n",
        (
            "tests/store/checkpoint/test_checkpoint_order.py::test_what_a_checkpoint_holds_is_durable_though_nobody_waited_for_it",
            "tests/store/checkpoint/test_checkpoint_order.py::test_sync_meta_commit_release",
        ),
        "A checkpoint may hold nothing that the log has not on the disk, whatever the policy.",
    ),
    Mutant(
        "log/roll-unsynced",
        "aof/log.py",
        "        try:\n            self._sync_file()\n        except OSError as error:\n"
        "            self._commit.fail(error)\n            raise self._commit.error() from error\n"
        "        offset = self.offset\n",
        "        offset = self.offset\n",
        ("tests/aof/test_errors.py::test_a_segment_that_could_not_be_begun_is_begun_later",),
        "A segment is on the disk whole before the next one gets its name.",
    ),
    Mutant(
        "log/roll-leaves-gathered-units",
        "aof/log.py",
        '        """End the segment and go on in a new one."""\n        self.flush()\n',
        '        """End the segment and go on in a new one."""\n',
        ("tests/aof/test_log.py::test_segments_roll_and_read_back",),
        "Units that were gathered belong to the segment in which their room was reserved.",
    ),
    Mutant(
        "log/name-before-header",
        "aof/log.py",
        "                file.write(0, header.pack())\n                file.map(filled)\n"
        "            except BaseException:\n                file.close()\n                raise\n"
        "            try:\n                recipe.publish_open(self._disk, file, path)\n",
        "                file.map(filled)\n"
        "            except BaseException:\n                file.close()\n                raise\n"
        "            try:\n                recipe.publish_open(self._disk, file, path)\n"
        "                file.write(0, header.pack())\n",
        ("tests/aof/test_log.py::test_a_segment_has_its_header_before_it_has_its_name",),
        "A segment has its header on the disk before it has its name.",
    ),
    Mutant(
        "log/answers-after-failed-fsync",
        "aof/log.py",
        "        self._fsync_failed = True\n        self.room = -1\n        self.parked = True\n",
        "        self._fsync_failed = True\n        self.room = -1\n",
        ("tests/aof/test_errors.py::test_after_a_failed_fsync_nothing_is_acknowledged",),
        "After a failed fsync no reply leaves, at any level.",
    ),
    Mutant(
        "log/unparked-after-failed-fsync",
        "aof/log.py",
        "        if self._fsync_failed:  # check this last: an fsync may fail while `parked` is being set\n"
        "            self.parked = True\n",
        "",
        ("tests/aof/test_errors.py::test_everysec_does_not_unpark_a_poisoned_log",),
        "The thread of `everysec` must not let replies of a poisoned log go.",
    ),
    Mutant(
        "commit/round-forgets-failure",
        "aof/commit.py",
        "                self.failure = failure\n                self.failure = bare(failure)\n",
        "                pass\n",
        ("tests/aof/test_commit.py::test_to_lead_is_to_sync_here_unless_another_does",),
        "A failed sync is remembered: everyone who waits then and later is told.",
    ),
    Mutant(
        "commit/waiters-one-too-early",
        "aof/commit.py",
        "            chain = [w for w in self._waiters if everyone or w.lsn <= synced]\n",
        "            synced += 1\n"
        "            chain = [w for w in self._waiters if everyone or w.lsn <= synced]\n",
        ("tests/aof/test_commit.py::test_who_leads_hands_over_to_those_who_came_meanwhile",),
        "A waiter goes on when its own LSN is on the disk, and not one before.",
    ),
    Mutant(
        "commit/wait-believes-any-round",
        "aof/commit.py",
        "        if self.synced < lsn:\n            raise self.error()\n",
        "",
        ("tests/aof/test_commit.py::test_a_failed_sync_tells_everyone_and_is_never_forgotten",),
        "A waiter whose round failed is told that the outcome is unknown.",
    ),
    Mutant(
        "commit/subscribers-are-told-it-is-good",
        "aof/commit.py",
        "                callback(None if good else self.error())\n",
        "                callback(None)\n",
        ("tests/aof/test_commit.py::test_a_failed_sync_tells_everyone_and_is_never_forgotten",),
        "A subscriber whose LSN did not reach the disk gets the error.",
    ),
    Mutant(
        "commit/everysec-never-parks",
        "aof/commit.py",
        "        self._park(age >= PARK_S)\n",
        "        self._park(False)\n",
        ("tests/aof/test_commit.py::test_everysec_syncs_after_one_second_and_parks_after_two",),
        "Under everysec replies wait when the disk is two seconds behind.",
    ),
    Mutant(
        "ahead/zeros-after-frames",
        "aof/ahead.py",
        "        self.taken = True\n        with self.lock:\n            return self.at\n",
        "        with self.lock:\n            return self.at\n",
        ("tests/aof/test_ahead.py::test_however_late_it_is_the_log_is_the_same",),
        "Once a caller took over the prepared space, no zero is written there any more.",
    ),
    Mutant(
        "ahead/another-segment-is-taken-off",
        "aof/ahead.py",
        "            self._ended.popleft()",
        "            self._ended.pop()",
        ("tests/aof/test_ahead.py::test_segments_that_end_while_another_one_is_cut",),
        "Each finished segment is cut and closed once, also one that ends while another is cut.",
    ),
    Mutant(
        "durable/newer-slot-overwritten",
        "aof/durable.py",
        "        self._turn = 1 if first >= second else 0\n",
        "        self._turn = 0 if first >= second else 1\n",
        ("tests/aof/test_recovery.py::test_a_torn_write_of_durable_leaves_the_newer_promise",),
        "A torn write of DURABLE must leave the newer promise.",
    ),
    Mutant(
        "durable/one-slot",
        "aof/durable.py",
        "        self._turn ^= 1\n",
        "        pass\n",
        ("tests/aof/test_formats.py::test_durable_slots_take_turns",),
        "The slots of DURABLE take turns, so that one is always whole.",
    ),
    Mutant(
        "durable/another-stores-slot",
        "aof/durable.py",
        "    if magic != MAGIC or owner != uuid:\n",
        "    if magic != MAGIC:\n",
        ("tests/aof/test_formats.py::test_durable_slots",),
        "DURABLE of another store proves nothing here.",
    ),
    planted(
        "recipe/published-unsynced",
        "tests/store/checkpoint/test_checkpoint_order.py::test_power_is_cut_around_checkpoints",
    ),
    planted(
        "recipe/name-unsynced",
        "tests/store/checkpoint/test_checkpoint_order.py::test_power_is_cut_around_checkpoints",
    ),
    Mutant(
        "recipe/removal-unsynced",
        "disk/recipe.py",
        "    disk.unlink(path)\n    disk.sync_directory(path.parent)\n",
        "    disk.unlink(path)\n",
        ("tests/aof/test_start.py::test_power_loss_while_segments_are_released",),
        "A removed file does not come back after a power cut.",
    ),
    Mutant(
        "identity/store-before-durable",
        "aof/identity.py",
        "    recipe.publish(disk, root / AOF / durable.NAME, bytes(durable.FILE_BYTES))\n"
        "    recipe.publish(disk, root / NAME, render(uuid, served=served, new=new))\n",
        "    recipe.publish(disk, root / NAME, render(uuid, served=served, new=new))\n"
        "    recipe.publish(disk, root / AOF / durable.NAME, bytes(durable.FILE_BYTES))\n",
        ("tests/aof/test_formats.py::test_a_store_is_one_when_all_else_of_it_is_there",),
        "STORE comes last, so that an emptied aof/ can be told from a new store.",
    ),
)
