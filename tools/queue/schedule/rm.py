"""`tidelog queue schedule rm`: delete a schedule."""

from __future__ import annotations

import click

from tidelog.tools import exits
from tidelog.tools.names import schedules
from tidelog.tools.places import Place, at_place
from tidelog.tools.queue.schedule.change import change


@at_place("tidelog queue schedule rm orders-data nightly", codes=exits.CHANGING)
@click.argument("name", shell_complete=schedules)
def command(path: Place, name: str, as_json: bool) -> None:
    change(
        *(path, name, "db.schedules.remove()", "removed", as_json),
        lambda store: store.schedules.remove(name),
    )
