"""The screens of `tidelog top`: streams, queues, one stream with its groups and entries, and the life of an entry.

Looks are taken in a thread, one at a time, so that a slow disk or server does not hold up the keys. At most ROWS_MAX
streams are in the table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static
from textual.worker import Worker, WorkerState

from tidelog.engine.api import DbKey
from tidelog.figures.model import GroupFigures, QueueFigures, StreamFigures
from tidelog.tools.text import argument, place_text, span
from tidelog.tools.top.look import SORTS, EntryRow, Look, Source, ranked
from tidelog.tools.top.table import Table
from tidelog.tools.top.words import (
    GROUP_HEAD,
    QUEUE_HEAD,
    STREAM_HEAD,
    count,
    fact_lines,
    group_cells,
    queue_cells,
    stream_cells,
)

ROWS_MAX: Final = 200
ENTRIES_SHOWN: Final = 100
ENTRY_CHARS: Final = 160
CONSUMER_HEAD: Final = ("GROUP", "CONSUMER", "PENDING", "IDLE")

T = TypeVar("T")


class Life(Screen[None]):
    """The life of one entry."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        yield Static(self._title, id="head", markup=False)
        with VerticalScroll():
            yield Static("reading the log ...", id="life", markup=False)
        yield Footer()

    def tell(self, text: str) -> None:
        self.query_one("#life", Static).update(text)


class OfStream(Screen[None]):
    """One stream: its groups with their consumers, and its newest entries."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, place: DbKey) -> None:
        super().__init__()
        self.place = place

    def compose(self) -> ComposeResult:
        yield Static(place_text(*self.place), id="head", markup=False)
        yield Table(GROUP_HEAD, "groups", right=" ".join(GROUP_HEAD[2:]))
        yield Table(CONSUMER_HEAD, "consumers", right="PENDING IDLE")
        yield Table(("ENTRY", "FIELDS"), "entries")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#entries", Table).focus()

    def tell(self, groups: list[GroupFigures], entries: list[EntryRow], at_ms: int) -> None:
        self.query_one("#groups", Table).fill(
            (str(row.name), group_cells(row, at_ms)) for row in groups
        )
        self.query_one("#consumers", Table).fill(
            (
                f"{row.name!r} {one.name!r}",
                (
                    argument(row.name),
                    argument(one.name),
                    count(one.pending),
                    "?" if one.idle_ms is None else span(one.idle_ms),
                ),
            )
            for row in groups
            for one in row.members
        )
        self.query_one("#entries", Table).fill(
            (row.entry_id, (row.entry_id, _short(" ".join(map(argument, row.fields)))))
            for row in entries
        )


class Top(App[None]):
    """The application. `go` runs it and raises the error of the source that ended it, if one did."""

    TITLE = "tidelog top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; background: $panel; }
    #filter { display: none; }
    #filter.shown { display: block; }
    #streams, #entries { height: 1fr; }
    #queues { height: 1fr; display: none; }
    #queues.shown { display: block; }
    #streams.hidden { display: none; }
    #groups, #consumers { height: auto; max-height: 30%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("tab", "queues", "Queues", priority=True),
        Binding("space", "pause", "Pause"),
        Binding("escape", "unfilter", "All", show=False),
    ]

    class Answered(Message):
        """A question to the source is answered; `tell` draws the answer."""

        def __init__(self, tell: Callable[[], None]) -> None:
            super().__init__()
            self.tell = tell

    def __init__(self, source: Source, *, every: float, sort: str, wanted: str) -> None:
        super().__init__()
        self.look: Look | None = None
        self.sort, self.wanted, self.backwards, self.paused = sort, wanted, False, False
        self.failure: BaseException | None = None
        self._source = source
        self._every = every
        self._lock = threading.Lock()  # one question to the source at a time
        self._shown: list[DbKey] = []
        # of the last drawing: the streams of its look, how they were ranked, and the result
        self._ranked: (
            tuple[list[StreamFigures], tuple[str, bool, str], list[StreamFigures]] | None
        ) = None
        self._with_queues = False

    def go(self) -> None:
        self.run()
        self.settle()
        if self.failure is not None:
            raise self.failure

    def settle(self) -> None:
        """Wait for the question that may be under way, so that the source can be closed."""
        with self._lock:
            pass

    def compose(self) -> ComposeResult:
        yield Static("looking ...", id="head", markup=False)
        yield Input(value=self.wanted, placeholder="only keys that contain ...", id="filter")
        yield Table(STREAM_HEAD, "streams", right=" ".join(STREAM_HEAD[1:]))
        yield Table(QUEUE_HEAD, "queues", right=" ".join(QUEUE_HEAD[2:]))
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#streams", Table).focus()
        self.set_interval(self._every, self.take)
        self.take()

    # --- looking

    def take(self) -> None:
        """Look, unless paused or the look before is still going on."""
        # While the application ends, its timer may still run, and the screens are gone.
        if self.screen_stack and not self.paused and not self._lock.locked():
            self.take_now()

    def take_now(self) -> None:
        """Look as soon as the look before is over."""
        inside = self.screen if isinstance(self.screen, OfStream) else None
        self._ask(lambda: self._once(inside), self._tell)

    def _once(self, inside: OfStream | None) -> tuple[Look, list[QueueFigures], Any]:
        look = self._source.look(self._shown)
        queues = self._source.queues() if self._with_queues else []
        if inside is None:
            return look, queues, None
        groups = self._source.groups(inside.place)
        return look, queues, (inside, groups, self._source.entries(inside.place, ENTRIES_SHOWN))

    def _ask(self, question: Callable[[], T], answer: Callable[[T], None]) -> None:
        def work() -> None:
            with self._lock:
                found = question()
            # Not `call_from_thread`, which waits for the loop, and the loop may have ended.
            self.post_message(self.Answered(lambda: answer(found)))

        self.run_worker(work, thread=True, exit_on_error=False)

    @on(Answered)
    def _answered(self, event: Answered) -> None:
        # The screens are taken apart, one widget after the other, while the application ends.
        if self.screen_stack and all(map(self.main.query, ("#head", "#streams", "#queues"))):
            event.tell()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and self.failure is None:
            self.failure = event.worker.error
            self.exit()

    def _tell(self, found: tuple[Look, list[QueueFigures], Any]) -> None:
        self.look, queues, inside = found
        self.show_streams()
        self.main.query_one("#queues", Table).fill(
            (f"{row.db} {row.key!r} {row.group!r}", queue_cells(row, self.look.at_ms))
            for row in queues
        )
        if inside is not None:
            screen, groups, entries = inside
            if screen.is_attached:
                screen.tell(groups, entries, self.look.at_ms)

    def show_streams(self) -> None:
        """Draw the streams of the last look."""
        look = self.look
        if look is None:
            return
        asked = self.sort, self.backwards, self.wanted
        if self._ranked is None or self._ranked[0] is not look.streams or self._ranked[1] != asked:
            found = ranked(look.streams, self.sort, reverse=self.backwards, wanted=self.wanted)
            self._ranked = look.streams, asked, found
        rows = self._ranked[2]
        drawn = rows[:ROWS_MAX]
        self._shown = [row.place for row in drawn]
        order = f"by {self.sort}{', reversed' if self.backwards else ''}"
        only = f" with {self.wanted!r} in the key" if self.wanted else ""
        state = "; paused" if self.paused else ""
        streams = f"{len(rows):,} streams{only}, {order}, {len(drawn):,} shown{state}"
        head = "\n".join([self._source.title, *fact_lines(look), streams])
        self.main.query_one("#head", Static).update(head)
        self.main.query_one("#streams", Table).fill(
            (_place_name(row.place), stream_cells(row, look.at_ms)) for row in drawn
        )

    @property
    def main(self) -> Screen[Any]:
        """The screen with the streams, whatever is shown above it."""
        return self.screen_stack[0]

    # --- keys

    def action_sort(self) -> None:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        self.show_streams()

    def action_reverse(self) -> None:
        self.backwards = not self.backwards
        self.show_streams()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.show_streams()

    def action_filter(self) -> None:
        if self.screen is not self.main:
            return
        box = self.main.query_one("#filter", Input)
        box.add_class("shown")
        box.focus()

    def action_unfilter(self) -> None:
        box = self.main.query_one("#filter", Input)
        box.value = ""
        self._leave_filter()

    def action_queues(self) -> None:
        if self.screen is not self.main:
            return
        self._with_queues = not self._with_queues
        streams, queues = (self.main.query_one(name, Table) for name in ("#streams", "#queues"))
        streams.set_class(self._with_queues, "hidden")
        queues.set_class(self._with_queues, "shown")
        (queues if self._with_queues else streams).focus()
        self.take()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.wanted = event.value
        self.show_streams()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._leave_filter()

    def _leave_filter(self) -> None:
        self.main.query_one("#filter", Input).remove_class("shown")
        self.main.query_one("#streams", Table).focus()

    @on(Table.Chosen)
    def _chosen(self, event: Table.Chosen) -> None:
        table, chosen = event.table, event.name
        if table.id == "streams":
            place = next((place for place in self._shown if _place_name(place) == chosen), None)
            if place is not None:
                self.push_screen(OfStream(place))
                self.take_now()
        elif table.id == "entries" and chosen and isinstance(self.screen, OfStream):
            place = self.screen.place
            life = Life(f"{place_text(*place)} {chosen}")
            self.push_screen(life)
            self._ask(
                lambda: self._source.why(place, chosen),
                lambda text: life.tell(text) if life.is_attached else None,
            )


def _place_name(place: DbKey) -> str:
    return f"{place[0]} {place[1]!r}"


def _short(text: str) -> str:
    return text if len(text) <= ENTRY_CHARS else text[:ENTRY_CHARS] + "..."
