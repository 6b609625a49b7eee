"""The committed list of promises that mutants break: promises.txt, one a line, with the name of its mutant.

A mutant whose code is gone gets a successor with the same promise: its name may change, the promise stays. So the list
only grows. `python -m tests.mutants --promises` adds the promises of new mutants to it, and writes the names anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.mutant import Mutant

DATA: Final = Path(__file__).parent / "promises.txt"


class Promise(NamedTuple):
    """A promise, and the name of the mutant that breaks it. Several mutants may break one: it stands there for each."""

    text: str
    mutant: str


def load() -> list[Promise]:
    lines = [line.rpartition("  ") for line in DATA.read_text().splitlines()]
    return [Promise(text, name) for text, _, name in lines]


def broken_by(mutants: Iterable[Mutant]) -> list[Promise]:
    return [Promise(mutant.promise, mutant.name) for mutant in mutants]


def without_mutant(promises: Iterable[Promise], mutants: Iterable[Mutant]) -> list[Promise]:
    """The promises that no mutant breaks any more; each mutant counts for one."""
    left = [mutant.promise for mutant in mutants]
    found = []
    for promise in promises:
        if promise.text in left:
            left.remove(promise.text)
        else:
            found.append(promise)
    return found


def save(promises: Sequence[Promise]) -> None:
    DATA.write_text("".join(f"{text}  {name}\n" for text, name in sorted(promises)))


def add(mutants: Sequence[Mutant]) -> int:
    """Write the promises of these mutants, and keep those that none of them breaks. Returns how many there are."""
    found = [*broken_by(mutants), *without_mutant(load() if DATA.exists() else (), mutants)]
    save(found)
    return len(found)
