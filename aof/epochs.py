"""The number in an EPOCH record orders the histories of stores that were copied from one another.

     63            32 31             0
    +----------------+----------------+
    | generation     | counter        |
    +----------------+----------------+

The first life of a store has the number 1. A restart adds 1. A promotion raises the generation by one and sets the
counter to 0. So two stores that were restarted on their own can reach the same number, but only a promotion gives a
store a higher generation.
"""

from __future__ import annotations

from typing import Final

_COUNTER_BITS: Final = 32


def generation(number: int) -> int:
    """The number of promotions before the life with this EPOCH number."""
    return number >> _COUNTER_BITS


def counter(number: int) -> int:
    """The place of the life in its generation: from 1 in the first one, from 0 in later ones."""
    return number & ((1 << _COUNTER_BITS) - 1)


def next_generation(number: int) -> int:
    """The number of the life that a promotion begins after the life with this number."""
    return (generation(number) + 1) << _COUNTER_BITS


def first_number(generation: int) -> int:
    """The number of the first life of a generation above 0."""
    return generation << _COUNTER_BITS
