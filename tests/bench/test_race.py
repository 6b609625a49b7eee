"""Races measure what they are told to, as often as they say, by turns."""

from bench.race import CPU, Contender, Value, medians, race


def told(name: str, seen: list[tuple[str, int]], **options: int) -> Contender:
    """A contender whose operation takes a millisecond, half of it of processor time."""

    def slice(count: int) -> tuple[float, float]:
        seen.append((name, count))
        return count * 0.001, count * 0.0005

    return Contender(name, slice, **options)


def test_every_contender_runs_in_every_round_and_whole_quanta() -> None:
    seen: list[tuple[str, int]] = []
    sides = [told("a", seen, quantum=10), told("b", seen, quantum=10)]
    rates = race(sides, rounds=4, slice_s=0.1)
    assert rates == {"a": Value(1000.0), "b": Value(1000.0)}
    rounds = seen[-8:]
    assert {count for _, count in rounds} == {100}, "the size is found before the first round"
    for at in range(0, 8, 2):
        assert {name for name, _ in rounds[at : at + 2]} == {"a", "b"}
    assert len({rounds[at][0] for at in range(0, 8, 2)}) == 2, "each goes first at times"


def test_two_versions_are_sides_of_one_race() -> None:
    seen: list[tuple[str, int]] = []
    this, other = told("a", seen), told("a", seen, version=1, most=1)
    found = race([this, other], rounds=3, slice_s=0.01, clock=CPU)
    assert found == {"a": Value(2000.0, 2000.0)}


def test_a_slice_is_never_larger_than_the_contender_allows() -> None:
    seen: list[tuple[str, int]] = []
    race([told("one", seen, most=50)], rounds=2, slice_s=0.1)
    assert max(count for _, count in seen) == 50


def test_medians_are_by_version() -> None:
    assert medians({("a", 0): [3, 1, 2], ("a", 1): [9], ("b", 0): [4]}) == {
        "a": Value(2, 9),
        "b": Value(4),
    }
