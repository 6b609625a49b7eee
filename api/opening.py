"""`tidelog.open`: open a directory as a store for threads. `tidelog.aopen` is in api.aopening."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal, Unpack, overload

from tidelog.aof.bookmarks import KEEP_BYTES
from tidelog.aof.log import SEGMENT_BYTES
from tidelog.api.sync import Store
from tidelog.disk.interface import Disk
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.durations import Duration, seconds
from tidelog.store.opening import AnyPath, open_core
from tidelog.store.options import CHECKPOINT_BYTES, RETAIN_BYTES, SAVE, StoreOptions, make_options


@overload
def open_store(
    path: AnyPath,
    *,
    decode_responses: Literal[False] = False,
    **options: Unpack[StoreOptions],
) -> Store[bytes]: ...
@overload
def open_store(
    path: AnyPath,
    *,
    decode_responses: Literal[True],
    **options: Unpack[StoreOptions],
) -> Store[str]: ...
@overload
def open_store(
    path: AnyPath,
    *,
    decode_responses: bool,
    **options: Unpack[StoreOptions],
) -> Store[bytes | str]: ...
def open_store(
    path: AnyPath,
    *,
    fsync: str = "always",
    decode_responses: bool = False,
    read_only: bool = False,
    memory_budget: int | None = None,
    maxdisk: int | None = None,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
    save: Iterable[tuple[float, int]] = SAVE,
    snapshot_every: float | timedelta | None = None,
    keep_snapshots: int = 0,
    retain_bytes: int = RETAIN_BYTES,
    retain_seconds: float | timedelta | None = None,
    retain_bookmark_bytes: int = KEEP_BYTES,
    keep_dead_seconds: float | timedelta | None = None,
    keep_dead_jobs: int | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    lock_timeout: Duration = 0.0,
    disk: Disk | None = None,
    clock: Clock = SYSTEM,
) -> Store[bytes | str]:
    """Open the store in a directory. Creates it if the directory is empty or missing.

        with tidelog.open("orders") as db:
            db.xadd("orders", {"item": "tea"})

    Args:
        path: The directory.
        fsync: `always`: a reply means that the disk has the data. `everysec`, `no`: that the kernel has it.
        decode_responses: Replies hold str instead of bytes.
        read_only: Only look, also beside a running writer; `refresh` catches up with the writer. `path` may be a
            snapshot.
        memory_budget: Approximate bytes for entries, groups and strings in memory. After a checkpoint the least
            recently used data is evicted; it is read back when needed. None = nothing is evicted.
        maxdisk: Quota in bytes for log, checkpoint and snapshots together, 1 MiB or more: above it, calls that add
            data raise StoreFull, and all others go on. None = no quota.
        checkpoint_bytes: Make a checkpoint after this many bytes of log; 0 = not by bytes.
        save: Rules (seconds, changes): make a checkpoint every `seconds` if there were at least `changes`; () = not
            by time.
        snapshot_every: Seconds (or a timedelta) between automatic snapshots; None = no automatic snapshots.
        keep_snapshots: How many of the newest snapshots to keep; 0 = all.
        retain_bytes: Bytes of log to keep that a checkpoint already covers, for point-in-time restores.
        retain_seconds: Also keep log that is younger than this (seconds or a timedelta).
        retain_bookmark_bytes: Bytes of log to keep for readers in other processes that have set a bookmark.
        keep_dead_seconds: Dead jobs that are older go (seconds or a timedelta); 0 = none by age. None = 30 days in a
            store that began empty with version 0.2 or a later one, and 0 in any other.
        keep_dead_jobs: How many dead jobs of each queue to keep; 0 = all. None = 100,000 in such a store.
        segment_bytes: Size at which the log starts a new file, 4,096 bytes or more.
        lock_timeout: Seconds or a timedelta to wait while another process has the store open for writing.
        disk: The file system; tests replace it.
        clock: The time; tests replace it (see `tidelog.testing`).

    Returns:
        The store, to be closed. The options are not stored.

    Raises:
        DataError: An option or the path is invalid.
        StoreLocked: Another process writes to it; `pid` is that process.
        NotAStore: The directory holds something else. It is left unchanged.
        StoreDamaged: Recovery found damage that it must not repair by itself.
        NewerFormat: A newer tidelog has written it.
        CannotOpen: The operating system refuses; the base of the four errors before. A failed open never changes stored
            data.
    """
    options = make_options(
        fsync=fsync,
        read_only=read_only,
        memory_budget=memory_budget,
        maxdisk=maxdisk,
        checkpoint_bytes=checkpoint_bytes,
        save=save,
        snapshot_every=snapshot_every,
        keep_snapshots=keep_snapshots,
        retain_bytes=retain_bytes,
        retain_seconds=retain_seconds,
        retain_bookmark_bytes=retain_bookmark_bytes,
        keep_dead_seconds=keep_dead_seconds,
        keep_dead_jobs=keep_dead_jobs,
        segment_bytes=segment_bytes,
    )
    wait = seconds("lock_timeout", lock_timeout, zero=True)
    core = open_core(path, options, disk, clock, wait)
    return Store(core, decode=decode_responses, opened_here=True)
