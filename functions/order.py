"""Order: which queue comes next, of several that one worker serves.

strict      always the first one that has a job
weighted    by turns, in proportion to the weights, and evenly spread: with 3 and 1, a a b a
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidelog.store.errors import DataError

WEIGHT_MAX = 1_000


class Order:
    """The queues of one worker, in the order in which they were named.

    names    of the queues
    """

    def __init__(self, weights: Mapping[str, int] | None, names: Iterable[str]) -> None:
        """`weights`: None = strict."""
        self.names = tuple(names)
        self._weights = weights
        self._credits = dict.fromkeys(self.names, 0)

    def next(self, ready: Collection[str]) -> str | None:
        """The queue that comes next, of those that may have a job. None = there is none."""
        names = [name for name in self.names if name in ready]
        if not names:
            return None
        if self._weights is None:
            return names[0]
        return max(names, key=lambda name: self._ahead(name))  # the first one of equals

    def took(self, name: str, ready: Collection[str]) -> None:
        """A job of the queue was taken, while these queues might have had one."""
        if self._weights is None:
            return
        rivals = [each for each in self.names if each in ready or each == name]
        for each in rivals:
            self._credits[each] += self._weights[each]
        self._credits[name] -= sum(self._weights[each] for each in rivals)
        for each in self.names:
            if each not in rivals:
                self._credits[each] = 0  # a queue that had no job saves no turns

    def _ahead(self, name: str) -> int:
        assert self._weights is not None
        return self._credits[name] + self._weights[name]


def order_of(given: Iterable[str] | Mapping[str, int] | None, known: Iterable[str]) -> Order:
    """The order that a caller asks for: names = strict, a mapping = by weights, None = all of `known` by even turns.

    Raises DataError.
    """
    if given is None:
        names = list(known)
        if not names:
            raise DataError("no function is a task: decorate one with `tasks.task`")
        return Order(dict.fromkeys(names, 1), names)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise DataError(f"queues must be names, or a mapping of names to weights, not {given!r}")
    named = list(given)
    if not named or len(set(named)) < len(named):
        raise DataError(f"queues must be names, each once, and at least one: {named!r}")
    if strange := [name for name in named if name not in set(known)]:
        raise DataError(
            f"no task is of the queue {strange[0]!r}; those that there are: {', '.join(sorted(known))}"
        )
    weights = given if isinstance(given, Mapping) else None
    for weight in () if weights is None else weights.values():
        whole = isinstance(weight, int) and not isinstance(weight, bool)
        if not whole or not 1 <= weight <= WEIGHT_MAX:
            raise DataError(f"a weight must be an integer from 1 to {WEIGHT_MAX:,}, not {weight!r}")
    return Order(weights, named)
