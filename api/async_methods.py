"""The methods of an asyncio store.

Generated from methods.py by tools/dev/make_faces.py: change that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal

from tidelog.api import shapes
from tidelog.api.methods import (
    RefPolicy,
    T,
    between,
    conditions,
    known_policy,
    milliseconds,
    not_negative,
    positive,
    read_limits,
    seconds,
    several,
    trimming,
    unix_milliseconds,
    unix_seconds,
)
from tidelog.api.shapes import Shape
from tidelog.api.types import (
    AbsExpiryT,
    ConsumerT,
    EncodableT,
    ExpiryT,
    GroupT,
    KeyT,
    PatternT,
    StreamEntries,
    StreamIdT,
    Text,
    TextT,
)
from tidelog.engine.api import DURATION_MAX_S, MAXSIZE_MAX
from tidelog.store.errors import DataError


class AsyncMethods(Generic[TextT]):
    """Streams, keys and strings, one method per command."""

    async def _call(self, shape: Shape[T], words: list[Any]) -> T:
        """Run one command and shape its reply. Raises ResponseError, and the store errors that DURABILITY.md lists."""
        raise NotImplementedError

    async def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> TextT:
        """XADD without options."""
        raise NotImplementedError

    # --- streams: writing

    async def xadd(
        self,
        name: KeyT,
        fields: dict[Any, Any],
        id: StreamIdT = "*",
        maxlen: int | None = None,
        approximate: bool = True,
        nomkstream: bool = False,
        minid: StreamIdT | None = None,
        limit: int | None = None,
        ref_policy: RefPolicy | None = None,
        idmpauto: str | None = None,
        idmp: tuple[str, bytes] | None = None,
    ) -> TextT | None:
        """Append one entry to a stream (spec 5.1).

        Args:
            name: Key of the stream. It is created if missing.
            fields: At least one field. Names and values are bytes, str (stored as UTF-8), int or float.
            id: `*` takes the ID from the store's clock. Else `ms-*`, or a whole ID above the stream's last one.
            maxlen: Trim the stream to about this many entries; to exactly as many with `approximate=False` (spec 5.2).
            approximate: Trim whole nodes only, which is faster and may leave more entries.
            nomkstream: Add nothing if the stream is missing.
            minid: Trim entries with IDs below this one.
            limit: Bound on the entries that an approximate trim removes; 0 = no bound.
            ref_policy: What a trim does with pending references: KEEPREF, DELREF or ACKED. Since Redis 8.2.
            idmpauto: Producer ID for deduplication; the entry's own ID is computed from its fields. Since Redis 8.6.
            idmp: Pair (producer ID, the producer's ID of this entry). An entry that the stream remembers is not added
                again (spec 5.1.1). Since Redis 8.6.

        Returns:
            The entry's ID `ms-seq`; the ID of the earlier entry if this one is a duplicate. None if `nomkstream` is set
            and the stream is missing.

        Raises:
            DataError: `fields` is empty, or options exclude each other.
            ResponseError: The ID is not above the last one, or the key holds no stream.
        """
        if not isinstance(fields, dict) or not fields:
            raise DataError("XADD fields must be a non-empty dict")
        if (
            id == "*"
            and maxlen is None
            and minid is None
            and limit is None
            and ref_policy is None
            and idmpauto is None
            and idmp is None
            and not nomkstream
        ):
            return await self._add(name, fields)
        if idmpauto is not None and idmp is not None:
            raise DataError("Only one of ``idmpauto`` or ``idmp`` may be specified")
        if (idmpauto is not None or idmp is not None) and id != "*":
            raise DataError("IDMPAUTO and IDMP can only be used with id='*'")
        known_policy("XADD", ref_policy)
        not_negative("XADD", "maxlen", maxlen)
        words: list[Any] = [b"XADD", name]
        if nomkstream:
            words.append(b"NOMKSTREAM")
        if ref_policy is not None:
            words.append(ref_policy)
        if idmpauto is not None:
            words += (b"IDMPAUTO", idmpauto)
        if idmp is not None:
            if not isinstance(idmp, tuple) or len(idmp) != 2:
                raise DataError("XADD idmp must be a tuple of (producer_id, idempotent_id)")
            words += (b"IDMP", *idmp)
        words += trimming("XADD", maxlen, approximate, minid, limit)
        words.append(id)
        for pair in fields.items():
            words += pair
        return await self._call(shapes.optional_text, words)

    async def xtrim(
        self,
        name: KeyT,
        maxlen: int | None = None,
        approximate: bool = True,
        minid: StreamIdT | None = None,
        limit: int | None = None,
        ref_policy: RefPolicy | None = None,
    ) -> int:
        """Remove the oldest entries of a stream (spec 5.3).

        Args:
            maxlen: Trim to about this many entries; to exactly as many with `approximate=False`.
            approximate: Trim whole nodes only, which is faster and may leave more entries.
            minid: Trim entries with IDs below this one. Give either `maxlen` or `minid`.
            limit: Bound on the entries that an approximate trim removes; 0 = no bound.
            ref_policy: What happens to pending references: KEEPREF, DELREF or ACKED (spec 5.2). Since Redis 8.2.

        Returns:
            How many entries were removed.

        Raises:
            DataError: Neither or both of `maxlen` and `minid` are given.
            ResponseError: The key holds no stream, or `limit` is given without `approximate`.
        """
        if maxlen is None and minid is None:
            raise DataError("One of ``maxlen`` or ``minid`` must be specified")
        known_policy("XTRIM", ref_policy)
        words: list[Any] = [b"XTRIM", name, *trimming("XTRIM", maxlen, approximate, minid, limit)]
        if ref_policy is not None:
            words.append(ref_policy)
        return await self._call(shapes.integer, words)

    async def xdel(self, name: KeyT, *ids: StreamIdT) -> int:
        """Delete entries of a stream (spec 5.4). Groups keep their pending references to them.

        Returns:
            How many of the entries existed.

        Raises:
            ResponseError: An ID is malformed, or the key holds no stream.
        """
        return await self._call(shapes.integer, [b"XDEL", name, *ids])

    async def xdelex(
        self, name: KeyT, *ids: StreamIdT, ref_policy: RefPolicy = "KEEPREF"
    ) -> list[int]:
        """Delete entries under a reference policy (spec 5.5). Since Redis 8.2.

        Args:
            ref_policy: KEEPREF keeps pending references to deleted entries, DELREF removes them too, ACKED deletes only
                entries that every group has read and acknowledged.

        Returns:
            One number per ID: 1 deleted, -1 no such entry, 2 kept because a group still needs it.

        Raises:
            DataError: No ID is given, or the policy is unknown.
            ResponseError: An ID is malformed, or the key holds no stream.
        """
        if not ids:
            raise DataError("XDELEX requires at least one message ID")
        known_policy("XDELEX", ref_policy)
        return await self._call(
            shapes.integers, [b"XDELEX", name, ref_policy, b"IDS", len(ids), *ids]
        )

    async def xcfgset(
        self, name: KeyT, idmp_duration: int | None = None, idmp_maxsize: int | None = None
    ) -> TextT:
        """Set what a stream remembers to recognise duplicates of `xadd` with `idmp` (spec 5.7). Since Redis 8.6.

        A changed setting clears all that the stream remembers.

        Args:
            idmp_duration: For how many seconds, 1 to 86,400.
            idmp_maxsize: How many IDs per producer, 1 to 10,000.

        Returns:
            `OK`.

        Raises:
            DataError: No option is given, or one is out of range.
            ResponseError: The key does not exist or holds no stream.
        """
        if idmp_duration is None and idmp_maxsize is None:
            raise DataError("XCFGSET requires at least one of idmp_duration or idmp_maxsize")
        words: list[Any] = [b"XCFGSET", name]
        if idmp_duration is not None:
            between("XCFGSET", "idmp_duration", idmp_duration, DURATION_MAX_S)
            words += (b"IDMP-DURATION", idmp_duration)
        if idmp_maxsize is not None:
            between("XCFGSET", "idmp_maxsize", idmp_maxsize, MAXSIZE_MAX)
            words += (b"IDMP-MAXSIZE", idmp_maxsize)
        return await self._call(shapes.text, words)

    # --- streams: reading

    async def xlen(self, name: KeyT) -> int:
        """Number of entries of a stream; 0 if it is missing (spec 6.1).

        Raises:
            ResponseError: The key holds no stream.
        """
        return await self._call(shapes.integer, [b"XLEN", name])

    async def xrange(
        self, name: KeyT, min: StreamIdT = "-", max: StreamIdT = "+", count: int | None = None
    ) -> StreamEntries:
        """Read entries in ascending order (spec 6.2).

        Args:
            min: First ID; `-` = the lowest. `(ID` excludes the ID itself. A bare `ms` means `ms-0`.
            max: Last ID; `+` = the highest. A bare `ms` includes all entries of that millisecond.
            count: At most this many entries.

        Returns:
            `[(id, {field: value}), ...]`.

        Raises:
            DataError: `count` is not a positive integer.
            ResponseError: An ID is malformed, or the key holds no stream.
        """
        positive("XRANGE", "count", count)
        words: list[Any] = [b"XRANGE", name, min, max]
        if count is not None:
            words += (b"COUNT", count)
        return await self._call(shapes.entries, words)

    async def xrevrange(
        self, name: KeyT, max: StreamIdT = "+", min: StreamIdT = "-", count: int | None = None
    ) -> StreamEntries:
        """Read entries in descending order (spec 6.2).

        Args:
            max: First ID of the reply, as in `xrange`.
            min: Last ID of the reply, as in `xrange`.
            count: At most this many entries.

        Returns:
            `[(id, {field: value}), ...]`.

        Raises:
            DataError: `count` is not a positive integer.
            ResponseError: An ID is malformed, or the key holds no stream.
        """
        positive("XREVRANGE", "count", count)
        words: list[Any] = [b"XREVRANGE", name, max, min]
        if count is not None:
            words += (b"COUNT", count)
        return await self._call(shapes.entries, words)

    async def xread(
        self,
        streams: dict[Any, Any],
        count: int | None = None,
        block: int | None = None,
        max_count: int | None = None,
        max_size: int | None = None,
    ) -> list[Any]:
        """Read the entries after given IDs, of several streams (spec 6.3).

        Args:
            streams: `{key: ID}`. 0 = all entries, `$` = only those added from now on, `+` = the last entry (since Redis
                7.4).
            count: At most this many entries per stream.
            block: Wait up to this many ms for an entry; 0 = for ever, None = do not wait (spec 10).
            max_count: At most this many entries of all streams together (spec 19). Since Redis 8.10.
            max_size: Add no further entry once the reply has this many bytes; at least one is returned. Since Redis
                8.10.

        Returns:
            `[[key, [(id, {field: value}), ...]], ...]` with the streams that have entries; `[]` if none has.

        Raises:
            DataError: `streams` is empty, or a limit is out of range.
            ResponseError: An ID is malformed, or a key holds no stream.
        """
        words: list[Any] = [b"XREAD", *read_limits("XREAD", count, block, max_count, max_size)]
        if not isinstance(streams, dict) or not streams:
            raise DataError("XREAD streams must be a non empty dict")
        return await self._call(
            shapes.streams, [*words, b"STREAMS", *streams.keys(), *streams.values()]
        )

    async def xinfo_stream(self, name: KeyT, full: bool = False) -> dict[str, Any]:
        """Facts about a stream (spec 8.1).

        Args:
            full: Also list the first 10 entries, and all groups and consumers with their first 10 pending entries (spec
                8.2).

        Returns:
            A dict with str keys: `length`, `last-generated-id`, `entries-added`, `groups`, `first-entry`, `last-entry`
            and so on. An entry is `(id, {field: value})` or None. With `full`, `entries` is `{id: fields}` and `groups`
            a list of dicts.

        Raises:
            ResponseError: The key does not exist or holds no stream.
        """
        if full:
            return await self._call(shapes.stream_info_full, [b"XINFO", b"STREAM", name, b"FULL"])
        return await self._call(shapes.stream_info, [b"XINFO", b"STREAM", name])

    async def xinfo_groups(self, name: KeyT) -> list[dict[str, Any]]:
        """The consumer groups of a stream (spec 8.3).

        Returns:
            One dict per group: `name`, `consumers` and `pending` (numbers), `last-delivered-id`, `entries-read`, and
            `lag`: entries not delivered yet, None if unknown (spec 9).

        Raises:
            ResponseError: The key does not exist or holds no stream.
        """
        return await self._call(shapes.mappings, [b"XINFO", b"GROUPS", name])

    async def xinfo_consumers(self, name: KeyT, groupname: GroupT) -> list[dict[str, Any]]:
        """The consumers of a group (spec 8.4).

        Returns:
            One dict per consumer: `name`, `pending` (number of entries), `idle` and `inactive` (ms since its last
            attempt and since its last entry; `inactive` is -1 if it never had one).

        Raises:
            ResponseError: The key does not exist or holds no stream, or there is no such group.
        """
        return await self._call(shapes.mappings, [b"XINFO", b"CONSUMERS", name, groupname])

    # --- consumer groups

    async def xgroup_create(
        self,
        name: KeyT,
        groupname: GroupT,
        id: StreamIdT = "$",
        mkstream: bool = False,
        entries_read: int | None = None,
    ) -> bool:
        """Create a consumer group (spec 7.1).

        Args:
            id: The group gets the entries after this ID. `$` = only entries added from now on, 0 = all.
            mkstream: Create the stream too if it is missing.
            entries_read: How many entries the group counts as read, for its lag (spec 9).

        Returns:
            True.

        Raises:
            ResponseError: The group exists (`code` is BUSYGROUP), the key is missing or holds no stream, or the ID is
                malformed.
        """
        words: list[Any] = [b"XGROUP", b"CREATE", name, groupname, id]
        if mkstream:
            words.append(b"MKSTREAM")
        if entries_read is not None:
            words += (b"ENTRIESREAD", entries_read)
        return await self._call(shapes.ok, words)

    async def xgroup_setid(
        self, name: KeyT, groupname: GroupT, id: StreamIdT, entries_read: int | None = None
    ) -> bool:
        """Set the ID after which a group gets entries (spec 7.1). Pending entries stay.

        Args:
            id: The new last delivered ID; `$` = the stream's last ID, 0 = deliver everything again.
            entries_read: How many entries the group counts as read. Without it the lag becomes unknown (spec 9).

        Returns:
            True.

        Raises:
            ResponseError: There is no such key or group, the key holds no stream, or the ID is malformed.
        """
        words: list[Any] = [b"XGROUP", b"SETID", name, groupname, id]
        if entries_read is not None:
            words += (b"ENTRIESREAD", entries_read)
        return await self._call(shapes.ok, words)

    async def xgroup_destroy(self, name: KeyT, groupname: GroupT) -> bool:
        """Destroy a group with its consumers and pending entries (spec 7.1). Its blocked readers get an error.

        Returns:
            Whether the group existed.

        Raises:
            ResponseError: The key is missing or holds no stream.
        """
        return await self._call(shapes.boolean, [b"XGROUP", b"DESTROY", name, groupname])

    async def xgroup_createconsumer(
        self, name: KeyT, groupname: GroupT, consumername: ConsumerT
    ) -> int:
        """Create a consumer (spec 7.1). Reads and claims create it too.

        Returns:
            1 if it is new, 0 if it existed.

        Raises:
            ResponseError: There is no such key or group, or the key holds no stream.
        """
        words: list[Any] = [b"XGROUP", b"CREATECONSUMER", name, groupname, consumername]
        return await self._call(shapes.integer, words)

    async def xgroup_delconsumer(
        self, name: KeyT, groupname: GroupT, consumername: ConsumerT
    ) -> int:
        """Delete a consumer and its pending entries (spec 7.1). The group does not deliver those entries again.

        Returns:
            How many entries were pending.

        Raises:
            ResponseError: There is no such key or group, or the key holds no stream.
        """
        words: list[Any] = [b"XGROUP", b"DELCONSUMER", name, groupname, consumername]
        return await self._call(shapes.integer, words)

    async def xreadgroup(
        self,
        groupname: str,
        consumername: str,
        streams: dict[Any, Any],
        count: int | None = None,
        block: int | None = None,
        noack: bool = False,
        claim_min_idle_time: int | None = None,
        max_count: int | None = None,
        max_size: int | None = None,
    ) -> list[Any]:
        """Read as a consumer of a group (spec 7.2). Delivered entries stay pending for the consumer until `xack`.

        Args:
            consumername: Created if missing.
            streams: `{key: ID}`. `>` = entries that the group has not delivered yet; an ID = this consumer's pending
                entries above it.
            count: At most this many entries per stream.
            block: Wait up to this many ms for new entries; 0 = for ever, None = do not wait (spec 10).
            noack: Entries count as acknowledged when delivered; nothing becomes pending.
            claim_min_idle_time: First take over entries that have been pending this many ms with any consumer (spec
                7.2.4). Since Redis 8.4.
            max_count: At most this many entries of all streams together (spec 19). Since Redis 8.10.
            max_size: Add no further entry once the reply has this many bytes; at least one is returned. Since Redis
                8.10.

        Returns:
            `[[key, [(id, {field: value}), ...]], ...]`, or `[]` if there is nothing new. An entry that was deleted from
            the stream has no fields. With `claim_min_idle_time` an entry is `(id, {field: value}, idle ms,
            deliveries)`.

        Raises:
            DataError: `streams` is empty, or a limit is out of range.
            ResponseError: There is no such key or group (`code` is NOGROUP), a key holds no stream, or an ID is
                malformed.
        """
        words: list[Any] = [b"XREADGROUP", b"GROUP", groupname, consumername]
        words += read_limits("XREADGROUP", count, block, max_count, max_size)
        if noack:
            words.append(b"NOACK")
        if claim_min_idle_time is not None:
            not_negative("XREADGROUP", "claim_min_idle_time", claim_min_idle_time)
            words += (b"CLAIM", claim_min_idle_time)
        if not isinstance(streams, dict) or not streams:
            raise DataError("XREADGROUP streams must be a non empty dict")
        words.append(b"STREAMS")
        words += streams.keys()
        words += streams.values()
        return await self._call(shapes.streams, words)

    async def xack(self, name: KeyT, groupname: GroupT, *ids: StreamIdT) -> int:
        """Acknowledge entries: they are no longer pending (spec 7.3).

        Returns:
            How many of them were pending; 0 if there is no such key or group.

        Raises:
            ResponseError: An ID is malformed, none is given, or the key holds no stream.
        """
        return await self._call(shapes.integer, [b"XACK", name, groupname, *ids])

    async def xackdel(
        self,
        name: KeyT,
        groupname: GroupT,
        *ids: StreamIdT,
        ref_policy: RefPolicy = "KEEPREF",
    ) -> list[int]:
        """Acknowledge entries and delete them from the stream (spec 7.4). Since Redis 8.2.

        Args:
            ref_policy: As in `xdelex`, for the pending references of other groups.

        Returns:
            One number per ID: 1 deleted, -1 not pending, 2 acknowledged but kept because another group still needs it.

        Raises:
            DataError: No ID is given, or the policy is unknown.
            ResponseError: An ID is malformed, or the key holds no stream.
        """
        if not ids:
            raise DataError("XACKDEL requires at least one message ID")
        known_policy("XACKDEL", ref_policy)
        words: list[Any] = [b"XACKDEL", name, groupname, ref_policy, b"IDS", len(ids), *ids]
        return await self._call(shapes.integers, words)

    async def xnack(
        self,
        name: KeyT,
        groupname: GroupT,
        mode: Literal["SILENT", "FAIL", "FATAL"],
        *ids: StreamIdT,
        retrycount: int | None = None,
        force: bool = False,
    ) -> int:
        """Release pending entries to the group for redelivery (spec 7.5). Since Redis 8.8.

        Args:
            mode: What happens to the delivery count: SILENT lowers it by 1, FAIL keeps it, FATAL sets it to the
                maximum.
            retrycount: Set the delivery count to this instead.
            force: Also make entries of the stream pending that are not.

        Returns:
            How many entries were released.

        Raises:
            DataError: No ID is given, the mode is unknown, or `retrycount` is negative.
            ResponseError: There is no such key or group, the key holds no stream, or an ID is malformed.
        """
        if not ids:
            raise DataError("XNACK requires at least one message ID")
        if mode not in ("SILENT", "FAIL", "FATAL"):
            raise DataError("XNACK mode must be one of: SILENT, FAIL, FATAL")
        words: list[Any] = [b"XNACK", name, groupname, mode, b"IDS", len(ids), *ids]
        if retrycount is not None:
            if retrycount < 0:
                raise DataError("XNACK retrycount must be >= 0")
            words += (b"RETRYCOUNT", retrycount)
        if force:
            words.append(b"FORCE")
        return await self._call(shapes.integer, words)

    async def xclaim(
        self,
        name: KeyT,
        groupname: GroupT,
        consumername: ConsumerT,
        min_idle_time: int,
        message_ids: list[StreamIdT] | tuple[StreamIdT, ...],
        idle: int | None = None,
        time: int | None = None,
        retrycount: int | None = None,
        force: bool = False,
        justid: bool = False,
    ) -> StreamEntries:
        """Take over pending entries for a consumer (spec 7.6).

        Args:
            consumername: The new owner; created if missing.
            min_idle_time: Take only entries that have been pending at least this many ms.
            message_ids: At least one ID. Those that are not pending are skipped.
            idle: Set the delivery time to this many ms ago instead of now.
            time: Set the delivery time to this Unix time in ms instead of now.
            retrycount: Set the delivery count. Without it the count grows by 1; with `justid` it stays.
            force: Also make entries of the stream pending that are not.
            justid: Return only the IDs.

        Returns:
            The claimed entries, `[(id, {field: value}), ...]`; with `justid` their IDs.

        Raises:
            DataError: `message_ids` is empty, or an option has the wrong type.
            ResponseError: There is no such key or group, the key holds no stream, or an ID is malformed.
        """
        if not isinstance(min_idle_time, int) or min_idle_time < 0:
            raise DataError("XCLAIM min_idle_time must be a non negative integer")
        if not isinstance(message_ids, list | tuple) or not message_ids:
            raise DataError(
                "XCLAIM message_ids must be a non empty list or tuple of message IDs to claim"
            )
        words: list[Any] = [b"XCLAIM", name, groupname, consumername, min_idle_time, *message_ids]
        for option, value in (("idle", idle), ("time", time), ("retrycount", retrycount)):
            if value is not None:
                if not isinstance(value, int):
                    raise DataError(f"XCLAIM {option} must be an integer")
                words += (option.upper(), value)
        for option, flag in (("force", force), ("justid", justid)):
            if flag:
                if not isinstance(flag, bool):
                    raise DataError(f"XCLAIM {option} must be a boolean")
                words.append(option.upper())
        if justid:
            return await self._call(shapes.texts, words)
        return await self._call(shapes.entries, words)

    async def xautoclaim(
        self,
        name: KeyT,
        groupname: GroupT,
        consumername: ConsumerT,
        min_idle_time: int,
        start_id: StreamIdT = "0-0",
        count: int | None = None,
        justid: bool = False,
    ) -> list[Any]:
        """Take over pending entries that have been idle, page by page (spec 7.7).

        Args:
            consumername: The new owner; created if missing.
            min_idle_time: Take only entries that have been pending at least this many ms.
            start_id: Where to begin: `0-0`, then the next start of the reply before.
            count: Claim at most this many entries; Redis's default is 100.
            justid: Return only the IDs, and do not count the delivery.

        Returns:
            `[next start, entries, deleted IDs]`: the start is `0-0` at the end; the deleted IDs were pending, their
            entries no longer exist, and they are pending no more. With `justid`, only the claimed IDs.

        Raises:
            DataError: `min_idle_time` or `count` is negative.
            ResponseError: There is no such key or group, the key holds no stream, or an ID or `count` is invalid.
        """
        if int(min_idle_time) < 0:
            raise DataError("XAUTOCLAIM min_idle_time must be a nonnegative integer")
        words: list[Any] = [b"XAUTOCLAIM", name, groupname, consumername, min_idle_time, start_id]
        if count is not None:
            if int(count) < 0:
                raise DataError("XAUTOCLAIM count must be a integer >= 0")
            words += (b"COUNT", count)
        if justid:
            return await self._call(shapes.autoclaim_justid, [*words, b"JUSTID"])
        return await self._call(shapes.autoclaim, words)

    async def xpending(self, name: KeyT, groupname: GroupT) -> dict[str, Any]:
        """Summary of a group's pending entries (spec 7.8).

        Returns:
            A dict: `pending` (how many), `min` and `max` (the lowest and the highest ID, None if there are none), and
            `consumers`, a list of `{"name": ..., "pending": ...}`.

        Raises:
            ResponseError: There is no such key or group, or the key holds no stream.
        """
        return await self._call(shapes.pending, [b"XPENDING", name, groupname])

    async def xpending_range(
        self,
        name: KeyT,
        groupname: GroupT,
        min: StreamIdT,
        max: StreamIdT,
        count: int,
        consumername: ConsumerT | None = None,
        idle: int | None = None,
    ) -> list[dict[str, Any]]:
        """List pending entries of a group (spec 7.8).

        Args:
            min: First ID, `-` = the lowest; as in `xrange`.
            max: Last ID, `+` = the highest; as in `xrange`.
            count: At most this many.
            consumername: Only entries of this consumer.
            idle: Only entries that have been pending at least this many ms.

        Returns:
            One dict per entry: `message_id`, `consumer`, `time_since_delivered` (ms), `times_delivered`.

        Raises:
            DataError: `min`, `max` or `count` is None, or a number is negative.
            ResponseError: There is no such key or group, the key holds no stream, or an ID is malformed.
        """
        if min is None or max is None or count is None:
            raise DataError("XPENDING must be provided with min, max and count parameters")
        words: list[Any] = [b"XPENDING", name, groupname]
        if idle is not None:
            if int(idle) < 0:
                raise DataError("XPENDING idle must be a integer >= 0")
            words += (b"IDLE", idle)
        if int(count) < 0:
            raise DataError("XPENDING count must be a integer >= 0")
        words += (min, max, count)
        if consumername:
            words.append(consumername)
        return await self._call(shapes.pending_range, words)

    # --- keys

    async def delete(self, *names: KeyT) -> int:
        """Delete keys (spec 14). Readers that are blocked on them in a group get an error.

        Returns:
            How many existed.

        Raises:
            ResponseError: No name is given.
        """
        return await self._call(shapes.integer, [b"DEL", *names])

    async def unlink(self, *names: KeyT) -> int:
        """Same as `delete` (spec 14).

        Returns:
            How many existed.

        Raises:
            ResponseError: No name is given.
        """
        return await self._call(shapes.integer, [b"UNLINK", *names])

    async def exists(self, *names: KeyT) -> int:
        """Count which of the names exist (spec 14).

        Returns:
            How many exist; a repeated name counts each time.

        Raises:
            ResponseError: No name is given.
        """
        return await self._call(shapes.integer, [b"EXISTS", *names])

    async def touch(self, *args: KeyT) -> int:
        """Count which of the keys exist, and mark them as used just now (spec 14).

        Returns:
            How many exist.

        Raises:
            ResponseError: No name is given.
        """
        return await self._call(shapes.integer, [b"TOUCH", *args])

    async def type(self, name: KeyT) -> TextT:
        """Type of a key: `stream`, `string` or `none` (spec 14)."""
        return await self._call(shapes.text, [b"TYPE", name])

    async def rename(self, src: KeyT, dst: KeyT) -> bool:
        """Rename a key with all it holds; a key `dst` is replaced (spec 14).

        Returns:
            True.

        Raises:
            ResponseError: There is no key `src`.
        """
        return await self._call(shapes.ok, [b"RENAME", src, dst])

    async def renamenx(self, src: KeyT, dst: KeyT) -> bool:
        """Rename a key unless `dst` exists (spec 14).

        Returns:
            Whether it was renamed.

        Raises:
            ResponseError: There is no key `src`.
        """
        return await self._call(shapes.boolean, [b"RENAMENX", src, dst])

    async def copy(
        self,
        source: str,
        destination: str,
        destination_db: str | None = None,
        replace: bool = False,
    ) -> bool:
        """Copy a key with all it holds, groups and expiry included (spec 14).

        Args:
            destination_db: Number of the target database; None = this one.
            replace: Replace a key `destination` that exists.

        Returns:
            Whether it was copied.

        Raises:
            ResponseError: Source and target are the same, or there is no such database.
        """
        words: list[Any] = [b"COPY", source, destination]
        if destination_db is not None:
            words += (b"DB", destination_db)
        if replace:
            words.append(b"REPLACE")
        return await self._call(shapes.boolean, words)

    async def dump(self, name: KeyT) -> bytes | None:
        """A key's value as a payload that `restore` and a Redis take (spec 14).

        Returns:
            The payload, never decoded; None if the key does not exist. Redis 7.0 loads it, unless the value has
            something that only a later version keeps.
        """
        return await self._call(shapes.payload, [b"DUMP", name])

    async def restore(
        self,
        name: KeyT,
        ttl: int,
        value: bytes,
        replace: bool = False,
        absttl: bool = False,
        idletime: int | None = None,
        frequency: int | None = None,
    ) -> TextT:
        """Store the value of a payload that `dump` or a Redis has made (spec 14).

        Args:
            ttl: Milliseconds until the key expires; 0 = never. With `absttl` the unix time in milliseconds at which it
                does; if that has passed, the key does not exist afterwards.
            value: The payload.
            replace: Replace a key that exists.
            idletime: Seconds that OBJECT IDLETIME says from then on.
            frequency: 0 to 255, as in Redis; it has no effect.

        Returns:
            "OK".

        Raises:
            ResponseError: The key exists; the payload is damaged, of a newer version, or holds a value of another type
                than a stream or a string; `ttl` or another number is out of range.
        """
        words: list[Any] = [b"RESTORE", name, ttl, value]
        if replace:
            words.append(b"REPLACE")
        if absttl:
            words.append(b"ABSTTL")
        if idletime is not None:
            words += (b"IDLETIME", idletime)
        if frequency is not None:
            words += (b"FREQ", frequency)
        return await self._call(shapes.text, words)

    async def move(self, name: KeyT, db: int) -> bool:
        """Move a key to another database (spec 14).

        Returns:
            Whether it was moved. False if it does not exist here or exists there.

        Raises:
            ResponseError: It is the same database, or there is no such database.
        """
        return await self._call(shapes.boolean, [b"MOVE", name, db])

    async def swapdb(self, first: int, second: int) -> bool:
        """Swap the contents of two databases (spec 14).

        Returns:
            True.

        Raises:
            ResponseError: There is no such database.
        """
        return await self._call(shapes.ok, [b"SWAPDB", first, second])

    async def expire(
        self,
        name: KeyT,
        time: ExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool:
        """Let a key expire after a time (spec 14).

        Args:
            time: Seconds, or a timedelta. 0 or less deletes the key.
            nx: Only if the key does not expire yet.
            xx: Only if the key expires already.
            gt: Only if the new expiry is later.
            lt: Only if the new expiry is earlier.

        Returns:
            Whether the expiry was set. False if the key does not exist or a condition failed.

        Raises:
            ResponseError: Conditions exclude each other, or the time is out of range.
        """
        words: list[Any] = [b"EXPIRE", name, seconds(time), *conditions(nx, xx, gt, lt)]
        return await self._call(shapes.boolean, words)

    async def pexpire(
        self,
        name: KeyT,
        time: ExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool:
        """Let a key expire after a time in ms (spec 14).

        Args:
            time: Milliseconds, or a timedelta. 0 or less deletes the key.
            nx: Only if the key does not expire yet.
            xx: Only if the key expires already.
            gt: Only if the new expiry is later.
            lt: Only if the new expiry is earlier.

        Returns:
            Whether the expiry was set. False if the key does not exist or a condition failed.

        Raises:
            ResponseError: Conditions exclude each other, or the time is out of range.
        """
        words: list[Any] = [b"PEXPIRE", name, milliseconds(time), *conditions(nx, xx, gt, lt)]
        return await self._call(shapes.boolean, words)

    async def expireat(
        self,
        name: KeyT,
        when: AbsExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool:
        """Let a key expire at a moment (spec 14).

        Args:
            when: Unix time in seconds, or a datetime. A moment in the past deletes the key.
            nx: Only if the key does not expire yet.
            xx: Only if the key expires already.
            gt: Only if the new expiry is later.
            lt: Only if the new expiry is earlier.

        Returns:
            Whether the expiry was set. False if the key does not exist or a condition failed.

        Raises:
            ResponseError: Conditions exclude each other, or the time is out of range.
        """
        words: list[Any] = [b"EXPIREAT", name, unix_seconds(when), *conditions(nx, xx, gt, lt)]
        return await self._call(shapes.boolean, words)

    async def pexpireat(
        self,
        name: KeyT,
        when: AbsExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool:
        """Let a key expire at a moment in ms (spec 14).

        Args:
            when: Unix time in ms, or a datetime. A moment in the past deletes the key.
            nx: Only if the key does not expire yet.
            xx: Only if the key expires already.
            gt: Only if the new expiry is later.
            lt: Only if the new expiry is earlier.

        Returns:
            Whether the expiry was set. False if the key does not exist or a condition failed.

        Raises:
            ResponseError: Conditions exclude each other, or the time is out of range.
        """
        words: list[Any] = [
            b"PEXPIREAT",
            name,
            unix_milliseconds(when),
            *conditions(nx, xx, gt, lt),
        ]
        return await self._call(shapes.boolean, words)

    async def ttl(self, name: KeyT) -> int:
        """Seconds until a key expires; -1 if it does not expire, -2 if it does not exist (spec 14)."""
        return await self._call(shapes.integer, [b"TTL", name])

    async def pttl(self, name: KeyT) -> int:
        """Milliseconds until a key expires; -1 if it does not expire, -2 if it does not exist (spec 14)."""
        return await self._call(shapes.integer, [b"PTTL", name])

    async def expiretime(self, key: str) -> int:
        """Unix time in seconds at which a key expires; -1 if it does not expire, -2 if it does not exist (spec 14)."""
        return await self._call(shapes.integer, [b"EXPIRETIME", key])

    async def pexpiretime(self, key: str) -> int:
        """Unix time in ms at which a key expires; -1 if it does not expire, -2 if it does not exist (spec 14)."""
        return await self._call(shapes.integer, [b"PEXPIRETIME", key])

    async def persist(self, name: KeyT) -> bool:
        """Remove a key's expiry (spec 14).

        Returns:
            Whether it had one.
        """
        return await self._call(shapes.boolean, [b"PERSIST", name])

    async def keys(self, pattern: PatternT = "*") -> list[TextT]:
        """The names of all keys that match a glob pattern, in no order (spec 14). `scan_iter` needs less memory."""
        return await self._call(shapes.texts, [b"KEYS", pattern])

    async def scan(
        self,
        cursor: int = 0,
        match: PatternT | None = None,
        count: int | None = None,
        _type: str | None = None,
    ) -> tuple[int, list[TextT]]:
        """One step of an iteration over the names of keys (spec 14). `scan_iter` makes all steps.

        Args:
            cursor: 0 at the start, then the cursor of the step before.
            match: Only names that match this glob pattern.
            count: Hint for the size of the step; Redis's default is 10.
            _type: Only keys of this type, `stream` or `string`.

        Returns:
            `(next cursor, names)`. The next cursor is 0 at the end. A step may have no names.

        Raises:
            ResponseError: The cursor, `count` or the type is invalid.
        """
        words: list[Any] = [b"SCAN", cursor]
        for word, value in ((b"MATCH", match), (b"COUNT", count), (b"TYPE", _type)):
            if value is not None:
                words += (word, value)
        return await self._call(shapes.cursor, words)

    async def randomkey(self) -> TextT | None:
        """The name of a random key; None if there is none (spec 14)."""
        return await self._call(shapes.optional_text, [b"RANDOMKEY"])

    async def dbsize(self) -> int:
        """Number of keys in this database (spec 14)."""
        return await self._call(shapes.integer, [b"DBSIZE"])

    async def flushdb(self, asynchronous: bool = False) -> bool:
        """Delete every key of this database (spec 14). `asynchronous` makes no difference.

        Returns:
            True.
        """
        return await self._call(shapes.ok, [b"FLUSHDB", *([b"ASYNC"] if asynchronous else [])])

    async def flushall(self, asynchronous: bool = False) -> bool:
        """Delete every key of every database (spec 14). `asynchronous` makes no difference.

        Returns:
            True.
        """
        return await self._call(shapes.ok, [b"FLUSHALL", *([b"ASYNC"] if asynchronous else [])])

    async def object(self, infotype: str, key: KeyT) -> Any:
        """Look at how a key is stored (spec 14).

        Args:
            infotype: `ENCODING`, `REFCOUNT` (always 1) or `IDLETIME` (seconds since the last use; lost by a restart).

        Returns:
            A text or a number; None if the key does not exist.

        Raises:
            ResponseError: `infotype` is unknown, or `FREQ`, which needs a memory policy that tidelog does not have.
        """
        return await self._call(shapes.raw, [b"OBJECT", infotype, key])

    async def memory_usage(self, key: KeyT, samples: int | None = None) -> int | None:
        """Approximate bytes that a key takes in memory; None if it does not exist (spec 14).

        Raises:
            ResponseError: `samples` is negative.
        """
        words: list[Any] = [b"MEMORY", b"USAGE", key]
        if isinstance(samples, int):
            words += (b"SAMPLES", samples)
        return await self._call(shapes.optional_integer, words)

    # --- strings

    async def get(self, name: KeyT) -> TextT | None:
        """The value of a string; None if the key does not exist.

        Raises:
            ResponseError: The key holds no string.
        """
        return await self._call(shapes.optional_text, [b"GET", name])

    async def set(
        self,
        name: KeyT,
        value: EncodableT,
        ex: ExpiryT | None = None,
        px: ExpiryT | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
        get: bool = False,
        exat: AbsExpiryT | None = None,
        pxat: AbsExpiryT | None = None,
        ifeq: Text | None = None,
        ifne: Text | None = None,
        ifdeq: str | None = None,
        ifdne: str | None = None,
    ) -> Any:
        """Set a string, whatever the key held before.

        Args:
            ex: Expire after seconds, or a timedelta.
            px: Expire after ms, or a timedelta.
            nx: Only if the key does not exist.
            xx: Only if the key exists.
            keepttl: Keep the present expiry. Without it and the other times the string does not expire.
            get: Return the old value.
            exat: Expire at a Unix time in seconds, or a datetime.
            pxat: Expire at a Unix time in ms, or a datetime.
            ifeq: Only if the present value is this one. Since Redis 8.4.
            ifne: Only if the present value is not this one. Since Redis 8.4.
            ifdeq: Not supported; refused with ResponseError.
            ifdne: Not supported; refused with ResponseError.

        Returns:
            True, or None if a condition failed. With `get`, the old value or None.

        Raises:
            DataError: Two times or two conditions are given.
            ResponseError: A time is out of range, or the old value is asked for or compared and is no string.
        """
        times = [t for t in (ex, px, exat, pxat) if t is not None]
        if len(times) + bool(keepttl) > 1:
            raise DataError(
                "``ex``, ``px``, ``exat``, ``pxat``, and ``keepttl`` are mutually exclusive."
            )
        values = ((b"IFEQ", ifeq), (b"IFNE", ifne), (b"IFDEQ", ifdeq), (b"IFDNE", ifdne))
        compared = [(word, other) for word, other in values if other is not None]
        if len(compared) + bool(nx) + bool(xx) > 1:
            raise DataError(
                "``nx``, ``xx``, ``ifeq``, ``ifne``, ``ifdeq``, ``ifdne`` are mutually exclusive."
            )
        words: list[Any] = [b"SET", name, value]
        if nx or xx:
            words.append(b"NX" if nx else b"XX")
        for pair in compared:
            words += pair
        if get:
            words.append(b"GET")
        if ex is not None:
            words += (b"EX", seconds(ex))
        elif px is not None:
            words += (b"PX", milliseconds(px))
        elif exat is not None:
            words += (b"EXAT", unix_seconds(exat))
        elif pxat is not None:
            words += (b"PXAT", unix_milliseconds(pxat))
        if keepttl:
            words.append(b"KEEPTTL")
        if get:
            return await self._call(shapes.optional_text, words)
        return await self._call(shapes.set_result, words)

    async def setnx(self, name: KeyT, value: EncodableT) -> bool:
        """Set a string unless the key exists.

        Returns:
            Whether it was set.
        """
        return await self._call(shapes.boolean, [b"SETNX", name, value])

    async def setex(self, name: KeyT, time: ExpiryT, value: EncodableT) -> bool:
        """Set a string that expires.

        Args:
            time: Seconds, or a timedelta.

        Returns:
            True.

        Raises:
            ResponseError: The time is not positive or out of range.
        """
        return await self._call(shapes.ok, [b"SETEX", name, seconds(time), value])

    async def psetex(self, name: KeyT, time_ms: ExpiryT, value: EncodableT) -> bool:
        """Set a string that expires.

        Args:
            time_ms: Milliseconds, or a timedelta.

        Returns:
            True.

        Raises:
            ResponseError: The time is not positive or out of range.
        """
        return await self._call(shapes.ok, [b"PSETEX", name, milliseconds(time_ms), value])

    async def getset(self, name: KeyT, value: EncodableT) -> TextT | None:
        """Set a string, without expiry.

        Returns:
            The old value; None if the key did not exist.

        Raises:
            ResponseError: The key holds no string.
        """
        return await self._call(shapes.optional_text, [b"GETSET", name, value])

    async def getex(
        self,
        name: KeyT,
        ex: ExpiryT | None = None,
        px: ExpiryT | None = None,
        exat: AbsExpiryT | None = None,
        pxat: AbsExpiryT | None = None,
        persist: bool = False,
    ) -> TextT | None:
        """The value of a string, and set its expiry.

        Args:
            ex: Expire after seconds, or a timedelta.
            px: Expire after ms, or a timedelta.
            exat: Expire at a Unix time in seconds, or a datetime.
            pxat: Expire at a Unix time in ms, or a datetime.
            persist: Remove the expiry.

        Returns:
            The value; None if the key does not exist.

        Raises:
            DataError: Two of the options are given.
            ResponseError: The key holds no string, or a time is out of range.
        """
        times = [t for t in (ex, px, exat, pxat) if t is not None]
        if len(times) + bool(persist) > 1:
            raise DataError(
                "``ex``, ``px``, ``exat``, ``pxat``, and ``persist`` are mutually exclusive."
            )
        words: list[Any] = [b"GETEX", name]
        if ex is not None:
            words += (b"EX", seconds(ex))
        elif px is not None:
            words += (b"PX", milliseconds(px))
        elif exat is not None:
            words += (b"EXAT", unix_seconds(exat))
        elif pxat is not None:
            words += (b"PXAT", unix_milliseconds(pxat))
        if persist:
            words.append(b"PERSIST")
        return await self._call(shapes.optional_text, words)

    async def getdel(self, name: KeyT) -> TextT | None:
        """Delete a string.

        Returns:
            Its value; None if the key did not exist.

        Raises:
            ResponseError: The key holds no string.
        """
        return await self._call(shapes.optional_text, [b"GETDEL", name])

    async def mget(self, keys: KeyT | Iterable[KeyT], *args: EncodableT) -> list[TextT | None]:
        """The values of several strings.

        Returns:
            One value per key; None for a key that does not exist or holds no string.

        Raises:
            ResponseError: No key is given.
        """
        return await self._call(shapes.optional_texts, [b"MGET", *several(keys, args)])

    async def mset(self, mapping: Mapping[Any, EncodableT]) -> bool:
        """Set several strings as one unit, without expiry.

        Returns:
            True.

        Raises:
            ResponseError: `mapping` is empty.
        """
        words: list[Any] = [b"MSET"]
        for pair in mapping.items():
            words += pair
        return await self._call(shapes.ok, words)

    async def msetnx(self, mapping: Mapping[Any, EncodableT]) -> bool:
        """Set several strings as one unit, unless one of the keys exists.

        Returns:
            Whether they were set.

        Raises:
            ResponseError: `mapping` is empty.
        """
        words: list[Any] = [b"MSETNX"]
        for pair in mapping.items():
            words += pair
        return await self._call(shapes.boolean, words)

    async def incrby(self, name: KeyT, amount: int = 1) -> int:
        """Add to a string that holds an integer; a missing key counts as 0.

        Returns:
            The new value.

        Raises:
            ResponseError: The key holds no string, its value is no integer, or the result exceeds 64 bits.
        """
        return await self._call(shapes.integer, [b"INCRBY", name, amount])

    async def incr(self, name: KeyT, amount: int = 1) -> int:
        """Same as `incrby`.

        Returns:
            The new value.

        Raises:
            ResponseError: The key holds no string, its value is no integer, or the result exceeds 64 bits.
        """
        return await self._call(shapes.integer, [b"INCRBY", name, amount])

    async def decrby(self, name: KeyT, amount: int = 1) -> int:
        """Subtract from a string that holds an integer; a missing key counts as 0.

        Returns:
            The new value.

        Raises:
            ResponseError: The key holds no string, its value is no integer, or the result exceeds 64 bits.
        """
        return await self._call(shapes.integer, [b"DECRBY", name, amount])

    async def decr(self, name: KeyT, amount: int = 1) -> int:
        """Same as `decrby`.

        Returns:
            The new value.

        Raises:
            ResponseError: The key holds no string, its value is no integer, or the result exceeds 64 bits.
        """
        return await self._call(shapes.integer, [b"DECRBY", name, amount])

    async def append(self, key: KeyT, value: EncodableT) -> int:
        """Append to a string; a missing key counts as empty.

        Returns:
            The new length in bytes.

        Raises:
            ResponseError: The key holds no string, or the result is longer than 512 MiB.
        """
        return await self._call(shapes.integer, [b"APPEND", key, value])

    async def strlen(self, name: KeyT) -> int:
        """Length of a string in bytes; 0 if the key does not exist.

        Raises:
            ResponseError: The key holds no string.
        """
        return await self._call(shapes.integer, [b"STRLEN", name])

    async def echo(self, value: EncodableT) -> TextT:
        """The value itself, as bytes or str (spec 16.1)."""
        return await self._call(shapes.text, [b"ECHO", value])
