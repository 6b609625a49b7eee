"""Ordered: the states that a power cut leaves on a file system which keeps more order than POSIX asks for.

ext4 and xfs have a journal of names and sizes. As a model of them:

    names      the changes are durable in the order in which they were made. A sync of a file or directory that has
               changes of its own name, names or size makes all earlier changes durable
    data       a file does not get a name or a size before the data that was written to it by then. A new block never
               shows old contents
    sectors    sectors that had a block already are independent, as in crash/states.py

The rules are kinder than those of some mount options (`data=writeback`, `noauto_da_alloc`), and than ext4, whose files
can show zeros after an append to a block that they had already. A finding that these states show can happen on usual
disks. One that only the states of POSIX show may need a file system that nobody uses.
"""

from __future__ import annotations

from tidelog.crash.states import BEFORE, NAME, SECTOR, SIZE, Choice, Cut, State, newest


def ordered(cut: Cut, state: State) -> State:
    """The state nearest to `state` that keeps the order."""
    found = list(state)
    names = [n for n, choice in enumerate(cut.choices) if choice.place <= NAME]
    least = sum(_time(cut.choices[n], 1) < cut.journaled for n in names)
    done = max(least, sum(found[n] for n in names))
    shown = dict(cut.shown)  # for each file, the time of the change that gave it its name
    for place, n in enumerate(names):
        found[n] = int(place < done)
        if found[n]:
            shown[cut.choices[n].node] = _time(cut.choices[n], 1)
    sizes: dict[int, int] = {}  # for each file, the time of its size
    tails: dict[int, int] = {}  # and the sector in which it ended before
    for n, choice in enumerate(cut.choices):
        if choice.place == SIZE:
            found[n] = _not_before(choice, found[n], shown.get(choice.node, BEFORE))
            sizes[choice.node] = _time(choice, found[n])
            before = choice.options[newest(choice, BEFORE)].value
            assert isinstance(before, int)
            tails[choice.node] = before // SECTOR
    for n, choice in enumerate(cut.choices):
        if choice.place < 0:
            continue
        if choice.options[found[n]].origin >= 0:
            found[n] = newest(choice, BEFORE)
        least = shown.get(choice.node, BEFORE)
        if not cut.has_block(choice) or choice.place == tails.get(choice.node):
            least = max(least, sizes.get(choice.node, BEFORE))
        found[n] = _not_before(choice, found[n], least)
    return tuple(found)


def _time(choice: Choice, option: int) -> int:
    return max(choice.options[option].times)


def _not_before(choice: Choice, option: int, least: int) -> int:
    """The option, or the one that was there at the time `least` if that is newer."""
    oldest = newest(choice, least)
    return option if _time(choice, option) >= _time(choice, oldest) else oldest
