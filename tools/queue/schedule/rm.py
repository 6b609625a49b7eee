"""`tidelog queue schedule rm`: delete a schedule."""

from __future__ import annotations

import click

from tidelog.tools import exits
from tidelog.tools.names import schedules
from tidelog.tools.places import PLACE, AtPlace, Place
from tidelog.tools.queue.schedule.change import change
from tidelog.tools.text import examples


@click.command(
    cls=AtPlace,
    help="Delete a schedule; jobs that it has put stay in their queue.",
    epilog=examples(
        "tidelog queue schedule rm orders-data nightly",
        codes=(*exits.READING, exits.LOCKED),
    ),
)
@click.argument("path", type=PLACE)
@click.argument("name", shell_complete=schedules)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(path: Place, name: str, as_json: bool) -> None:
    change(
        *(path, name, "db.schedules.remove()", "removed", as_json),
        lambda store: store.schedules.remove(name),
    )
