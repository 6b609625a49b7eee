"""A table of text with a cursor, drawn line by line.

textual's DataTable renders each cell through rich and keeps styles for each: drawing a screen of it once a second takes
more of the processor than all looks together. This one makes a strip of plain text for each visible line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

GAP: Final = "  "
HEAD: Final = Style(bold=True, reverse=True)
CURSOR: Final = Style(reverse=True)
PLAIN: Final = Style()


class Table(ScrollView, can_focus=True):
    """Rows with names under a head that stays. The columns named in `right` are set to the right."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "choose", "Open"),
    ]

    class Chosen(Message):
        """A row was chosen."""

        def __init__(self, table: Table, name: str) -> None:
            super().__init__()
            self.table = table
            self.name = name

    def __init__(self, head: Sequence[str], id: str, right: str = "") -> None:
        super().__init__(id=id)
        self.cursor = 0
        self._head = tuple(head)
        self._right = {at for at, name in enumerate(head) if name in right.split()}
        self._rows: list[tuple[str, tuple[str, ...]]] = []
        self._widths: list[int] = []
        self._measure()

    @property
    def rows(self) -> list[tuple[str, tuple[str, ...]]]:
        """(name, cells) of each row."""
        return self._rows

    @property
    def chosen(self) -> str:
        """The name of the row at the cursor; nothing if there are no rows."""
        return self._rows[self.cursor][0] if self._rows else ""

    def fill(self, rows: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        """Show these rows. The cursor stays at the row of its name, if it is still there."""
        found = list(rows)
        if found == self._rows:
            return
        name = self.chosen
        lines = len(self._rows)
        self._rows = found
        at = next((at for at, row in enumerate(found) if row[0] == name), self.cursor)
        self.cursor = max(0, min(at, len(found) - 1))
        self._measure()
        if lines != len(found):
            self.refresh(layout=True)
        else:
            self.refresh()

    def _measure(self) -> None:
        cells = [self._head, *(row[1] for row in self._rows)]
        self._widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        width = sum(self._widths) + len(GAP) * len(self._widths)
        self.virtual_size = Size(width, len(self._rows) + 1)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows) + 1

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        width = self.size.width
        if y == 0:
            return self._strip(self._head, HEAD, left, width)
        at = top + y - 1
        if at >= len(self._rows):
            return Strip.blank(width)
        at_cursor = at == self.cursor and self.has_focus
        return self._strip(self._rows[at][1], CURSOR if at_cursor else PLAIN, left, width)

    def _strip(self, cells: tuple[str, ...], style: Style, left: int, width: int) -> Strip:
        text = "".join(
            (
                " " * (size - cell_len(cell)) + cell
                if at in self._right
                else set_cell_size(cell, size)
            )
            + GAP
            for at, (cell, size) in enumerate(zip(cells, self._widths, strict=True))
        )
        strip = Strip([Segment(" " + text, self.rich_style + style)])
        return strip.crop(left, left + width).extend_cell_length(width, self.rich_style + style)

    # --- the cursor

    def action_move(self, lines: int) -> None:
        self.cursor = max(0, min(self.cursor + lines, len(self._rows) - 1))
        # one line more, since the head covers the first
        self.scroll_to_region(Region(0, self.cursor, 1, 2), animate=False)
        self.refresh()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_choose(self) -> None:
        if self._rows:
            self.post_message(self.Chosen(self, self.chosen))

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: Click) -> None:
        at = self.scroll_offset.y + event.y - 1
        if event.y > 0 and at < len(self._rows):
            again = at == self.cursor
            self.cursor = at
            self.refresh()
            if again:
                self.action_choose()
