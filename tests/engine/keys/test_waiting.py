"""The blocking registry: who is asked again, and in what order (spec 10.1)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tidelog.engine.keys.state import State
from tidelog.engine.keys.waiting import Waiter, Waiting
from tidelog.engine.reply import Park
from tidelog.engine.streams.stream import Stream

A, B, C = (0, b"a"), (0, b"b"), (0, b"c")


def state_with_streams(*places: tuple[int, bytes]) -> State:
    state = State()
    for db, key in places:
        state.databases[db].keys[key] = Stream(1)
    return state


def waiter(
    *places: tuple[int, bytes], group: bool = True, claim_at: int | None = None, owner: str = ""
) -> Waiter:
    name = b"XREADGROUP" if group else b"xread"
    return Waiter(Park(list(places), [name], 0, claim_at), 0, owner)


def served(waiting: Waiting, state: State) -> list[Waiter]:
    return list(waiting.visits(state))


def test_oldest_first_and_keys_in_the_order_they_were_signalled() -> None:
    waiting, state = Waiting(), state_with_streams(A, B)
    on_a, on_b, also_a = waiter(A), waiter(B), waiter(A)
    for each in (on_a, on_b, also_a):
        waiting.park(each)
    waiting.signal([B, A, B])
    assert waiting.signalled
    assert served(waiting, state) == [on_b, on_a, also_a]
    assert not waiting.keys and not waiting.signalled


def test_a_waiter_on_several_keys_leaves_all_of_them() -> None:
    waiting, state = Waiting(), state_with_streams(A, B)
    both = waiter(A, B)
    waiting.park(both)
    waiting.signal([A, B])
    assert served(waiting, state) == [both]
    assert not waiting.keys


def test_one_that_parks_again_goes_to_the_tail_and_is_visited_once() -> None:
    waiting, state = Waiting(), state_with_streams(A)
    first, second = waiter(A), waiter(A)
    waiting.park(first)
    waiting.park(second)
    waiting.signal([A])
    visited = []
    for each in waiting.visits(state):
        visited.append(each)
        waiting.park(each)
    assert visited == [first, second]
    waiting.remove(first)
    waiting.park(first)
    waiting.signal([A])
    assert served(waiting, state) == [second, first]


def test_keys_signalled_while_serving_get_a_further_round() -> None:
    waiting, state = Waiting(), state_with_streams(A, B, C)
    on_a, on_b, on_c = waiter(A), waiter(B), waiter(C)
    for each in (on_a, on_b, on_c):
        waiting.park(each)
    waiting.signal([A, B])
    visited = []
    for each in waiting.visits(state):
        visited.append(each)
        if each is on_a:
            waiting.signal([C])
    assert visited == [on_a, on_b, on_c]


def test_one_cancelled_while_another_is_served_is_not_visited() -> None:
    waiting, state = Waiting(), state_with_streams(A)
    first, second = waiter(A), waiter(A)
    waiting.park(first)
    waiting.park(second)
    waiting.signal([A])
    visits = waiting.visits(state)
    assert next(visits) is first
    waiting.remove(second)
    assert list(visits) == []


def test_only_groups_hear_of_a_key_that_went_away_or_changed_type() -> None:
    waiting, state = Waiting(), State()
    state.databases[0].keys[b"b"] = b"a string"
    reader, group = waiter(A, B, group=False), waiter(A, B)
    waiting.park(reader)
    waiting.park(group)
    waiting.signal([A])
    assert served(waiting, state) == [group]
    waiting.signal([B])
    assert served(waiting, state) == []
    state.databases[0].keys[b"b"] = Stream(1)
    waiting.signal([B])
    assert served(waiting, state) == [reader]


def test_a_signal_nobody_waits_for_is_forgotten() -> None:
    waiting = Waiting()
    waiting.signal([A])
    assert not waiting.signalled
    waiting.park(waiter(A))
    assert not waiting.signalled


def test_remove_is_for_whoever_is_still_there() -> None:
    waiting = Waiting()
    each = waiter(A, B)
    waiting.remove(each)
    waiting.park(each)
    assert waiting.waiters() == [each]
    waiting.remove(each)
    waiting.remove(each)
    assert waiting.waiters() == []


def test_claims_are_due_by_key_at_the_earliest_of_its_waiters() -> None:
    waiting, state = Waiting(), state_with_streams(A, B)
    late, soon, never = waiter(A, claim_at=900), waiter(A, B, claim_at=500), waiter(B)
    for each in (late, soon, never):
        waiting.park(each)
    assert waiting.next_claim_at() == 500
    waiting.claims_due(499)
    assert not waiting.signalled
    waiting.claims_due(500)
    assert served(waiting, state) == [late, soon, never]
    assert waiting.next_claim_at() is None
    late.again(Park([A], late.args, 0, 900))
    waiting.park(late)
    assert waiting.next_claim_at() == 900
    waiting.remove(late)
    assert waiting.next_claim_at() is None


# Of each waiter: on which keys and how it waits, and whether it finds something.
kinds = st.sampled_from(
    ["reader g", "reader g", "reader g", "reader h", "both", "A alone", "XREAD"]
)
crowds = st.lists(st.tuples(kinds, st.booleans()), max_size=8)


@given(crowds, st.booleans(), st.lists(st.sampled_from([A, B]), max_size=3))
def test_who_needs_no_decision_stands_where_one_who_is_parked_again_stands(
    crowd: list[tuple[str, bool]], exists: bool, signals: list[tuple[int, bytes]]
) -> None:
    orders = []
    for short in (False, True):
        waiting = Waiting()
        state = state_with_streams(A, B) if exists else State()
        busy = set()
        for number, (kind, finds) in enumerate(crowd):
            each = waiter(*([A, B] if kind == "both" else [A]), group=kind != "XREAD")
            each.owner = number
            if kind.startswith("reader"):
                each.reader = kind[-1:].encode(), b"c", None
            if finds:
                busy.add(number)
            waiting.park(each)

        def idle(waiters: Sequence[Waiter], at: int, alike: bool, busy: set[int] = busy) -> int:
            readers = {each.reader for each in waiters[at:]}
            assert alike <= (readers == {waiters[at].reader})
            run = 0
            while at + run < len(waiters):
                each = waiters[at + run]
                if each.reader is None or each.owner in busy or each.reader != waiters[at].reader:
                    break
                run += 1
            return run

        served = []
        for place in signals:
            waiting.signal([place])
            for each in waiting.visits(state, idle if short else None):
                if each.owner in busy:
                    served.append(each.owner)
                else:
                    waiting.park(each)
        queues = {
            place: [each.owner for each in waiting._queues.get(place, ())] for place in (A, B)
        }
        orders.append((served, queues))
    assert orders[0] == orders[1]
