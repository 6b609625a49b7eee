"""XTRIM, and the trimming that XADD's options share with it (spec 5.2, 5.3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from tidelog.engine import idlist, ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.streams.references import (
    ACKED,
    DELREF,
    KEEPREF,
    POLICIES,
    drop_references_below,
    referenced,
)
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import XTRIM, Effect
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.keys.state import Settings
from tidelog.engine.reply import Reply
from tidelog.engine.streams.node import Node
from tidelog.engine.streams.stream import Stream

MAXLEN: Final = b"MAXLEN"
MINID: Final = b"MINID"

LIMIT_NODES: Final = 100  # default limit of `~`, in nodes of stream-node-max-entries
LIMIT_NO_NODES: Final = 10_000  # default limit of `~`, in entries, when nodes have no limit
LIMIT_MAX: Final = 1_000_000

TWO_STRATEGIES: Final = (
    b"ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
)
MAXLEN_NEGATIVE: Final = b"ERR The MAXLEN argument must be >= 0."
LIMIT_NEGATIVE: Final = b"ERR The LIMIT argument must be >= 0."
LIMIT_ALONE: Final = (
    b"ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
)
LIMIT_EXACT: Final = b"ERR syntax error, LIMIT cannot be used without the special ~ option"
NO_STRATEGY: Final = b"ERR syntax error, XTRIM must be called with a trimming strategy"


class TrimOptions:
    """MAXLEN, MINID, LIMIT and the reference policy, collected while a command's arguments are parsed.

    strategy    None, MAXLEN or MINID         threshold    a length, or an ID
    limit       entries; None = not given     policy       None = not given
    """

    __slots__ = ("strategy", "approximate", "threshold", "limit", "policy")

    def __init__(self) -> None:
        self.strategy: bytes | None = None
        self.approximate = False
        self.threshold = 0
        self.limit: int | None = None
        self.policy: bytes | None = None

    def take(self, args: list[bytes], at: int) -> int:
        """Parse the option at `at`. Returns how many arguments it takes; 0: not an option of this class.

        Raises CommandError.
        """
        word = args[at].upper()
        more = len(args) - 1 - at
        if word in (MAXLEN, MINID) and more:
            return self._take_strategy(word, args, at, more)
        if word == b"LIMIT" and more:
            self.limit = int64(args[at + 1])
            if self.limit < 0:
                raise CommandError(LIMIT_NEGATIVE)
            return 2
        if word in POLICIES and self.policy is None:
            self.policy = word
            return 1
        return 0

    def _take_strategy(self, word: bytes, args: list[bytes], at: int, more: int) -> int:
        if self.strategy is not None:
            raise CommandError(TWO_STRATEGIES)
        taken = 2
        if more >= 2 and args[at + 1] in (b"~", b"="):
            self.approximate = args[at + 1] == b"~"
            taken = 3
        threshold = args[at + taken - 1]
        if word == MAXLEN:
            self.threshold = int64(threshold)
            if self.threshold < 0:
                raise CommandError(MAXLEN_NEGATIVE)
        else:
            self.threshold = ids.parse(threshold)
        self.strategy = word
        return taken

    def finish(self, strategy_required: bool) -> None:
        """Check the options against each other. Raises CommandError."""
        if self.limit and self.strategy is None:
            raise CommandError(LIMIT_ALONE)
        if strategy_required and self.strategy is None:
            raise CommandError(NO_STRATEGY)
        if self.limit is not None and not self.approximate:
            raise CommandError(LIMIT_EXACT)

    def entries_max(self, settings: Settings) -> int:
        """The greatest number of entries to remove; 0 = no limit."""
        if not self.approximate:
            return 0
        if self.limit is not None:
            return self.limit
        default = LIMIT_NODES * settings.stream_node_max_entries
        return min(default if default > 0 else LIMIT_NO_NODES, LIMIT_MAX)


class Plan:
    """The removals of a trim, as the fields of an XTRIM effect."""

    __slots__ = ("removed", "drop", "floor", "slots", "ids")

    def __init__(self) -> None:
        self.removed = 0
        self.drop = 0  # whole nodes from the head
        self.floor = 0  # and the slots of the next node below this one
        # for the policy ACKED: the entries removed one by one, as (ordinal, slot, ordinal, slot, ...)
        self.slots: list[int] = []
        self.ids: list[int] = []  # and their IDs


class Nodes(Protocol):
    """The nodes that a trim walks: those of a stream, or of a stream as it will be after an XADD."""

    def walk(self) -> Iterator[Node]: ...

    def walk_back(self) -> Iterator[Node]: ...

    def nodes(self) -> int: ...


def plan_trim(
    stream: Stream, nodes: Nodes, length: int, options: TrimOptions, settings: Settings
) -> Plan:
    """Plan a trim of `nodes`, which have `length` live entries, as spec 5.2 says. May raise CorruptBlock.

    A trim that keeps less than it removes walks from the end, so that it does not visit the nodes that are dropped
    whole. Both directions give the same plan.
    """
    plan = Plan()
    if options.strategy == MAXLEN and length <= options.threshold:
        return plan
    if _keeps_less(stream, length, options, settings):
        _plan_from_end(plan, nodes, length, options)
        return plan
    target = options.threshold if options.strategy == MAXLEN else -1
    minimum = options.threshold if options.strategy == MINID else -1
    limit = options.entries_max(settings)
    policy = options.policy or KEEPREF
    one_by_one = policy == ACKED and bool(stream.groups)
    for node in nodes.walk():
        if target >= 0 and length <= target:
            break
        live = node.live
        if limit and plan.removed + live > limit:
            break
        whole = length - live >= target if target >= 0 else node.last < minimum
        if not whole and options.approximate and policy == KEEPREF:
            break
        before = plan.removed
        if one_by_one:
            _take_acked(plan, stream, node, length - target if target >= 0 else None, minimum)
        elif whole:
            plan.drop += 1
            plan.removed += live
        else:
            _take_part(plan, node, length - target if target >= 0 else None, minimum)
        length -= plan.removed - before
        if not whole:
            break
    return plan


def _keeps_less(stream: Stream, length: int, options: TrimOptions, settings: Settings) -> bool:
    """Whether to plan a trim from the end: fewer nodes stay than go."""
    if stream.groups and options.policy in (ACKED, DELREF):
        return False  # ACKED looks up each entry in the groups, and DELREF looks at the first node that stays
    if options.entries_max(settings):
        return False  # removes few entries
    if options.strategy == MAXLEN:
        return 2 * options.threshold < length
    # Plan from the end only if no deleted slot has an ID >= `threshold`. After an XSETID such a slot can come before
    # nodes with smaller IDs, and a walk from the end would then stop too early. There is no such slot if no entry with
    # an ID >= `threshold` was ever removed.
    cold = stream.cold
    if cold is None or stream.removed_max >= options.threshold:
        return False
    return cold.in_second_half(options.threshold)


def _plan_from_end(plan: Plan, nodes: Nodes, length: int, options: TrimOptions) -> None:
    """`plan_trim` from the end: count what stays."""
    target = options.threshold if options.strategy == MAXLEN else -1
    minimum = options.threshold
    exact = not (options.approximate and (options.policy or KEEPREF) == KEEPREF)
    kept = entries = 0  # number of nodes that stay, and number of live entries in these nodes
    first: Node | None = None  # the first of these nodes
    partly = False
    for node in nodes.walk_back():
        if target < 0:
            if node.last < minimum:
                break
        elif entries >= target:
            break
        kept += 1
        entries += node.live
        first = node
        if target >= 0 and entries > target:
            partly = True
            break
    plan.drop = nodes.nodes() - kept
    plan.removed = length - entries
    if first is None or not exact:
        return
    if target < 0:
        _take_part(plan, first, None, minimum)
    elif partly:
        _take_part(plan, first, entries - target, minimum)


def _take_acked(plan: Plan, stream: Stream, node: Node, wanted: int | None, minimum: int) -> None:
    """Add the unreferenced entries of a node, in order: the first `wanted`, or all below `minimum` if that is None."""
    slot_ids = node.ids()
    for slot in node.live_slots():
        entry_id = slot_ids[slot]
        if wanted == 0 if wanted is not None else entry_id >= minimum:
            break
        if not referenced(stream, entry_id):
            plan.slots += (node.ordinal, slot)
            plan.ids.append(entry_id)
            plan.removed += 1
            if wanted is not None:
                wanted -= 1


def _take_part(plan: Plan, node: Node, wanted: int | None, minimum: int) -> None:
    """Add the head of a node: its first `wanted` live entries, or those below `minimum` if that is None."""
    if wanted is None:
        if node.first >= minimum:
            return
        slot_ids = node.ids()
        floor = next(slot for slot, entry_id in enumerate(slot_ids) if entry_id >= minimum)
        taken = floor - (node.deleted & ((1 << floor) - 1)).bit_count()
    else:
        taken = wanted
        deleted = node.deleted
        if deleted & (deleted + 1):
            floor = node.live_slots()[wanted - 1] + 1
        else:  # if the node has deleted slots, they are its first ones, as after a trim
            floor = deleted.bit_length() + wanted
    plan.removed += taken
    if taken == node.live:
        plan.drop += 1
    elif taken:
        plan.floor = floor


def _end(nodes: Nodes, options: TrimOptions, plan: Plan) -> int:
    """The end of what a trim with DELREF removes: no entry below this ID is left, and no group may have one pending.

    So entries that were deleted earlier, and kept their pending entries, lose them too.
    """
    by_id = options.strategy == MINID
    if not (by_id or plan.removed):
        return 0
    node = next(islice(nodes.walk(), plan.drop, None), None)
    left = ids.MAX + 1
    if node is not None:
        slot_ids = node.ids()
        left = next(slot_ids[slot] for slot in node.live_slots() if slot >= plan.floor)
    return min(left, options.threshold) if by_id else left


def log_trim(
    ctx: Context,
    key: bytes,
    stream: Stream,
    nodes: Nodes,
    options: TrimOptions,
    length: int,
    plan: Plan,
) -> None:
    """Append the effects of a plan for `nodes` with `length` entries; none if it removes nothing.

    May raise CorruptBlock.
    """
    if options.policy == DELREF and any(len(group.pending) for group in stream.groups.values()):
        drop_references_below(ctx, key, stream, _end(nodes, options, plan))
    if not plan.removed:
        return
    effect: Effect = (
        *(XTRIM, ctx.db, key, length - plan.removed, plan.removed, plan.drop, plan.floor),
        *(tuple(plan.slots), idlist.pack(plan.ids) if plan.ids else ()),
    )
    ctx.effects.append(effect)


@command("xtrim", -4, "write")
def xtrim(ctx: Context, args: list[bytes]) -> Reply:
    """XTRIM key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]"""
    options = TrimOptions()
    at = 2
    while at < len(args):
        taken = options.take(args, at)
        if not taken:
            raise CommandError(SYNTAX)
        at += taken
    options.finish(strategy_required=True)
    stream = ctx.stream(args[1])
    if stream is None:
        return 0
    plan = plan_trim(stream, stream, stream.length, options, ctx.settings)
    log_trim(ctx, args[1], stream, stream, options, stream.length, plan)
    return plan.removed
