"""The record of a run: for each aspect one hash, and a ladder that finds where two runs part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from tests.guard import damage, files
from tests.guard.world import World

ASPECTS: Final = ("units", "states", "replies", "rows", "verdicts")
RUNGS: Final = 300  # of a ladder at most
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
DATA: Final = Path(__file__).parent / "hashes.json"

Items = list[tuple[bytes, str]]  # what is hashed, and the same for people


class Kept(NamedTuple):
    """An aspect as the repository keeps it.

    size      how many items it has
    hash      of all of them
    ladder    one letter for each `step(size)` items: of the hash of everything up to there
    """

    size: int
    hash: str
    ladder: str


def step(count: int) -> int:
    return max(1, -(-count // RUNGS))


def kept(items: Items) -> Kept:
    every = step(len(items))
    running = blake2b(digest_size=16)
    ladder = []
    for number, (data, _) in enumerate(items, 1):
        running.update(len(data).to_bytes(8, "little") + data)
        if number % every == 0:
            ladder.append(LETTERS[running.digest()[0] & 63])
    return Kept(len(items), running.hexdigest(), "".join(ladder))


def texts(found: list[str]) -> Items:
    return [(text.encode(), text) for text in found]


def aspects(world: World, copies: int) -> dict[str, Items]:
    """All that is recorded of a workload that ended. `copies`: how many damaged ones are opened."""
    # Under a memory budget it depends on the progress of the checkpoint thread which pending entries share a chunk. One
    # commit gives different rows in two runs; the states are equal.
    timed = world.name.startswith("budget")
    return {
        "units": list(files.units(world.root)),
        "states": texts(world.states),
        "replies": texts(world.replies),
        "rows": [] if timed else list(files.rows(world.root / "checkpoint")),
        "verdicts": texts(damage.verdicts(world, copies)),
    }


def differences(name: str, before: dict[str, Kept], found: dict[str, Items]) -> Iterator[str]:
    """One text for each aspect that is not what it was: where it parts, and what is there now."""
    for aspect in ASPECTS:
        was, items = before[aspect], found[aspect]
        now = kept(items)
        if now == was:
            continue
        shown = f"{name}, {aspect}: {was.size} items then, {now.size} now; "
        if step(was.size) != step(now.size):
            yield shown + "too many more or fewer to say where they part: see `dump` and `diff`"
            continue
        every = step(was.size)
        same = next((i for i, (a, b) in enumerate(zip(was.ladder, now.ladder)) if a != b), None)
        if same is None:  # behind the last rung of the shorter
            same = min(len(was.ladder), len(now.ladder))
        first = same * every
        yield (
            shown
            + f"the first difference is at item {first}"
            + (f" to {first + every - 1}" if every > 1 else "")
            + " of this version:\n"
            + "\n".join(
                f"  {i}: {items[i][1][:2000]}" for i in range(first, min(first + every, len(items)))
            )
        )


def load(path: Path | None = None) -> dict[str, dict[str, Kept]]:
    found = json.loads((path or DATA).read_text())["workloads"]
    return {
        name: {aspect: Kept(*fields) for aspect, fields in of.items()} for name, of in found.items()
    }


def names(path: Path | None = None) -> list[str]:
    """Every name that was ever recorded, also of workloads that are retired since."""
    found: list[str] = json.loads((path or DATA).read_text())["names"]
    return found


def save(recorded: dict[str, dict[str, Kept]], about: str, path: Path | None = None) -> None:
    """One line for each workload and aspect, so that a change of one is a change of its lines."""
    of = [
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"   {json.dumps(a)}: {json.dumps(fields)}" for a, fields in aspects.items())
        + "\n  }"
        for name, aspects in recorded.items()
    ]
    path = path or DATA
    ever = dict.fromkeys([*(names(path) if path.exists() else ()), *recorded])
    path.write_text(
        f'{{\n "recorded": {json.dumps(about)},\n "names": [\n'
        + ",\n".join(f"  {json.dumps(name)}" for name in ever)
        + '\n ],\n "workloads": {\n'
        + ",\n".join(of)
        + "\n }\n}\n"
    )


def dump(name: str, found: dict[str, Items], folder: Path) -> None:
    """One file for each aspect, one line an item."""
    for aspect, items in found.items():
        path = folder / f"{name}.{aspect}.txt"
        path.write_text("".join(text.replace("\n", "\\n") + "\n" for _, text in items))
