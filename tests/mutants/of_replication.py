"""Mutants of replication: what is shipped, appended, acknowledged and counted, where histories part, and roles."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_FEEDS: Final = "tests/replication/test_feeds.py"
_FOLLOWER: Final = "tests/replication/test_follower.py"
_TABLE: Final = "tests/replication/test_history.py::test_the_table"
_RECEIVED: Final = "tests/aof/test_received.py"
_STORE: Final = "tests/store/following/test_receive.py"
_REFUSALS: Final = "tests/store/following/test_refusals.py"
_SHUTDOWN: Final = "tests/replication/test_shutdown.py"
_COMMANDS: Final = "tests/replication/test_commands.py"
_STATUS: Final = "tests/tools/test_replica_status.py"
_ROLES: Final = "tests/store/following/test_roles.py"

MUTANTS: Final = (
    # --- acknowledged
    Mutant(
        "follower/acknowledges-before-append",
        "replication/follower.py",
        "        lsn, _ = self._last\n        return lsn, ",
        "        assert self._intake is not None\n        lsn = self._intake.lsn\n        return lsn, ",
        (f"{_FOLLOWER}::test_only_what_is_in_the_log_is_acknowledged",),
        "A follower acknowledges only frames that are in its own log.",
    ),
    Mutant(
        "follower/acknowledges-unsynced",
        "replication/follower.py",
        "        return lsn, min(self._core.log.synced_lsn, lsn)\n",
        "        return lsn, lsn\n",
        (f"{_FOLLOWER}::test_only_what_is_on_the_disk_is_acknowledged_as_fsynced",),
        "A follower acknowledges as fsynced only what its own disk has.",
    ),
    Mutant(
        "follower/acknowledges-its-own-life",
        "replication/follower.py",
        "        lsn, _ = self._last\n        return lsn, ",
        "        lsn = self._core.log.written_lsn\n        return lsn, ",
        (f"{_FOLLOWER}::test_after_a_promotion_nothing_is_acknowledged",),
        "Records that a promoted store wrote itself confirm nothing to its former leader.",
    ),
    Mutant(
        "feeds/lost-link-counts",
        "replication/feeds.py",
        "        if self._links.get(link.id) is link:\n            del self._links[link.id]\n        link.closed()\n",
        "        link.closed()\n",
        (f"{_FEEDS}::test_a_connection_that_is_gone_counts_for_nothing",),
        "WAIT does not count a follower that is gone: it may come back with less.",
    ),
    Mutant(
        "feeds/older-connection-counts",
        "replication/feeds.py",
        "        before = link.feed.acked_lsn, link.feed.fsynced_lsn\n",
        "        before = link.feed.acked_lsn, link.feed.fsynced_lsn\n"
        "        link = self._links.get(link.id, link)\n",
        (f"{_FEEDS}::test_a_connection_that_is_gone_counts_for_nothing",),
        "An ACK counts for the connection that it came over, and not for the next one of that follower.",
    ),
    Mutant(
        "feeds/written-counts-as-fsynced",
        "replication/feeds.py",
        "            return sum(link.feed.fsynced_lsn >= lsn for link in self._links.values())\n",
        "            return sum(link.feed.acked_lsn >= lsn for link in self._links.values())\n",
        (f"{_FEEDS}::test_written_and_fsynced_are_counted_apart",),
        "WAITAOF counts followers that have fsynced, not those that have only written.",
    ),
    Mutant(
        "feeds/wait-ends-too-early",
        "replication/feeds.py",
        "                if self.count(awaited.lsn, awaited.fsynced) >= awaited.wanted:\n",
        "                if self.count(awaited.lsn, awaited.fsynced):\n",
        (f"{_FEEDS}::test_a_wait_ends_when_enough_followers_are_there",),
        "A WAIT for several followers ends when all of them have the write.",
    ),
    Mutant(
        "feed/acknowledged-from-the-future",
        "replication/feed.py",
        "        if ack.written > self._last:\n",
        "        if False:\n",
        ("tests/replication/test_feed.py::test_a_lie_ends_the_link",),
        "An ACK beyond the end of the leader's log ends the link.",
    ),
    # --- shipped
    Mutant(
        "feeds/ships-unsynced",
        "replication/feeds.py",
        "            log.good(core.durability.level()),\n",
        "            log.good(1),\n",
        (f"{_FEEDS}::test_under_always_a_frame_is_shipped_when_it_is_synced",),
        "Under `always`, a leader ships only what a power cut cannot take from it.",
    ),
    Mutant(
        "feeds/ships-before-its-life",
        "replication/feeds.py",
        "                log.begin_life()  # before its first frame is shipped\n",
        "                pass\n",
        (f"{_FEEDS}::test_the_life_of_a_leader_is_in_its_log_before_anything_is_shipped",),
        "The EPOCH of a leader's life is in its log before it answers a follower.",
    ),
    Mutant(
        "feeds/life-unsynced",
        "replication/feeds.py",
        "            log.sync_through(last)\n",
        "            pass\n",
        (f"{_FEEDS}::test_under_always_the_life_of_an_idle_leader_is_synced",),
        "Under `always`, the EPOCH of an idle leader is synced, so that its followers catch up.",
    ),
    Mutant(
        "feeds/two-copies-of-one-id",
        "replication/feeds.py",
        "        if now - old.feed.heard_at < SILENT_S:\n",
        "        if False:\n",
        (f"{_FEEDS}::test_a_second_connection_of_one_copy_is_refused_until_the_first_is_silent",),
        "Two live connections with one ID come from a copied directory, so the second is refused.",
    ),
    # --- appended
    Mutant(
        "received/chain-unchecked",
        "aof/received.py",
        "            if first != lsn or before != prev:\n",
        "            if first != lsn:\n",
        (
            f"{_RECEIVED}::test_frames_of_another_store_are_refused",
            f"{_RECEIVED}::test_missing_and_repeated_frames_are_refused",
            f"{_RECEIVED}::test_reading_can_begin_behind_any_frame",
            "tests/replication/test_intake.py::test_frames_of_another_history_never_come_out",
        ),
        "A frame that follows another one than the last of this log is refused.",
    ),
    Mutant(
        "received/lsn-unchecked",
        "aof/received.py",
        "            if first != lsn or before != prev:\n",
        "            if before != prev and first == lsn:\n",
        (f"{_RECEIVED}::test_missing_and_repeated_frames_are_refused",),
        "A frame with another LSN than the next one is refused.",
    ),
    Mutant(
        "received/records-unchecked",
        "aof/received.py",
        "            if crc32c_of(body) != body_crc:\n",
        "            if False:\n",
        (f"{_RECEIVED}::test_every_flipped_bit_is_refused_behind_the_frames_before_it",),
        "A frame whose records do not match their checksum is refused.",
    ),
    Mutant(
        "received/header-unchecked",
        "aof/received.py",
        "            if magic != MAGIC or crc32c_after(seed, data[offset : offset + 44]) != crc:\n",
        "            if magic != MAGIC:\n",
        (f"{_RECEIVED}::test_every_flipped_bit_is_refused_behind_the_frames_before_it",),
        "A frame whose header does not match its checksum is refused.",
    ),
    Mutant(
        "intake/logs-not-compared",
        "replication/intake.py",
        "    if ours != theirs:\n",
        "    if False:\n",
        ("tests/replication/test_intake.py::test_both_logs_are_compared_at_each_beat",),
        "The ends of both logs are compared with every BEAT.",
    ),
    Mutant(
        "intake/compared-at-ends-of-batches-only",
        "replication/intake.py",
        "            if lsn >= batch.first:\n",
        "            if lsn == batch.last:\n",
        (
            "tests/replication/test_intake.py::test_a_place_that_a_beat_named_is_compared_when_a_batch_passes_it",
        ),
        "Under load, too, both logs are compared at the place that each BEAT names.",
    ),
    # --- a store that follows
    Mutant(
        "following/expires-keys",
        "store/commit/following.py",
        "    landing.expiring = False\n",
        "    landing.expiring = True\n",
        (f"{_REFUSALS}::test_expired_keys_are_hidden_and_not_deleted",),
        "A follower hides expired keys, and deletes them when its leader's DEL comes.",
    ),
    Mutant(
        "following/own-clock",
        "store/commit/following.py",
        "    landing.time_ns = following.time_ns\n",
        "",
        (f"{_STORE}::TestTime::test_keys_expire_by_the_leaders_clock",),
        "A follower's readers see its leader's time.",
    ),
    Mutant(
        "following/commands-write",
        "store/commit/reads.py",
        '        if "write" in resolve(args).flags:\n            raise CommandError(refusal)\n',
        "",
        (f"{_REFUSALS}::test_every_command_that_writes",),
        "A follower refuses every command that can write, before it is decided.",
    ),
    Mutant(
        "following/queues-write",
        "store/commit/core.py",
        "        if self.following is not None:\n            raise CommandError(READONLY)\n"
        "        answer = self.run(db, work, caller)\n",
        "        answer = self.run(db, work, caller)\n",
        (f"{_REFUSALS}::test_ways_below_the_faces",),
        "A follower refuses the decisions of queues.",
    ),
    Mutant(
        "following/queued-writes-run",
        "store/commit/batch.py",
        "            if core.following is not None and first_write(reply.commands) is not None:\n",
        "            if False:\n",
        (f"{_REFUSALS}::test_exec_of_writes_that_were_queued_before",),
        "EXEC of writes that were queued while the store led is refused as a whole.",
    ),
    Mutant(
        "following/consumers-stay-parked",
        "store/commit/following.py",
        "    readers.end_writers()\n",
        "",
        (f"{_ROLES}::test_no_consumer_is_parked_when_a_store_follows",),
        "No parked consumer may take an entry that was replicated.",
    ),
    Mutant(
        "following/lives-unknown",
        "store/commit/following.py",
        "        if batch.epochs and core.checkpoints is not None:\n",
        "        if False:\n",
        (f"{_STORE}::test_it_knows_the_lives_of_its_leader",),
        "A follower knows the lives in its log, which say where histories part.",
    ),
    # --- roles
    Mutant(
        "roles/taken-before-published",
        "store/roles.py",
        "        try:\n            role.publish(self.disk, self._root, new)\n",
        "        self.role = new\n        try:\n            role.publish(self.disk, self._root, new)\n",
        (f"{_ROLES}::test_a_full_disk_leaves_the_role",),
        "A store takes a role when REPLICA states it, and not before.",
    ),
    Mutant(
        "roles/never-published",
        "store/roles.py",
        "            role.publish(self.disk, self._root, new)\n",
        "            pass\n",
        (f"{_ROLES}::test_following_and_being_promoted",),
        "A role survives a restart.",
    ),
    Mutant(
        "roles/promoted-without-epoch",
        "store/roles.py",
        "                core.log.begin_life()\n",
        "                pass\n",
        (f"{_ROLES}::test_following_and_being_promoted",),
        "A promotion logs the EPOCH of the next generation before it returns.",
    ),
    Mutant(
        "roles/epoch-unsynced",
        "store/roles.py",
        "            log.wait(lsn, FSYNCED)\n",
        "            log.wait(lsn, 1)\n",
        (f"{_ROLES}::test_its_epoch_is_on_the_disk_when_a_promotion_returns",),
        "The EPOCH of a promotion is on the disk before it returns, under every policy.",
    ),
    Mutant(
        "roles/same-generation",
        "store/roles.py",
        "                        generation=self._generation(core) + 1,\n",
        "                        generation=self._generation(core),\n",
        (f"{_ROLES}::test_following_and_being_promoted",),
        "A promotion begins the next generation.",
    ),
    Mutant(
        "roles/uuid-over-records",
        "store/roles.py",
        "            if landing.log.next_lsn > 1:\n",
        "            if False:\n",
        (f"{_ROLES}::TestAdoption::test_a_store_that_holds_something_keeps_its_own",),
        "A store with records of its own never takes another store's uuid.",
    ),
    Mutant(
        "roles/option-undoes-promotion",
        "replication/follower.py",
        "    if core.following is None and not role.reason:\n",
        "    if core.following is None:\n",
        (
            "tests/replication/test_embedded.py::test_a_promoted_store_takes_writes_and_stays_a_leader",
        ),
        "An option that names a leader does not undo a promotion.",
    ),
    # --- where histories part
    Mutant(
        "history/by-lsn-alone",
        "replication/history.py",
        "    if frame == follow.crc:\n",
        "    if isinstance(frame, int):\n",
        ("tests/replication/test_history.py::test_clones_are_never_mixed", _TABLE),
        "Two logs of one life are one history only if the checksums at that LSN agree.",
    ),
    Mutant(
        "history/checksum-proves-it",
        "replication/history.py",
        "    common = _newest_common(upstream.lives, follow.lives)\n",
        "    if follow.lsn <= upstream.last and upstream.frame_at(follow.lsn) == follow.crc:\n"
        "        return Continue(upstream.uuid, upstream.last)\n"
        "    common = _newest_common(upstream.lives, follow.lives)\n",
        ("tests/replication/test_history.py::test_a_checksum_alone_proves_nothing",),
        "A checksum that agrees by chance does not make two histories one.",
    ),
    Mutant(
        "history/surplus-given-up",
        "replication/history.py",
        "    if follow.replace or _promoted_past(upstream, follow):\n        return Rejoin(",
        "    if True:\n        return Rejoin(",
        (_TABLE,),
        "Without a promotion or a person's consent, a surplus is not given up.",
    ),
    Mutant(
        "history/long-surplus-given-up",
        "replication/history.py",
        "        if own.span_ms > surplus_seconds_max * 1000:\n",
        "        if False:\n",
        (
            _TABLE,
            "tests/replication/test_history.py::test_the_seconds_of_a_surplus_are_an_option",
        ),
        "Without asking, only as much is given up as a power cut may take.",
    ),
    Mutant(
        "history/own-frame-unseen",
        "replication/history.py",
        "    elif isinstance(own.frame, int) and rejoin.crc not in (None, own.frame):\n",
        "    elif False:\n",
        ("tests/replication/test_history.py::test_clones_are_never_mixed", _TABLE),
        "A follower compares its own frame at the parting point before it gives up what is behind.",
    ),
    Mutant(
        "history/generation-ignored",
        "replication/history.py",
        "    if generation(follow.lives[0].number) > generation(upstream.lives[0].number):\n",
        "    if False:\n",
        (_TABLE,),
        "A store that was promoted later does not follow the one that it superseded.",
    ),
    Mutant(
        "history/another-store",
        "replication/history.py",
        "    if follow.uuid != upstream.uuid:\n",
        "    if False:\n",
        (_TABLE,),
        "A store with another uuid is refused.",
    ),
    Mutant(
        "history/slow-upstream",
        "replication/history.py",
        "    if upstream.following and parting == upstream.last:\n",
        "    if False:\n",
        (_TABLE,),
        "A follower that is ahead of a follower waits and gives up nothing.",
    ),
    # --- Sentinel, and the end of a server
    Mutant(
        "leaving/writes-go-on",
        "server/leaving.py",
        "        server.pause(seconds * 1000 + _BEYOND_MS, writes_only=True)\n",
        "        pass\n",
        (f"{_SHUTDOWN}::test_writes_wait_and_go_on_after_an_abort",),
        "While a server waits for its followers, no client is answered for a write.",
    ),
    Mutant(
        "leaving/reads-wait",
        "server/leaving.py",
        "_BEYOND_MS, writes_only=True)",
        "_BEYOND_MS, writes_only=False)",
        (f"{_SHUTDOWN}::test_shutdown_waits_until_followers_have_all",),
        "Reads go on while a server waits for its followers.",
    ),
    Mutant(
        "leaving/does-not-wait",
        "server/leaving.py",
        "link.feed.acked_lsn < lsn\n",
        "link.feed.acked_lsn < 0\n",
        (f"{_SHUTDOWN}::test_shutdown_waits_until_followers_have_all",),
        "A server that stops waits until its followers have every record.",
    ),
    Mutant(
        "leaving/abort-keeps-the-pause",
        "server/leaving.py",
        "            if not paused:\n                server.unpause()\n",
        "",
        (f"{_SHUTDOWN}::test_writes_wait_and_go_on_after_an_abort",),
        "After SHUTDOWN ABORT clients write again.",
    ),
    Mutant(
        "leaving/owner-can-be-stopped",
        "server/saving.py",
        "        if abortable:\n            self._aborts.add(abort)\n",
        "        self._aborts.add(abort)\n",
        (f"{_SHUTDOWN}::test_the_owner_s_close_waits",),
        "A client cannot abort the close that the owner of a store waits for.",
    ),
    Mutant(
        "upstream/one-id-for-all",
        "server/monitoring/upstream.py",
        "Upstream(self._server.next_id(), link, connected)",
        "Upstream(1, link, connected)",
        (f"{_COMMANDS}::test_client_list_shows_the_link_to_the_leader",),
        "Each connection to the leader has an ID of its own in CLIENT LIST.",
    ),
    Mutant(
        "status/furthest-is-the-nearest",
        "replication/status.py",
        "max(links, key=_reached)",
        "min(links, key=_reached)",
        ("tests/replication/test_status.py::test_the_furthest_is_the_one_with_most",),
        "The status names the follower that has most as the one to promote.",
    ),
    Mutant(
        "status/lsn-before-life",
        "tools/replica/status.py",
        'return facts["generation"], facts["life"], facts["last_lsn"]',
        'return facts["last_lsn"], facts["life"], facts["generation"]',
        (f"{_STATUS}::test_a_later_life_is_further_than_a_higher_lsn",),
        "Of stores whose leader is gone the one of the newest life is the furthest, whatever its LSN.",
    ),
    Mutant(
        "status/lag-forgotten",
        "replication/feed.py",
        "            self._marks.popleft()\n\n    def lag_seconds",
        "            self._marks.clear()\n\n    def lag_seconds",
        (
            "tests/replication/test_status.py::"
            "test_a_follower_lags_since_the_leader_had_what_it_lacks",
        ),
        "A follower lags since the time when its leader had the first record that it lacks.",
    ),
)
