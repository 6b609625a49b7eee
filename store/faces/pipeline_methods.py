"""The methods of a pipeline, sync and asyncio.

Generated from methods.py by tools/dev/make_faces.py: change that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tidelog.store.errors import DataError
from tidelog.store.faces import shapes
from tidelog.store.faces.methods import (
    RefPolicy,
    T,
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
from tidelog.store.faces.shapes import Shape
from tidelog.store.faces.types import (
    AbsExpiryT,
    ConsumerT,
    EncodableT,
    ExpiryT,
    GroupT,
    KeyT,
    PatternT,
    StreamIdT,
    Text,
)


class PipelineMethods:
    """Streams, keys and strings, one method per command."""

    def _call(self, shape: Shape[T], words: list[Any]) -> Any:
        """Run one command and shape its reply. Raises ResponseError, and the store errors that DURABILITY.md lists."""
        raise NotImplementedError

    def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> Any:
        """XADD without options."""
        raise NotImplementedError

    # --- streams: writing

    def xadd(
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
    ) -> Any:
        """Append one entry. Returns its ID; None with `nomkstream` if there is no stream.

        fields      dict with at least one field; names and values are bytes, str (stored as UTF-8), int or float
        id          `*` = made from the store's clock, `ms-*`, or a whole ID above the last one
        maxlen      trim to about this many entries; to exactly as many with `approximate=False`
        minid       trim entries with IDs below this one
        limit       how many entries an approximate trim may remove
        ref_policy  what a trim does with pending references: KEEPREF, DELREF, ACKED
        idmp        (producer, the producer's ID of the entry): an entry added before is not added again, and its ID is
                    returned. `idmpauto` is the producer alone; the ID is then computed from the fields

        Raises DataError (arguments), ResponseError (Redis's refusals), OutOfSpace and UnitTooLarge (nothing
        changed), OutcomeUnknown (a failed fsync).
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
            return self._add(name, fields)
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
        return self._call(shapes.optional_text, words)

    def xtrim(
        self,
        name: KeyT,
        maxlen: int | None = None,
        approximate: bool = True,
        minid: StreamIdT | None = None,
        limit: int | None = None,
        ref_policy: RefPolicy | None = None,
    ) -> Any:
        """Remove the oldest entries, as with the trim options of `xadd`. Returns how many were removed.

        Raises DataError without `maxlen` or `minid`.
        """
        if maxlen is None and minid is None:
            raise DataError("One of ``maxlen`` or ``minid`` must be specified")
        known_policy("XTRIM", ref_policy)
        words: list[Any] = [b"XTRIM", name, *trimming("XTRIM", maxlen, approximate, minid, limit)]
        if ref_policy is not None:
            words.append(ref_policy)
        return self._call(shapes.integer, words)

    def xdel(self, name: KeyT, *ids: StreamIdT) -> Any:
        """Delete entries. Returns how many existed."""
        return self._call(shapes.integer, [b"XDEL", name, *ids])

    def xdelex(self, name: KeyT, *ids: StreamIdT, ref_policy: RefPolicy = "KEEPREF") -> Any:
        """Delete entries under a reference policy. Returns per ID: 1 deleted, -1 missing, 2 kept for a group.

        KEEPREF keeps pending entries of deleted entries, DELREF removes them too, ACKED deletes only entries that every
        group has read and acknowledged.
        """
        if not ids:
            raise DataError("XDELEX requires at least one message ID")
        known_policy("XDELEX", ref_policy)
        return self._call(shapes.integers, [b"XDELEX", name, ref_policy, b"IDS", len(ids), *ids])

    def xcfgset(
        self, name: KeyT, idmp_duration: int | None = None, idmp_maxsize: int | None = None
    ) -> Any:
        """Set for how many seconds (1 to 300) and how many idempotency IDs per producer (1 to 10,000) a stream
        remembers.
        """
        if idmp_duration is None and idmp_maxsize is None:
            raise DataError("XCFGSET requires at least one of idmp_duration or idmp_maxsize")
        words: list[Any] = [b"XCFGSET", name]
        if idmp_duration is not None:
            if not isinstance(idmp_duration, int) or not 1 <= idmp_duration <= 300:
                raise DataError("XCFGSET idmp_duration must be an integer between 1 and 300")
            words += (b"IDMP-DURATION", idmp_duration)
        if idmp_maxsize is not None:
            if not isinstance(idmp_maxsize, int) or not 1 <= idmp_maxsize <= 1_000_000:
                raise DataError("XCFGSET idmp_maxsize must be an integer between 1 and 1,000,000")
            words += (b"IDMP-MAXSIZE", idmp_maxsize)
        return self._call(shapes.text, words)

    # --- streams: reading

    def xlen(self, name: KeyT) -> Any:
        """Number of entries."""
        return self._call(shapes.integer, [b"XLEN", name])

    def xrange(
        self, name: KeyT, min: StreamIdT = "-", max: StreamIdT = "+", count: int | None = None
    ) -> Any:
        """Entries in ascending order, `[(id, {field: value}), ...]`."""
        positive("XRANGE", "count", count)
        words: list[Any] = [b"XRANGE", name, min, max]
        if count is not None:
            words += (b"COUNT", count)
        return self._call(shapes.entries, words)

    def xrevrange(
        self, name: KeyT, max: StreamIdT = "+", min: StreamIdT = "-", count: int | None = None
    ) -> Any:
        """Entries in descending order, `[(id, {field: value}), ...]`."""
        positive("XREVRANGE", "count", count)
        words: list[Any] = [b"XREVRANGE", name, max, min]
        if count is not None:
            words += (b"COUNT", count)
        return self._call(shapes.entries, words)

    def xread(
        self,
        streams: dict[Any, Any],
        count: int | None = None,
        block: int | None = None,
        max_count: int | None = None,
        max_size: int | None = None,
    ) -> Any:
        """Entries after the given IDs: `[[key, entries], ...]`, or `[]`. An entry is `(id, {field: value})`.

        streams     {key: ID}; `$` = only entries added from now on, `+` = the last entry, 0 = all
        count       at most this many entries per stream
        block       wait up to this many ms for an entry, 0 = for ever; None = do not wait
        max_count   at most this many entries of all streams together
        max_size    add no further entry once the reply has reached this many bytes; at least one is returned
        """
        words: list[Any] = [b"XREAD", *read_limits("XREAD", count, block, max_count, max_size)]
        if not isinstance(streams, dict) or not streams:
            raise DataError("XREAD streams must be a non empty dict")
        return self._call(shapes.streams, [*words, b"STREAMS", *streams.keys(), *streams.values()])

    def xinfo_stream(self, name: KeyT, full: bool = False) -> Any:
        """XINFO STREAM; with `full`, XINFO STREAM FULL."""
        if full:
            return self._call(shapes.stream_info_full, [b"XINFO", b"STREAM", name, b"FULL"])
        return self._call(shapes.stream_info, [b"XINFO", b"STREAM", name])

    def xinfo_groups(self, name: KeyT) -> Any:
        """One dict per consumer group: name, consumers, pending, last-delivered-id, entries-read, lag."""
        return self._call(shapes.mappings, [b"XINFO", b"GROUPS", name])

    def xinfo_consumers(self, name: KeyT, groupname: GroupT) -> Any:
        """One dict per consumer of a group: name, pending, idle, inactive (both in ms)."""
        return self._call(shapes.mappings, [b"XINFO", b"CONSUMERS", name, groupname])

    # --- consumer groups

    def xgroup_create(
        self,
        name: KeyT,
        groupname: GroupT,
        id: StreamIdT = "$",
        mkstream: bool = False,
        entries_read: int | None = None,
    ) -> Any:
        """Create a group that starts after `id`. With `mkstream`, create the stream too if it is missing."""
        words: list[Any] = [b"XGROUP", b"CREATE", name, groupname, id]
        if mkstream:
            words.append(b"MKSTREAM")
        if entries_read is not None:
            words += (b"ENTRIESREAD", entries_read)
        return self._call(shapes.ok, words)

    def xgroup_setid(
        self, name: KeyT, groupname: GroupT, id: StreamIdT, entries_read: int | None = None
    ) -> Any:
        """Set a group's last delivered ID."""
        words: list[Any] = [b"XGROUP", b"SETID", name, groupname, id]
        if entries_read is not None:
            words += (b"ENTRIESREAD", entries_read)
        return self._call(shapes.ok, words)

    def xgroup_destroy(self, name: KeyT, groupname: GroupT) -> Any:
        """Destroy a group. Returns whether it existed."""
        return self._call(shapes.boolean, [b"XGROUP", b"DESTROY", name, groupname])

    def xgroup_createconsumer(self, name: KeyT, groupname: GroupT, consumername: ConsumerT) -> Any:
        """Create a consumer. Returns 1 if it is new, 0 if it existed."""
        words: list[Any] = [b"XGROUP", b"CREATECONSUMER", name, groupname, consumername]
        return self._call(shapes.integer, words)

    def xgroup_delconsumer(self, name: KeyT, groupname: GroupT, consumername: ConsumerT) -> Any:
        """Delete a consumer and its pending entries. Returns how many entries were pending."""
        words: list[Any] = [b"XGROUP", b"DELCONSUMER", name, groupname, consumername]
        return self._call(shapes.integer, words)

    def xreadgroup(
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
    ) -> Any:
        """Read as a consumer of a group, new entries (`>`) or its own pending ones: `[[key, entries], ...]`.

        streams     {key: ID}; `>` = entries not delivered yet; an ID = this consumer's pending entries above it
        count       at most this many entries per stream
        block       wait up to this many ms for new entries, 0 = for ever; None = do not wait
        noack       entries count as acknowledged when delivered; nothing becomes pending

        Delivered entries stay pending for this consumer until `xack`. With `claim_min_idle_time` (ms), entries that
        were idle that long with any consumer come first, and an entry is `(id, fields, idle, deliveries)`.
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
        return self._call(shapes.streams, words)

    def xack(self, name: KeyT, groupname: GroupT, *ids: StreamIdT) -> Any:
        """Acknowledge entries. Returns how many were pending."""
        return self._call(shapes.integer, [b"XACK", name, groupname, *ids])

    def xackdel(
        self,
        name: KeyT,
        groupname: GroupT,
        *ids: StreamIdT,
        ref_policy: RefPolicy = "KEEPREF",
    ) -> Any:
        """Acknowledge and delete entries. Returns per ID: 1 deleted, -1 not pending, 2 acknowledged and kept."""
        if not ids:
            raise DataError("XACKDEL requires at least one message ID")
        known_policy("XACKDEL", ref_policy)
        words: list[Any] = [b"XACKDEL", name, groupname, ref_policy, b"IDS", len(ids), *ids]
        return self._call(shapes.integers, words)

    def xnack(
        self,
        name: KeyT,
        groupname: GroupT,
        mode: Literal["SILENT", "FAIL", "FATAL"],
        *ids: StreamIdT,
        retrycount: int | None = None,
        force: bool = False,
    ) -> Any:
        """Release pending entries to the group for redelivery (spec 7.5). Returns how many.

        mode        what happens to the delivery count: SILENT -1, FAIL unchanged, FATAL set to the maximum
        retrycount  set the delivery count to this instead
        force       make entries of the stream pending that are not
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
        return self._call(shapes.integer, words)

    def xclaim(
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
    ) -> Any:
        """Transfer pending entries to a consumer (spec 7.6). Returns the entries, or their IDs with `justid`.

        min_idle_time  only entries that were idle at least this long, ms
        idle, time     set the delivery time: ms ago, or Unix ms
        retrycount     set the delivery count; without it the count grows by 1, with `justid` not at all
        force          make entries of the stream pending that are not
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
            return self._call(shapes.texts, words)
        return self._call(shapes.entries, words)

    def xautoclaim(
        self,
        name: KeyT,
        groupname: GroupT,
        consumername: ConsumerT,
        min_idle_time: int,
        start_id: StreamIdT = "0-0",
        count: int | None = None,
        justid: bool = False,
    ) -> Any:
        """Transfer entries idle for `min_idle_time` ms. Returns `[next start, entries, deleted IDs]`; with `justid`,
        IDs.
        """
        if int(min_idle_time) < 0:
            raise DataError("XAUTOCLAIM min_idle_time must be a nonnegative integer")
        words: list[Any] = [b"XAUTOCLAIM", name, groupname, consumername, min_idle_time, start_id]
        if count is not None:
            if int(count) < 0:
                raise DataError("XAUTOCLAIM count must be a integer >= 0")
            words += (b"COUNT", count)
        if justid:
            return self._call(shapes.autoclaim_justid, [*words, b"JUSTID"])
        return self._call(shapes.autoclaim, words)

    def xpending(self, name: KeyT, groupname: GroupT) -> Any:
        """Summary of a group's pending entries: a dict with pending, min, max, consumers."""
        return self._call(shapes.pending, [b"XPENDING", name, groupname])

    def xpending_range(
        self,
        name: KeyT,
        groupname: GroupT,
        min: StreamIdT,
        max: StreamIdT,
        count: int,
        consumername: ConsumerT | None = None,
        idle: int | None = None,
    ) -> Any:
        """One dict per pending entry: message_id, consumer, time_since_delivered, times_delivered."""
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
        return self._call(shapes.pending_range, words)

    # --- keys

    def delete(self, *names: KeyT) -> Any:
        """Delete keys. Returns how many existed."""
        return self._call(shapes.integer, [b"DEL", *names])

    def unlink(self, *names: KeyT) -> Any:
        """Same as `delete`."""
        return self._call(shapes.integer, [b"UNLINK", *names])

    def exists(self, *names: KeyT) -> Any:
        """How many of the names exist; a repeated name counts each time."""
        return self._call(shapes.integer, [b"EXISTS", *names])

    def touch(self, *args: KeyT) -> Any:
        """How many of the keys exist."""
        return self._call(shapes.integer, [b"TOUCH", *args])

    def type(self, name: KeyT) -> Any:
        """`stream`, `string` or `none`."""
        return self._call(shapes.text, [b"TYPE", name])

    def rename(self, src: KeyT, dst: KeyT) -> Any:
        """Rename a key, replacing `dst`."""
        return self._call(shapes.ok, [b"RENAME", src, dst])

    def renamenx(self, src: KeyT, dst: KeyT) -> Any:
        """Rename a key unless `dst` exists."""
        return self._call(shapes.boolean, [b"RENAMENX", src, dst])

    def copy(
        self,
        source: str,
        destination: str,
        destination_db: str | None = None,
        replace: bool = False,
    ) -> Any:
        """Copy a key. Returns whether it was copied."""
        words: list[Any] = [b"COPY", source, destination]
        if destination_db is not None:
            words += (b"DB", destination_db)
        if replace:
            words.append(b"REPLACE")
        return self._call(shapes.boolean, words)

    def move(self, name: KeyT, db: int) -> Any:
        """Move a key to another database. Returns whether it was moved."""
        return self._call(shapes.boolean, [b"MOVE", name, db])

    def swapdb(self, first: int, second: int) -> Any:
        """Swap two databases."""
        return self._call(shapes.ok, [b"SWAPDB", first, second])

    def expire(
        self,
        name: KeyT,
        time: ExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Any:
        """Make a key expire after `time` (seconds or a timedelta). Returns whether the expiry was set."""
        words: list[Any] = [b"EXPIRE", name, seconds(time), *conditions(nx, xx, gt, lt)]
        return self._call(shapes.boolean, words)

    def pexpire(
        self,
        name: KeyT,
        time: ExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Any:
        """Make a key expire after `time` (milliseconds or a timedelta). Returns whether the expiry was set."""
        words: list[Any] = [b"PEXPIRE", name, milliseconds(time), *conditions(nx, xx, gt, lt)]
        return self._call(shapes.boolean, words)

    def expireat(
        self,
        name: KeyT,
        when: AbsExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Any:
        """Make a key expire at a Unix time in seconds or a datetime. Returns whether the expiry was set."""
        words: list[Any] = [b"EXPIREAT", name, unix_seconds(when), *conditions(nx, xx, gt, lt)]
        return self._call(shapes.boolean, words)

    def pexpireat(
        self,
        name: KeyT,
        when: AbsExpiryT,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Any:
        """Make a key expire at a Unix time in milliseconds or a datetime. Returns whether the expiry was set."""
        words: list[Any] = [
            b"PEXPIREAT",
            name,
            unix_milliseconds(when),
            *conditions(nx, xx, gt, lt),
        ]
        return self._call(shapes.boolean, words)

    def ttl(self, name: KeyT) -> Any:
        """Seconds to live; -1 if the key does not expire, -2 if it does not exist."""
        return self._call(shapes.integer, [b"TTL", name])

    def pttl(self, name: KeyT) -> Any:
        """Milliseconds to live; -1 if the key does not expire, -2 if it does not exist."""
        return self._call(shapes.integer, [b"PTTL", name])

    def expiretime(self, key: str) -> Any:
        """Unix seconds at which the key expires; -1 if it does not expire, -2 if it does not exist."""
        return self._call(shapes.integer, [b"EXPIRETIME", key])

    def pexpiretime(self, key: str) -> Any:
        """Unix milliseconds at which the key expires; -1 if it does not expire, -2 if it does not exist."""
        return self._call(shapes.integer, [b"PEXPIRETIME", key])

    def persist(self, name: KeyT) -> Any:
        """Remove a key's expiry. Returns whether it had one."""
        return self._call(shapes.boolean, [b"PERSIST", name])

    def keys(self, pattern: PatternT = "*") -> Any:
        """Names that match a glob pattern."""
        return self._call(shapes.texts, [b"KEYS", pattern])

    def scan(
        self,
        cursor: int = 0,
        match: PatternT | None = None,
        count: int | None = None,
        _type: str | None = None,
    ) -> Any:
        """One step over the names of the keys: `(next cursor, names)`. The cursor is 0 at the end."""
        words: list[Any] = [b"SCAN", cursor]
        for word, value in ((b"MATCH", match), (b"COUNT", count), (b"TYPE", _type)):
            if value is not None:
                words += (word, value)
        return self._call(shapes.cursor, words)

    def randomkey(self) -> Any:
        """The name of a random key, or None if there is none."""
        return self._call(shapes.optional_text, [b"RANDOMKEY"])

    def dbsize(self) -> Any:
        """Number of keys."""
        return self._call(shapes.integer, [b"DBSIZE"])

    def flushdb(self, asynchronous: bool = False) -> Any:
        """Delete every key of this database."""
        return self._call(shapes.ok, [b"FLUSHDB", *([b"ASYNC"] if asynchronous else [])])

    def flushall(self, asynchronous: bool = False) -> Any:
        """Delete every key of every database."""
        return self._call(shapes.ok, [b"FLUSHALL", *([b"ASYNC"] if asynchronous else [])])

    def object(self, infotype: str, key: KeyT) -> Any:
        """OBJECT ENCODING, IDLETIME, FREQ or REFCOUNT of a key."""
        return self._call(shapes.raw, [b"OBJECT", infotype, key])

    def memory_usage(self, key: KeyT, samples: int | None = None) -> Any:
        """Approximate bytes that a key takes; None if it does not exist."""
        words: list[Any] = [b"MEMORY", b"USAGE", key]
        if isinstance(samples, int):
            words += (b"SAMPLES", samples)
        return self._call(shapes.optional_integer, words)

    # --- strings

    def get(self, name: KeyT) -> Any:
        """The value of a string, or None."""
        return self._call(shapes.optional_text, [b"GET", name])

    def set(
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
        """Set a string. Returns True, or None if a condition failed; with `get`, the old value or None.

        ex, px, exat, pxat  expire after seconds or ms (or a timedelta), or at Unix seconds or ms (or a datetime)
        keepttl             keep the present expiry
        nx, xx              only if the key does not exist, or only if it does
        ifeq, ifne          only if the value is, or is not, this one; `ifdeq`, `ifdne` compare its digest
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
            return self._call(shapes.optional_text, words)
        return self._call(shapes.set_result, words)

    def setnx(self, name: KeyT, value: EncodableT) -> Any:
        """Set a string unless the key exists. Returns whether it was set."""
        return self._call(shapes.boolean, [b"SETNX", name, value])

    def setex(self, name: KeyT, time: ExpiryT, value: EncodableT) -> Any:
        """Set a string that expires after `time` (seconds or a timedelta)."""
        return self._call(shapes.ok, [b"SETEX", name, seconds(time), value])

    def psetex(self, name: KeyT, time_ms: ExpiryT, value: EncodableT) -> Any:
        """Set a string that expires after `time_ms` (milliseconds or a timedelta)."""
        return self._call(shapes.ok, [b"PSETEX", name, milliseconds(time_ms), value])

    def getset(self, name: KeyT, value: EncodableT) -> Any:
        """Set a string. Returns the old value or None."""
        return self._call(shapes.optional_text, [b"GETSET", name, value])

    def getex(
        self,
        name: KeyT,
        ex: ExpiryT | None = None,
        px: ExpiryT | None = None,
        exat: AbsExpiryT | None = None,
        pxat: AbsExpiryT | None = None,
        persist: bool = False,
    ) -> Any:
        """The value of a string or None. Also sets its expiry, as `set` does, or removes it with `persist`."""
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
        return self._call(shapes.optional_text, words)

    def getdel(self, name: KeyT) -> Any:
        """Delete a string. Returns its value or None."""
        return self._call(shapes.optional_text, [b"GETDEL", name])

    def mget(self, keys: KeyT | Iterable[KeyT], *args: EncodableT) -> Any:
        """The values of several strings; None for each that does not exist."""
        return self._call(shapes.optional_texts, [b"MGET", *several(keys, args)])

    def mset(self, mapping: Mapping[Any, EncodableT]) -> Any:
        """Set several strings as one unit."""
        words: list[Any] = [b"MSET"]
        for pair in mapping.items():
            words += pair
        return self._call(shapes.ok, words)

    def msetnx(self, mapping: Mapping[Any, EncodableT]) -> Any:
        """Set several strings as one unit, or none if one of the keys exists. Returns whether they were set."""
        words: list[Any] = [b"MSETNX"]
        for pair in mapping.items():
            words += pair
        return self._call(shapes.boolean, words)

    def incrby(self, name: KeyT, amount: int = 1) -> Any:
        """Add to a string that holds an integer. Returns the new value."""
        return self._call(shapes.integer, [b"INCRBY", name, amount])

    def incr(self, name: KeyT, amount: int = 1) -> Any:
        """Same as `incrby`."""
        return self._call(shapes.integer, [b"INCRBY", name, amount])

    def decrby(self, name: KeyT, amount: int = 1) -> Any:
        """Subtract from a string that holds an integer. Returns the new value."""
        return self._call(shapes.integer, [b"DECRBY", name, amount])

    def decr(self, name: KeyT, amount: int = 1) -> Any:
        """Same as `decrby`."""
        return self._call(shapes.integer, [b"DECRBY", name, amount])

    def append(self, key: KeyT, value: EncodableT) -> Any:
        """Append to a string. Returns its new length in bytes."""
        return self._call(shapes.integer, [b"APPEND", key, value])

    def strlen(self, name: KeyT) -> Any:
        """Length of a string in bytes."""
        return self._call(shapes.integer, [b"STRLEN", name])

    def echo(self, value: EncodableT) -> Any:
        """The value itself."""
        return self._call(shapes.text, [b"ECHO", value])
