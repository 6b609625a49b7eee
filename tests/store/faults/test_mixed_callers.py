"""Threads, tasks, cancellations and interrupts on one store under `always`: nobody hangs, all acknowledged is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rounds import some_and_all

import tidelog

# Each writer numbers its entries. Acknowledged ones go to standard output, a line per entry, written before
# the next one is tried. Interrupts come from a timer, whose handler raises in the main thread, which writes as well.
PROGRAM = """
import asyncio, os, random, signal, sys, threading, time
import tidelog

path, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
db = tidelog.open(path, segment_bytes=1 << 16)
db.xgroup_create("s", "g", id="0", mkstream=True)
out, end = threading.Lock(), time.monotonic() + seconds
stop = threading.Event()

def acknowledged(name, number):
    os.write(1, b"%s %d\\n" % (name.encode(), number))

def thread(index):
    rng, name, number = random.Random(seed * 100 + index), f"t{index}", 0
    while time.monotonic() < end:
        number += 1
        way = rng.random()
        if way < 0.6:
            db.xadd("s", {"w": name, "n": number, "pad": "x" * rng.choice((1, 100, 3000))})
            acknowledged(name, number)
        elif way < 0.8:
            with db.pipeline(transaction=rng.random() < 0.5) as pipe:
                for one in range(rng.choice((2, 30))):
                    pipe.xadd("s", {"w": name, "n": number + one, "pad": "y"})
                done = pipe.execute()
            for one in range(len(done)):
                acknowledged(name, number + one)
            number += len(done)
        else:
            for _, entries in db.xreadgroup("g", name, {"s": ">"}, count=20, block=5):
                db.xack("s", "g", *(id for id, _ in entries))

def loop(life):
    async def writer(adb, name, rng):
        number = 0
        while time.monotonic() < end:
            number += 1
            if rng.random() < 0.3:
                await adb.xreadgroup("g", name, {"s": ">"}, count=5, block=rng.choice((1, 1000)))
            else:
                await adb.xadd("s", {"w": name, "n": number})
                acknowledged(name, number)

    async def main():
        adb = tidelog.AsyncStore(db._core, decode=False)
        rng, tasks, lives = random.Random(seed), {}, 0
        while time.monotonic() < end:
            while len(tasks) < 20:
                lives += 1
                name = f"a{life}.{lives}"
                tasks[name] = asyncio.create_task(writer(adb, name, random.Random(seed + lives)))
            await asyncio.sleep(rng.random() * 0.01)
            name = rng.choice(list(tasks))
            task = tasks.pop(name)
            task.cancel()
            try:
                await asyncio.wait_for(task, 60)
            except asyncio.CancelledError:
                pass
        for task in tasks.values():
            task.cancel()
        for result in await asyncio.gather(*tasks.values(), return_exceptions=True):
            if result is not None and not isinstance(result, asyncio.CancelledError):
                raise result

    asyncio.run(main())

failures = []

def guarded(call, index):
    try:
        call(index)
    except tidelog.OutcomeUnknown:
        guarded(call, index + 1000)  # gathered when an interrupt broke the log: it is told so, and goes on
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=guarded, args=(thread, n)) for n in range(6)]
threads.append(threading.Thread(target=guarded, args=(loop, 0)))
for one in threads:
    one.start()

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
rng, number, name = random.Random(seed), 0, "m"
interrupts = 0
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.random() * 0.01 + 1e-4)
        while time.monotonic() < end:
            number += 1
            if rng.random() < 0.2:
                db.xreadgroup("g", name, {"s": ">"}, count=5, block=rng.choice((1, 1000)))
            else:
                db.xadd("s", {"w": name, "n": number})
                acknowledged(name, number)
    except KeyboardInterrupt:
        interrupts += 1
    except tidelog.OutcomeUnknown:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
for one in threads:
    one.join(100)
    assert not one.is_alive(), "a writer hangs"
assert not failures, failures
assert not db._core.waiting.waiters(), "somebody is parked whom nobody waits for"
print("end", db.digest(), interrupts, db.info()["reloads"])
sys.stdout.flush()
os._exit(0)  # nothing is synced on the way out
"""


def run(path: Path, seed: int, seconds: float) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(seed), str(seconds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=seconds + 120,
    )
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    word, digest, interrupts, reloads = last.split()
    assert word == "end"
    with tidelog.open(path) as db:
        assert db.digest() == digest
        there = {(fields[b"w"], int(fields[b"n"])) for _, fields in db.xrange("s")}
    for line in lines:
        name, number = line.split()
        assert (name.encode(), int(number)) in there, f"{line} was acknowledged"
    return int(interrupts), int(reloads)


@pytest.mark.parametrize("seconds", some_and_all(1.5, 4))
def test_mixed_callers(tmp_path: Path, seconds: float) -> None:
    interrupts, _ = run(tmp_path / "s", 0, seconds)
    assert interrupts > 20
