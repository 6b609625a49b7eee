"""Queue: the streams of a durable queue as one table of its jobs, as of one moment.

Output, one row for each job, each delayed job and each dead job:

    db, queue, group    int, string, string
    id                  string; of a dead job the ID that it had as a job
    state               string, see below
    value               string (codec json, str) or binary (bytes, msgpack). Null if the entry has none, is gone, or is
                        no UTF-8 where text is expected
    headers             map<string, string>; invalid UTF-8 is replaced
    worker              string: the worker that holds the job; of a dead job the last one that failed with it
    deliveries          bigint: 0 = never delivered
    last_error          string: of the latest recorded failure; of a dead job the reason why it is dead
    put_at              timestamp
    delivered_at        timestamp of the last delivery, or of the last renewal of its lease; null if no worker holds it
    until               timestamp: the job is paused, or held for its worker, until then
    dead_id, died_at    string, timestamp: of a dead job
    priority            int: 0 to 9
    key                 string: the key of the job; null without one
    origin              string: the ID that `put` returned, of a job that was delayed or redriven; null for others
    due_at              timestamp: when a delayed job is due; null for the job that it becomes
    expires_at          timestamp: a job with `ttl` is not delivered after that; null without, and of dead jobs
    waited_ms           bigint: put to first delivery; put to `at` if it was never delivered. A delayed job waits from
                        the time when it is due
    worked_ms           bigint: last delivery to acknowledgement, or to `at` while it is in flight

The states are those of `queue.stats()`: `waiting` (new, due, or due again), `in_flight`, `paused`, `kept` (done, and
still stored), `dead`, `scheduled` (a delayed job that is not due yet). Without the log, `waited_ms` is null after the
first delivery, and `worked_ms` is always null: a snapshot has only the time of the last delivery, and each renewal of a
lease counts as one there. Jobs that are done and deleted are in no snapshot; `latency.deliveries` finds them in the
log. Results are strings, and no table has the values of strings.

Jobs of a priority are in streams of their own, `NAME:priority:1` to `NAME:priority:9`, with IDs that differ from those
of the others. Here they are one queue.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final, Literal, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog.figures.names import HOLDS, jobs_of
from tidelog.jobs.options import Options, make_options
from tidelog.jobs.rows import EXPIRES, HEADER, ORIGIN, VALUE
from tidelog.jobs.work.later import GROUP as DUE
from tidelog.jobs.work.later import SHIFT_MS
from tidelog.spark.jobs.latency import deliveries
from tidelog.spark.jobs.measures import added_at, field, ms_between, order, text
from tidelog.spark.jobs.terms import MS_MAX
from tidelog.spark.jobs.terms import STATES as STATES

Codec = Literal["json", "str", "bytes", "msgpack"]
_TEXT: Final = ("json", "str")


class _Streams(NamedTuple):
    """The keys of a queue's streams. `jobs` and `holds` are those of the lanes, too."""

    jobs: list[bytes]
    holds: list[bytes]
    failures: bytes
    dead: bytes
    later: bytes

    @property
    def all(self) -> list[bytes]:
        return [*self.jobs, *self.holds, self.failures, self.dead, self.later]


def _streams(options: Options) -> _Streams:
    key = options.key
    jobs = jobs_of(key)
    holds = [lane + HOLDS for lane in jobs]
    return _Streams(jobs, holds, options.failures_key, options.dead_key, options.later_key)


def streams_of(queue: str) -> str:
    """The names of a queue's streams, for the option `streams` of the data source.

    Raises DataError for a name that no queue can have.
    """
    return json.dumps([key.decode() for key in _streams(make_options(queue)).all])


def jobs(
    entries: DataFrame,
    groups: DataFrame,
    pending: DataFrame,
    queue: str,
    *,
    group: str = "workers",
    db: int = 0,
    at: datetime | None = None,
    codec: Codec = "json",
    events: DataFrame | None = None,
) -> DataFrame:
    """The jobs of a queue, in no order.

    Args:
        entries: The table `entries`, at least with the streams that `streams_of` names.
        groups: The table `groups`.
        pending: The table `pending`.
        queue: The queue's name.
        group: The group whose jobs they are. A queue has one, unless it was subscribed to.
        db: The database that the queue is in.
        at: The moment for which pauses and times are computed; None: when the query runs. The snapshot's own moment
            is the time of its last write, `now_ms` in its manifest.
        codec: How the values were encoded. Text and JSON become strings; bytes and msgpack stay bytes.
        events: The table `events`, if the log is available. With it, `waited_ms` and `worked_ms` have more values.

    Raises:
        DataError: The queue's or the group's name is invalid.
    """
    options = make_options(queue, group)
    streams = _streams(options)
    now = F.current_timestamp() if at is None else F.lit(at)
    here = F.col("db") == db
    of_group = (
        here & F.col("stream").isin(*streams.jobs) & (F.col("group") == F.lit(options.group_key))
    )
    # A lane without the group has no row here. Then `position` is null: nothing was delivered.
    position = groups.where(of_group).select(
        "stream", order(F.col("last_delivered_id")).alias("position")
    )
    held = _held(pending.where(here), streams, of_group)
    known = (
        _by_job(entries.where(here), options, streams)
        .join(held, ["is_dead", "id"], "full")
        .withColumn("stream", F.coalesce("stream", "held_in"))
        # Otherwise only notes about the job are left, or another client deleted a delayed job in part.
        .where(F.col("fields").isNotNull() | F.col("held"))
        .where((F.col("stream") != F.lit(streams.later)) | F.col("held"))
        .join(F.broadcast(position), "stream", "left")
        .select(*_columns(group, codec, now))
    )
    if events is None:
        none = F.lit(None)
        timed = known.withColumns(
            {
                "first_latency": none.cast("bigint"),
                "last_delivered_at": none.cast("timestamp"),
                "ended_at": none.cast("timestamp"),
            }
        )
    else:
        timed = known.join(_times(events.where(here), streams.jobs), ["group", "id"], "left")
    return timed.select(
        F.lit(db).alias("db"),
        F.lit(queue).alias("queue"),
        *known.columns,
        _waited(now).alias("waited_ms"),
        _worked(now).alias("worked_ms"),
    )


def _held(pending: DataFrame, streams: _Streams, of_group: Column) -> DataFrame:
    """The pending jobs: is_dead, id, consumer, delivered_at, delivery_count, due_at, held, held_in.

    A delayed job is pending in a group of its own, and the time of its delivery says when it is due.
    """
    delayed = (F.col("stream") == F.lit(streams.later)) & (F.col("group") == F.lit(DUE))
    due = F.timestamp_millis(F.unix_millis("delivered_at") + F.lit(SHIFT_MS))
    none = F.lit(None)
    return pending.where(of_group | delayed).select(
        F.lit(False).alias("is_dead"),
        "id",
        F.when(~delayed, F.col("consumer")).alias("consumer"),
        F.when(~delayed, F.col("delivered_at")).alias("delivered_at"),
        F.when(delayed, F.lit(0)).otherwise(F.col("delivery_count")).alias("delivery_count"),
        F.when(delayed, due).otherwise(none).alias("due_at"),
        F.lit(True).alias("held"),
        F.col("stream").alias("held_in"),
    )


def _by_job(entries: DataFrame, options: Options, streams: _Streams) -> DataFrame:
    """The streams in one pass: a row for each job and each dead job, with the notes about it.

    Columns: is_dead; id (its own, or the dead job's), stream, fields; hold (until, id), last_error.
    """
    stream, entry_id = F.col("stream"), F.col("id")
    holds, failures = stream.isin(*streams.holds), stream == F.lit(streams.failures)
    dead = stream == F.lit(streams.dead)
    note = holds | failures
    until = text(field(b"until")).try_cast("bigint")
    return (
        entries.where(
            stream.isin(*streams.all) & (~note | (field(b"group") == F.lit(options.group_key)))
        )
        .groupBy(
            dead.alias("is_dead"),
            F.when(note, text(field(b"job"))).otherwise(entry_id).alias("job"),
        )
        .agg(
            F.first(F.when(~note, F.col("fields")), ignorenulls=True).alias("fields"),
            F.first(F.when(~note, stream), ignorenulls=True).alias("stream"),
            F.max_by(
                F.struct(until.alias("until"), entry_id.alias("id")),
                F.when(holds, order(entry_id)),
            ).alias("hold"),
            F.max_by(text(field(b"error")), F.when(failures, order(entry_id))).alias("last_error"),
        )
        .withColumnRenamed("job", "id")
    )


def _columns(group: str, codec: Codec, now: Column) -> list[Column]:
    """The columns of the result, except `waited_ms` and `worked_ms`."""
    dead, held, entry_id = F.col("is_dead"), F.col("held"), F.col("id")
    unread = F.col("position").isNull() | (order(entry_id) > F.col("position"))
    ends = F.col("hold.until")
    until = F.when(ends <= MS_MAX, F.timestamp_millis(ends))
    # A hold pauses a job from the time in the hold's ID to `until`. If `until` is not later than that time, the pause
    # is over whatever the clock says.
    paused = (until > now) & (until > added_at(F.col("hold.id")))
    in_flight = F.col("consumer").isNotNull()
    due_at = F.col("due_at")
    state = (
        F.when(dead, "dead")
        .when(due_at > now, "scheduled")
        .when(due_at.isNotNull(), "waiting")
        .when(in_flight, "in_flight")
        .when(held & paused, "paused")
        .when(held | unread, "waiting")
        .otherwise("kept")
    )
    original = F.when(dead, text(field(b"id"))).otherwise(entry_id)
    workers = F.from_json(text(field(b"workers")), "array<string>")
    raw = field(VALUE)
    return [
        F.when(dead, text(field(b"group"))).otherwise(group).alias("group"),
        original.alias("id"),
        state.alias("state"),
        (F.try_validate_utf8(raw.cast("string")) if codec in _TEXT else raw).alias("value"),
        _headers().alias("headers"),
        F.when(dead, F.try_element_at(workers, F.lit(-1)))
        .otherwise(text(F.col("consumer")))
        .alias("worker"),
        F.when(dead, text(field(b"deliveries")).try_cast("bigint"))
        .when(held, F.col("delivery_count"))
        .when(unread, 0)
        .alias("deliveries"),
        F.when(dead, text(field(b"reason"))).otherwise(F.col("last_error")).alias("last_error"),
        added_at(original).alias("put_at"),
        F.col("delivered_at"),
        F.when(in_flight | (held & paused), until).alias("until"),
        F.when(dead, entry_id).alias("dead_id"),
        F.when(dead, added_at(entry_id)).alias("died_at"),
        _priority().alias("priority"),
        text(field(b"key")).alias("key"),
        text(field(ORIGIN)).alias("origin"),
        due_at.alias("due_at"),
        F.timestamp_millis(text(field(EXPIRES)).try_cast("bigint")).alias("expires_at"),
    ]


def _priority() -> Column:
    """The priority that the job's row names; one that another client put into a lane has that of the lane."""
    lane = F.regexp_extract(F.col("stream").cast("string"), r":priority:([1-9])$", 1)
    named = text(field(b"priority")).try_cast("int")
    return F.coalesce(named, lane.try_cast("int"), F.lit(0))


def _waited(now: Column) -> Column:
    """Milliseconds from the put to the first delivery, or to `now`. Null where they are not known."""
    new = (F.col("state") == "waiting") & (F.col("deliveries") == 0)
    since = F.coalesce("due_at", "put_at")
    return F.coalesce(F.col("first_latency"), F.when(new, ms_between(since, now)))


def _worked(now: Column) -> Column:
    """Milliseconds from the last delivery to its end, or to `now`. Null where they are not known."""
    ended = F.when(F.col("state") == "in_flight", now).otherwise(F.col("ended_at"))
    return ms_between(F.col("last_delivered_at"), ended)


def _times(events: DataFrame, keys: list[bytes]) -> DataFrame:
    """The times that the log has of the jobs: group, id, first_latency, last_delivered_at, ended_at."""
    every = deliveries(events.where(F.col("stream").isin(*keys)))
    # Do not count the renewal of a lease as a delivery: it does not raise the delivery count.
    real = F.col("redelivered") | (F.col("event") == "delivered")
    return every.groupBy(text(F.col("group")).alias("group"), "id").agg(
        F.min_by("latency_ms", "lsn").alias("first_latency"),
        F.max_by(F.when(real, F.col("delivered_at")), F.when(real, F.col("lsn"))).alias(
            "last_delivered_at"
        ),
        F.max("acknowledged_at").alias("ended_at"),
    )


def _headers() -> Column:
    """The headers as a map. If several have the same name, the last one counts, as in `Job.headers`."""
    named = F.filter("fields", lambda each: each["name"].startswith(F.lit(HEADER)))
    start = F.lit(len(HEADER) + 1)
    pairs = F.transform(
        F.reverse(named),
        lambda each: F.struct(
            text(F.substring(each["name"], start, F.octet_length(each["name"]))).alias("name"),
            text(each["value"]).alias("value"),
        ),
    )
    names = F.transform(pairs, lambda pair: pair["name"])
    # A map of Spark refuses a key that occurs twice.
    last = F.filter(pairs, lambda pair, at: F.array_position(names, pair["name"]) == at + 1)
    return F.map_from_entries(last)
