"""Reading what is not in memory: pages of a scan, and single entries anywhere, from the checkpoint alone."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SENSOR
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.opened import PAGE, Opened
from tidelog.tools.bench.processes.stored import SAMPLES, sensor_store

STORED, RESIDENT, OVER_LINE = 10_000_000, 1_000_000, 100_000
SLICES, SLICE_PAGES = 15, 50
READ = 3_000


def rows(bench: Bench) -> Iterator[Figure]:
    entries = bench.scaled(STORED)
    stored = sensor_store(bench, entries)
    redis = _redis(bench)
    with (
        Fresh(Opened, stored.path) as cold,
        Fresh(Opened, bench.fresh("resident") / "store") as resident,
    ):
        ids = {"resident": resident.call("fill", bench.scaled(RESIDENT), SAMPLES)[:READ]}
        ids["cold"] = stored.ids[:READ]
        sides = {"cold": cold, "resident": resident}
        yield _scan(sides, redis, entries)
        yield from _each(sides, ids, entries)


def _scan(sides: dict[str, Fresh], redis: Any, entries: int) -> Figure:
    rates: dict[str, list[float]] = {}
    for _ in range(SLICES):
        for name, fresh in sides.items():
            rates.setdefault(name, []).append(fresh.call("scan", SLICE_PAGES))
        if redis is not None:
            rates.setdefault("redis-py", []).append(redis.scan(SLICE_PAGES, PAGE))
    rate = median(rates.pop("cold"))
    return Figure(
        "scan of cold entries by XRANGE",
        "/s",
        rate,
        {name: median(found) for name, found in rates.items()},
        (Bound(500_000),),
        f"pages of {PAGE:,}, each entry once; {entries:,} entries of two small fields stored",
    )


def _each(sides: dict[str, Fresh], ids: dict[str, list[str]], entries: int) -> Iterator[Figure]:
    spent: dict[str, list[float]] = {name: [] for name in sides}
    part = max(1, len(ids["cold"]) // SLICES)
    for at in range(0, len(ids["cold"]), part):
        for name, fresh in sides.items():
            spent[name] += fresh.call("read_each", ids[name][at : at + part])
    for found in spent.values():
        found.sort()
    for name, share, target in (("median", 0.5, (Bound(150, most=True),)), ("p99", 0.99, ())):
        yield Figure(
            f"XRANGE of one cold entry, {name}",
            "us",
            spent["cold"][int(share * len(spent["cold"]))],
            {"resident": spent["resident"][int(share * len(spent["resident"]))]},
            target,
            f"anywhere among {entries:,}; the file is in the kernel's cache",
        )


def _redis(bench: Bench) -> Any:
    try:
        peer = bench.redis(SENSOR, durable=False)
    except (ImportError, FileNotFoundError) as error:
        bench.missing["redis-py"] = str(error)
        return None
    peer.add_batches(OVER_LINE)
    return peer
