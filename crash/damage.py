"""Damage: the ways in which a medium, or a person, spoils the files of a closed or killed store. One at a time.

    flip        one bit of a file
    zero        a sector reads as zeros
    duplicate   a sector has the content of another one of the same file
    misplaced   two sectors of any files exchanged their contents
    stale       a sector has the content that it had earlier
    truncated   a file lost its end
    missing     a file, or a directory with everything in it, is gone
    swapped     two files exchanged their contents
    older       a file, or the directory of the checkpoint, is as it was earlier

Earlier is after an operation of the recorded life at which something was acknowledged. A damage is a tuple of numbers
and names, so a finding can hold it.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tidelog.aof.identity import CHECKPOINT
from tidelog.crash.served import STORE
from tidelog.crash.states import SECTOR, cut_at
from tidelog.crash.trace import Promised, Trace, Tree

KINDS: Final = (
    "flip", "zero", "duplicate", "misplaced", "stale", "truncated", "missing", "swapped", "older",
)  # fmt: skip
DENSE_SHARE: Final = 0.9  # the share of the flips that hit a sector that is not all zeros
TRIES: Final = 50
PROOF: Final = f"{STORE}/aof/DURABLE"
CHECKPOINT_DIRECTORY: Final = f"{STORE}/{CHECKPOINT}"


class Damage(NamedTuple):
    """One damage.

    place         of a flip the number of the bit, of a truncation the new size, else the number of a sector
    other         the second file of a duplicate, misplaced or swapped damage; otherwise ""
    other_place   its sector; of stale and older, the number of operations of the trace that were done then
    """

    kind: str
    path: str
    place: int = 0
    other: str = ""
    other_place: int = 0

    def takes_the_proof(self) -> bool:
        """Whether DURABLE and another file are exchanged."""
        return self.other not in ("", self.path) and PROOF in (self.path, self.other)

    def words(self) -> str:
        match self.kind:
            case "flip":
                return f"bit {self.place % 8} of byte {self.place // 8} of {self.path} flipped"
            case "zero":
                return f"sector {self.place} of {self.path} zero"
            case "duplicate":
                return f"sector {self.place} of {self.path} has the content of its sector {self.other_place}"
            case "misplaced":
                return (
                    f"sector {self.place} of {self.path} and sector {self.other_place} of {self.other} "
                    "exchanged"
                )
            case "stale":
                return f"sector {self.place} of {self.path} as after operation {self.other_place}"
            case "truncated":
                return f"{self.path} cut to {self.place} bytes"
            case "missing":
                return f"{self.path} missing"
            case "swapped":
                return f"{self.path} and {self.other} exchanged"
            case _:
                return f"{self.path} as after operation {self.other_place}"


class Damages:
    """The damages that an image of a trace can suffer.

    image   what the trace left at the end; `times` are the moments of earlier contents
    there   how many damages there are. Those that leave equal files are counted too
    """

    def __init__(self, trace: Trace, image: Tree, time: int) -> None:
        self.image = image
        self._files = [path for path, content in image.items() if content]
        operations = trace.operations[:time]
        times = [n for n, each in enumerate(operations, 1) if isinstance(each, Promised)]
        self._earlier = {then: _whole(trace, then) for then in times}
        sectors = {path: _sectors(image, path) for path in self._files}
        total = sum(sectors.values())
        files, nbytes = len(self._files), sum(len(image[path] or b"") for path in self._files)
        self._stale = [
            (path, sector, then)
            for path in self._files
            for sector in range(sectors[path])
            for then in self._different(path, sector)
        ]
        self._older = [
            (path, then)
            for path in (*self._files, CHECKPOINT_DIRECTORY)
            for then in self._versions(path)
        ]
        self.there = (
            8 * nbytes
            + total
            + sum(each * (each - 1) for each in sectors.values())
            + total * (total - 1) // 2
            + len(self._stale)
            + nbytes
            + len(image) - 1
            + files * (files - 1) // 2
            + len(self._older)
        )  # fmt: skip

    def draw(self, rng: random.Random) -> tuple[Damage, Tree]:
        """A damage that changes something, and the image with it."""
        for _ in range(TRIES):
            damage = self._draw(rng)
            # An exchange with DURABLE takes the proof and what it proves. That is two faults at once.
            if damage is not None and not damage.takes_the_proof():
                image = damaged(self.image, damage, self._earlier)
                if image != self.image:
                    return damage, image
        path = rng.choice(self._files)
        damage = Damage("flip", path, rng.randrange(8 * len(self.image[path] or b"")))
        return damage, damaged(self.image, damage, self._earlier)

    def _draw(self, rng: random.Random) -> Damage | None:
        kind = "flip" if rng.random() < 0.4 else rng.choice(KINDS)
        path = rng.choice(self._files)
        content = self.image[path] or b""
        sector = self._sector(rng, path)
        match kind:
            case "flip":
                start = sector * SECTOR
                end = min(start + SECTOR, len(content))
                return Damage(kind, path, rng.randrange(8 * start, 8 * end))
            case "zero":
                return Damage(kind, path, sector)
            case "duplicate":
                other = rng.randrange(_sectors(self.image, path))
                return Damage(kind, path, sector, path, other)
            case "misplaced":
                second = rng.choice(self._files)
                return Damage(kind, path, sector, second, self._sector(rng, second))
            case "stale" if self._stale:
                path, sector, then = rng.choice(self._stale)
                return Damage(kind, path, sector, "", then)
            case "truncated":
                whole = rng.random() < 0.5  # sectors
                return Damage(kind, path, sector * SECTOR if whole else rng.randrange(len(content)))
            case "missing":
                return Damage(kind, rng.choice([each for each in self.image if each != STORE]))
            case "swapped":
                return Damage(kind, path, 0, rng.choice(self._files))
            case "older" if self._older:
                path, then = rng.choice(self._older)
                return Damage(kind, path, 0, "", then)
        return None

    def _sector(self, rng: random.Random, path: str) -> int:
        """The number of a sector, seldom of one that is all zeros."""
        content = self.image[path] or b""
        count = _sectors(self.image, path)
        sector = rng.randrange(count)
        if rng.random() < DENSE_SHARE:
            for _ in range(TRIES):
                if content[sector * SECTOR : (sector + 1) * SECTOR].strip(b"\0"):
                    break
                sector = rng.randrange(count)
        return sector

    def _different(self, path: str, sector: int) -> list[int]:
        """The times at which a sector had another content than now, the first time for each content."""
        seen = {_sector_of(self.image, path, sector)}
        found = []
        for then, tree in self._earlier.items():
            if tree.get(path) is not None:
                content = _sector_of(tree, path, sector)
                if content.strip(b"\0") and content not in seen:
                    seen.add(content)
                    found.append(then)
        return found

    def _versions(self, path: str) -> list[int]:
        """The times at which a path had another content than now, the first time for each content."""
        seen = {tuple(_below(self.image, path).items())}
        found = []
        for then, tree in self._earlier.items():
            version = tuple(_below(tree, path).items())
            if version and version not in seen:
                seen.add(version)
                found.append(then)
        return found


def damaged_in(trace: Trace, time: int, damage: Damage) -> Tree:
    """The image after `time` operations of a trace, with a damage."""
    earlier = {}
    if damage.kind in ("stale", "older"):
        earlier[damage.other_place] = _whole(trace, damage.other_place)
    return damaged(_whole(trace, time), damage, earlier)


def possible(image: Tree, damage: Damage) -> bool:
    """Whether an image has the places that a damage names."""
    path, other, content = damage.path, damage.other, image.get(damage.path)
    if damage.kind not in KINDS:
        return False
    if damage.kind in ("missing", "older"):
        return damage.other_place >= 0 and path in image
    if content is None or damage.place < 0 or other and image.get(other) is None:
        return False
    size = 8 * len(content) if damage.kind == "flip" else len(content)
    return damage.place < max(1, size) and 0 <= damage.other_place


def damaged(image: Tree, damage: Damage, earlier: dict[int, Tree]) -> Tree:
    """An image with a damage. `earlier` has the images at the times that it names."""
    found = dict(image)
    path, other = damage.path, damage.other
    content = bytearray(found.get(path) or b"")
    start = damage.place * SECTOR
    end = min(start + SECTOR, len(content))
    match damage.kind:
        case "flip":
            content[damage.place // 8] ^= 1 << damage.place % 8
        case "zero":
            content[start:end] = bytes(end - start)
        case "duplicate":
            content[start:end] = _sector_of(image, path, damage.other_place)[: end - start]
        case "misplaced":
            second = content if other == path else bytearray(found[other] or b"")
            there = damage.other_place * SECTOR
            behind = min(there + SECTOR, len(second))
            first = _sector_of(image, path, damage.place)
            content[start:end] = _sector_of(image, other, damage.other_place)[: end - start]
            second[there:behind] = first[: behind - there]
            found[other] = bytes(second)
        case "stale":
            content[start:end] = _sector_of(earlier[damage.other_place], path, damage.place)[
                : end - start
            ]
        case "truncated":
            del content[damage.place :]
        case "swapped":
            content = bytearray(found[other] or b"")
            found[other] = image[path]
        case _:  # missing, older
            for each in _below(image, path):
                del found[each]
            if damage.kind == "older":
                found |= _below(earlier[damage.other_place], path)
            return found
    found[path] = bytes(content)
    return found


def _whole(trace: Trace, time: int) -> Tree:
    cut = cut_at(trace, time)
    return cut.image(cut.whole)


def _below(tree: Tree, path: str) -> Tree:
    """A file, or a directory and everything in it."""
    return {each: tree[each] for each in tree if each == path or each.startswith(path + "/")}


def _sectors(tree: Tree, path: str) -> int:
    return -(-len(tree[path] or b"") // SECTOR)


def _sector_of(tree: Tree, path: str, sector: int) -> bytes:
    content = tree.get(path) or b""
    return content[sector * SECTOR : (sector + 1) * SECTOR].ljust(SECTOR, b"\0")
