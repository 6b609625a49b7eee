"""How long a writer waits beside a checkpoint: `python tests/snapshot/pauses.py blocks|streams [DIRECTORY]`.

One thread adds entries one at a time under the store's lock, with a write(2) after each, as a log would; it measures
how long each takes, first alone, then while a checkpoint of 1,000,000 entries, or of 100,000 streams, is written.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from tidelog.aof.segment import Position
from tidelog.disk.real import RealDisk
from tidelog.engine.apply import APPLY
from tidelog.engine.commands.add import decide_xadd_auto
from tidelog.engine.freeze import freeze, settle
from tidelog.engine.state import Settings, State
from tidelog.snapshot.checkpoint import write_checkpoint
from tidelog.snapshot.environment import ColdRows, open_environment
from tidelog.snapshot.meta import Meta

ROW = (b"field", b"value", b"another", b"12345678")
ALONE_S = 2.0


def add(state: State, settings: Settings, key: bytes, now: int) -> None:
    effect = decide_xadd_auto(state, settings, 0, key, ROW, now)
    if effect is None:
        from tidelog.engine.context import Context
        from tidelog.engine.execute import decide

        ctx = Context(state, settings)
        ctx.now, ctx.effects = now, []
        decide(ctx, [b"XADD", key, b"*", *ROW])
        for one in ctx.effects:
            APPLY[one[0]](state, one)
    else:
        APPLY[effect[0]](state, effect)


def told(times: list[float]) -> str:
    times.sort()
    p50, p99, p999 = (
        times[min(int(len(times) * share), len(times) - 1)] * 1e6 for share in (0.5, 0.99, 0.999)
    )
    return (
        f"{len(times):8,} writes  p50 {p50:7.1f}  p99 {p99:7.1f}  p99.9 {p999:8.1f}  "
        f"worst {times[-1] * 1e6:9.1f} us"
    )


def main(what: str, directory: Path) -> None:
    state, settings = State(), Settings()
    now = 1_700_000_000_000
    if what == "blocks":
        for n in range(1_000_000):
            add(state, settings, b"stream", now + n // 100)
        keys = [b"stream"]
    else:
        keys = [b"stream:%d" % n for n in range(100_000)]
        for n, key in enumerate(keys):
            add(state, settings, key, now + n // 100)
    now += 100_000
    lock = threading.Lock()
    env = open_environment(RealDisk(), directory)
    rows = ColdRows(env)
    times: list[float] = []
    stop = False
    log = (directory.parent / "log").open("wb", buffering=0)

    def work() -> None:
        n = 0
        clock = time.perf_counter
        while not stop:
            began = clock()
            with lock:
                add(state, settings, keys[n * 7919 % len(keys)], now + n // 100)
                log.write(b"x" * 100)
            times.append(clock() - began)
            n += 1

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(ALONE_S)
    alone, times = times, []
    began = time.perf_counter()
    with lock:
        frozen = freeze(state)
        tables = state.tables_meta()
    froze = time.perf_counter()
    meta = Meta(uuid=bytes(16), position=Position(1, 0, 1, 0, 0), tables=tables)
    write_checkpoint(env, rows, frozen, meta, lock=lock, sync=lambda: None)
    wrote = time.perf_counter()
    with lock:
        rows.renew()
        state.changes.cold = rows
        settle(state, frozen)
    ended = time.perf_counter()
    beside, times = times, []
    stop = True
    thread.join()
    print(f"alone        {told(alone)}")
    print(f"checkpoint   {told(beside)}")
    print(
        f"freeze {(froze - began) * 1e6:.0f} us, written in {wrote - froze:.2f} s, renew and settle "
        f"{(ended - wrote) * 1e6:.0f} us, {env.size() / 1e6:.1f} MB"
    )
    rows.close()
    env.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as found:
        main(sys.argv[1], Path(found) / "checkpoint")
