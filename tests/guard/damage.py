"""Damaged copies of a store, and what the next open makes of each."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.guard.world import World, copied

import tidelog

Damage = Callable[[random.Random, Path], str]
SLOT: Final = 48


def segments(root: Path) -> list[Path]:
    return sorted((root / "aof").glob("*.aof"))


def used(data: bytes | bytearray) -> int:
    """Where the zeros at the end begin."""
    return len(data.rstrip(b"\0"))


def flip(r: random.Random, root: Path) -> str:
    path = r.choice(segments(root))
    data = bytearray(path.read_bytes())
    at = r.randrange(max(1, used(data)))
    bit = r.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"flip bit {bit} of byte {at} of {path.name}"


def flip_near_end(r: random.Random, root: Path) -> str:
    path = segments(root)[-1]
    data = bytearray(path.read_bytes())
    end = used(data)
    at = r.randrange(max(0, end - 400), max(1, end))
    data[at] ^= 1 << r.randrange(8)
    path.write_bytes(data)
    return f"change byte {at} of {path.name}, the last"


def cut(r: random.Random, root: Path) -> str:
    path = r.choice([segments(root)[-1], r.choice(segments(root))])
    data = path.read_bytes()
    at = r.randrange(max(1, used(data)))
    path.write_bytes(data[:at])
    return f"cut {path.name} at byte {at}"


def zero(r: random.Random, root: Path) -> str:
    path = segments(root)[-1]
    data = path.read_bytes()
    at = r.randrange(max(1, used(data)))
    size = r.choice((1, 17, 512, 1 << 20))
    path.write_bytes(data[:at] + bytes(len(data[at : at + size])) + data[at + size :])
    return f"zero {size} bytes of {path.name} from {at}"


def junk(r: random.Random, root: Path) -> str:
    path = segments(root)[-1]
    data = path.read_bytes()
    end = used(data)
    path.write_bytes(data[:end] + r.randbytes(r.choice((1, 40, 48, 300))))
    return f"random bytes behind {path.name}"


def missing(r: random.Random, root: Path) -> str:
    path = r.choice(segments(root))
    path.unlink()
    return f"remove {path.name}"


def repeated(r: random.Random, root: Path) -> str:
    """Bytes of an earlier place again behind the end: frames that do not follow."""
    path = segments(root)[-1]
    data = path.read_bytes()
    end = used(data)
    start = r.randrange(80, max(81, end))
    path.write_bytes(data[:end] + data[start:end])
    return f"bytes {start} to {end} of {path.name} again"


def no_checkpoint(r: random.Random, root: Path) -> str:
    shutil.rmtree(root / "checkpoint", ignore_errors=True)
    return "remove the checkpoint"


def identity(r: random.Random, root: Path) -> str:
    path = root / "STORE"
    data = bytearray(path.read_bytes())
    at = r.randrange(len(data))
    data[at] ^= 1 << r.randrange(8)
    path.write_bytes(data)
    return f"change byte {at} of STORE"


KINDS: Final[tuple[Damage, ...]] = (
    *(flip, flip, flip, flip_near_end, flip_near_end, cut, cut, zero),
    *(zero, junk, missing, repeated, no_checkpoint, identity),
)


def verdicts(world: World, copies: int) -> list[str]:
    """The findings in the damaged copies, after the one of each kept directory that is whole."""
    r = random.Random(world.seed + 1)
    found = []
    sources = [world.root, *world.copies]
    for number, source in enumerate(sources):
        found.append(f"{source.name}: {verdict(world, source, lambda r, root: 'nothing', r)}")
    for number in range(copies):
        source = sources[number % len(sources)]
        found.append(f"{source.name}: {verdict(world, source, KINDS[number % len(KINDS)], r)}")
    return found


def verdict(world: World, source: Path, damage: Damage, r: random.Random) -> str:
    """The damage, and what opening the store then came to."""
    root = copied(source, world.place / "damaged")
    done = damage(r, root)
    durable = root / "aof/DURABLE"
    if r.random() < 0.5 and durable.exists():
        durable.write_bytes(bytes(8192))
        done += ", DURABLE all zeros"
    try:
        with tidelog.open(root, **world.options(fsync="no")) as db:
            told = f"opens, {db.digest()} through LSN {db.info()['written_lsn']}"
    except tidelog.TidelogError as error:
        told = f"{type(error).__name__}, {reason(error.__cause__)}"
    kept = root / "quarantine"
    torn = [f"{p.name} {p.stat().st_size}" for p in sorted(kept.glob("*"))] if kept.exists() else []
    shutil.rmtree(root)
    return f"{done}: {told}{'; torn ' + ', '.join(torn) if torn else ''}"


def reason(cause: BaseException | None) -> str:
    """The kind and place of damage, without the wording."""
    if cause is None:
        return "no cause"
    place = getattr(cause, "path", None)
    facts = [type(cause).__name__, "" if place is None else Path(place).name]
    facts += [
        f"{n}={getattr(cause, n)}"
        for n in ("offset", "expected_lsn", "found_lsn")
        if hasattr(cause, n)
    ]
    return " ".join(facts)
