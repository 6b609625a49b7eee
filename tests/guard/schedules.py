"""Scripts of schedules, one for each argument of `schedule` and one for their changes."""

from __future__ import annotations

from datetime import timedelta

from tests.guard.tape import Tape, script


@script
async def schedule_cron(t: Tape) -> None:
    """Ticks of cron expressions, with seconds too, and wrong ones."""
    mails = t.queue("mails")
    await t.schedule("hours", cron="0 * * * *", queue="mails", value="hour")
    await t.schedule("seconds", cron="*/20 * * * * *", queue="mails")
    await t.schedule("wrong", cron="x", queue="mails")
    await t.schedules.list()
    await t.wait(45)
    await t.work(mails, "anna")
    await t.schedules.remove("seconds")
    await t.reopen()
    await t.schedules.list()
    await t.wait(3600)
    await t.work(mails, "anna")
    await t.schedules.list()


@script
async def schedule_tz(t: Tape) -> None:
    """A tick that a change to summer time skips, one that a change to winter time repeats, and an unknown zone."""
    mails = t.queue("mails")
    await t.schedule("skipped", "30 2 * * *", queue="mails", tz="Europe/Berlin")
    await t.schedule("wrong", "30 2 * * *", queue="mails", tz="Europe/Atlantis")
    await t.wait(136 * 86_400)  # the night before 2024-03-31
    await t.work(mails, "anna")
    await t.reopen()
    for _ in range(3):
        await t.wait(43_200)
        await t.work(mails, "anna")
    await t.wait(209 * 86_400)  # the night before 2024-10-27
    for hours in (12, 2.5, 1, 8.5, 12):
        await t.wait(hours * 3600)
        await t.work(mails, "anna")
    await t.schedules.list()


@script
async def schedule_every(t: Tape) -> None:
    """Ticks of intervals; the same schedule given again changes nothing, another one replaces it."""
    mails = t.queue("mails")
    await t.schedule("poll", every=60, queue="mails", value={"n": 1})
    await t.schedule("poll", every=60, queue="mails", value={"n": 1})
    await t.schedule("fast", every=timedelta(seconds=7), queue="mails")
    await t.schedule("wrong", every=0.5, queue="mails")
    await t.wait(8)
    await t.work(mails, "anna")
    await t.schedule("fast", every=9, queue="mails")
    await t.reopen()
    await t.schedules.list()
    await t.wait(61)
    await t.work(mails, "anna")
    await t.schedules.list()


@script
async def schedule_value(t: Tape) -> None:
    """The value of a tick as its codec encodes it."""
    await t.schedule("json", every=5, queue="mails", value={"n": None})
    await t.schedule("wrong", every=5, queue="mails", value=object())
    await t.schedules.list()
    await t.reopen()
    await t.wait(6)
    await t.look(t.queue("mails"))
    await t.work(t.queue("mails"), "anna")


@script
async def schedule_codec(t: Tape) -> None:
    """As the queue's codec, the schedule's encodes the value."""
    await t.schedule("bytes", every=5, queue="raw", value=b"\xff", codec="bytes")
    await t.schedule("msgpack", every=5, queue="packed", value={"n": 1}, codec="msgpack")
    await t.schedules.list()
    await t.reopen()
    await t.wait(6)
    await t.work(t.queue("raw", codec="bytes"), "anna")
    await t.work(t.queue("packed", codec="msgpack"), "anna")


@script
async def schedule_catch_up(t: Tape) -> None:
    """Of the ticks that nobody fetched, one, all or none are made up."""
    mails = t.queue("mails")
    for catch_up in ("one", "all", "none", "some"):
        await t.schedule(catch_up, every=40, queue="mails", value=catch_up, catch_up=catch_up)
    await t.wait(130)
    await t.work(mails, "anna")
    await t.reopen()
    await t.wait(39)
    await t.work(mails, "anna")
    await t.wait(200)
    await t.work(mails, "anna")
    await t.schedules.list()


@script
async def schedule_priority(t: Tape) -> None:
    """The jobs of a schedule have its priority."""
    mails = t.queue("mails")
    await t.schedule("urgent", every=10, queue="mails", value="urgent", priority=8)
    await t.schedule("plain", every=10, queue="mails", value="plain", priority=0)
    await t.schedule("wrong", every=10, queue="mails", priority=11)
    await mails.put("put")
    await t.wait(11)
    await t.work(mails, "anna")
    await t.reopen()
    await t.wait(10)
    await t.work(mails, "anna", batch=10)
    await t.look(mails)


@script
async def schedule_changes(t: Tape) -> None:
    """A schedule is paused, resumed and removed; ticks of the pause are not made up."""
    mails = t.queue("mails")
    await t.schedule("poll", every=10, queue="mails")
    await t.schedule("other", "* * * * *", queue="mails")
    for name in ("poll", "poll", "none"):
        await t.schedules.pause(name)
    await t.wait(25)
    await t.work(mails, "anna")
    await t.schedules.list()
    await t.reopen()
    for name in ("poll", "poll", "none"):
        await t.schedules.resume(name)
    await t.work(mails, "anna")
    await t.schedules.pause("poll")
    await t.schedule("poll", every=12, queue="mails")
    await t.schedules.resume("poll")
    await t.wait(13)
    await t.work(mails, "anna")
    for name in ("poll", "poll"):
        await t.schedules.remove(name)
    await t.wait(61)
    await t.work(mails, "anna")
    await t.schedules.list()
