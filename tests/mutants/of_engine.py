"""Mutants of the engine: effects that are not applied, and what a checkpoint would forget."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

MUTANTS: Final = (
    Mutant(
        "idmp/table-of-a-checkpoint-changes",
        "engine/streams/idmp.py",
        "        if self._handed.get(pid) is table:\n"
        "            table = self._own(pid, table)\n"
        "        table.pop(iid, None)\n",
        "        table.pop(iid, None)\n",
        ("tests/engine/streams/test_idmp.py::test_a_frozen_table_stays_as_it_was",),
        "A checkpoint has the dedup IDs of its moment, and no later ones.",
    ),
    Mutant(
        "expiries/stored-keys-never-due",
        "engine/keys/expiries.py",
        "        self.cold_next = 0 if count else NEVER\n",
        "        self.cold_next = NEVER\n",
        ("tests/engine/keys/test_cold_keys.py::test_what_is_due_is_read_in_its_order_and_no_more",),
        "A key that is not in memory expires in its time.",
    ),
    Mutant(
        "pending/ack-forgets-old-entries",
        "engine/groups/pending.py",
        "            if not self.orders.wide:\n                self.orders.remove_key(unpack_key(ids)[0])\n",
        "            if not self.orders.wide:\n",
        (
            "tests/engine/groups/test_pending_young.py::test_an_entry_that_is_no_longer_young_is_removed_by_its_id",
        ),
        "An acknowledged entry is pending no more, however old its delivery is.",
    ),
    Mutant(
        "apply/xackdel-keeps-pending",
        "engine/effects/apply_groups.py",
        "    stream.groups[name].pending.remove(ids)\n    stream.delete(ids, slots)\n",
        "    stream.delete(ids, slots)\n",
        ("tests/engine/groups/test_group_commands.py::test_ackdel",),
        "XACKDEL acknowledges what it deletes.",
    ),
    Mutant(
        "apply/stream-effects-untold",
        "engine/effects/apply_streams.py",
        "    stream: Stream = state.databases[effect[1]].keys[effect[2]]  # type: ignore[assignment]\n"
        "    if stream.mark != state.changes.generation:\n        state.changes.touch(stream)\n",
        "    stream: Stream = state.databases[effect[1]].keys[effect[2]]  # type: ignore[assignment]\n",
        ("tests/engine/test_one_change.py::test_after_a_checkpoint",),
        "A checkpoint holds what was added since the one before.",
    ),
    Mutant(
        "apply/group-effects-untold",
        "engine/effects/apply_groups.py",
        "    if stream.mark != state.changes.generation:\n        state.changes.touch(stream)\n",
        "",
        ("tests/engine/test_one_change.py::test_after_a_checkpoint",),
        "A checkpoint holds what was delivered and acknowledged since the one before.",
    ),
    Mutant(
        "pending/count-alone-unmarked",
        "engine/groups/by_id.py",
        "        ids, times, owners, counts = self.own(i) if self.serials[i] else chunk\n"
        "        j = bisect_left(ids, key)\n"
        "        if ids[j] == key:\n"
        "            old = times[j], owners[j]\n"
        "            times[j], owners[j], counts[j] = time, owner, count\n"
        "            return old\n",
        "        ids, times, owners, counts = chunk\n"
        "        j = bisect_left(ids, key)\n"
        "        if ids[j] == key:\n"
        "            old = times[j], owners[j]\n"
        "            times[j], owners[j], counts[j] = time, owner, count\n"
        "            return old\n"
        "        if self.serials[i]:\n"
        "            ids, times, owners, counts = self.own(i)\n",
        ("tests/engine/test_one_change.py::test_after_a_checkpoint",),
        "A delivery count that changed after a checkpoint is in the next one.",
    ),
    Mutant(
        "pending/rewrite-unmarked",
        "engine/groups/by_id.py",
        "            chunk = self.own(i) if self.serials[i] else self.chunks[i] or self.load(i)\n",
        "            chunk = self.chunks[i] or self.load(i)\n",
        ("tests/engine/test_one_change.py::test_after_a_checkpoint",),
        "A redelivery of a stretch after a checkpoint is in the next one.",
    ),
    Mutant(
        "pending/last-chunk-unwritten",
        "engine/groups/chunks.py",
        "        for i in self.fresh:\n",
        "        for i in self.fresh[:-1]:\n",
        ("tests/engine/test_one_change.py::test_after_a_checkpoint",),
        "A checkpoint writes every chunk of pending entries that changed.",
    ),
    Mutant(
        "pending/dropped-rows-stay",
        "engine/groups/frozen_pending.py",
        "        for serial in self.dropped:\n"
        '            yield "delete", chunk_row(number, group, serial)\n',
        "",
        ("tests/store/checkpoint/test_checkpoint_leftovers.py::test_no_row_stays_of",),
        "Rows of chunks that are no more go with the next checkpoint.",
    ),
    Mutant(
        "marks/handed-to-nobody",
        "engine/streams/marks.py",
        "        self.now = {}\n        return self.handed\n",
        "        self.now = {}\n        return {}\n",
        ("tests/engine/test_one_change.py::test_after_a_checkpoint",),
        "Entries deleted from stored nodes stay deleted after a reopening.",
    ),
    Mutant(
        "marks/not-taken-back",
        "engine/streams/marks.py",
        "        self.now = {**self.handed, **self.now}\n",
        "",
        ("tests/engine/test_one_change.py::test_before_one_that_fails",),
        "After a failed checkpoint deletions that it was handed are in the next one.",
    ),
    Mutant(
        "changes/copy-not-taken",
        "engine/keys/changes.py",
        "            frozen.take(stream)\n",
        "            pass\n",
        ("tests/engine/test_one_change.py::test_while_one_is_written",),
        "A stream that changes while a checkpoint is written is copied before.",
    ),
    Mutant(
        "changes/ended-streams-stay",
        "engine/keys/changes.py",
        "            self.ended.append(stream.number)\n",
        "            pass\n",
        ("tests/store/checkpoint/test_checkpoint_leftovers.py::test_no_row_stays_of",),
        "The rows of a deleted stream go with the next checkpoint.",
    ),
    Mutant(
        "changes/key-not-kept",
        "engine/keys/changes.py",
        "            self.keeper.keep(key)\n",
        "            pass\n",
        ("tests/engine/test_one_change.py::test_while_one_is_written",),
        "A key that changes while a checkpoint is written is copied before.",
    ),
    Mutant(
        "frozen-stream/head-stays",
        "engine/streams/frozen_stream.py",
        "            yield from pages.cut_head(head, _number(head_id))\n",
        "",
        ("tests/engine/test_one_change.py::test_trimmed_nodes_leave_the_file",),
        "Nodes that were trimmed leave the file with the next checkpoint.",
    ),
    Mutant(
        "frozen-stream/cut-not-taken-back",
        "engine/streams/frozen_stream.py",
        "        stream.cut = min(stream.cut, cut)\n",
        "",
        (
            "tests/engine/test_one_change.py::test_stored_nodes_that_are_no_more_leave_the_file_though_a_checkpoint_failed",
        ),
        "After a failed checkpoint the next one cuts the stored nodes that are to go.",
    ),
    Mutant(
        "frozen-stream/groups-not-taken-back",
        "engine/streams/frozen_stream.py",
        "                group.thaw(handed)\n",
        "                pass\n",
        ("tests/engine/test_one_change.py::test_before_one_that_fails",),
        "After a failed checkpoint the pending entries that it was handed are in the next one.",
    ),
    Mutant(
        "frozen-keys/expiry-unwritten",
        "engine/keys/frozen_keys.py",
        "            if expire_at not in (NO_EXPIRY, before):\n",
        "            if False:\n",
        (
            "tests/store/checkpoint/test_checkpoint_leftovers.py::test_a_key_of_a_checkpoint_expires_in_its_time",
        ),
        "A key in a checkpoint expires in its time.",
    ),
    Mutant(
        "frozen-keys/old-expiry-stays",
        "engine/keys/frozen_keys.py",
        "            if before not in (NO_EXPIRY, expire_at):\n",
        "            if False:\n",
        ("tests/store/checkpoint/test_checkpoint_leftovers.py::test_no_row_stays_of",),
        "A key whose time was changed does not keep the old one in a checkpoint.",
    ),
    Mutant(
        "frozen-keys/changes-not-thawed",
        "engine/keys/frozen_keys.py",
        "            table.changed = {**frozen.names, **table.changed}\n",
        "            table.changed = {**table.changed}\n",
        ("tests/engine/test_one_change.py::test_before_one_that_fails",),
        "After a failed checkpoint the keys that it was handed are in the next one.",
    ),
)
