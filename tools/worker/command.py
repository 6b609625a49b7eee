"""`tidelog worker`: call a function with each job of a queue, in threads or tasks of one or more processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

import tidelog
from tidelog.aof import errors as aof
from tidelog.api.queue.running.plan import (
    PROCESSES_MAX,
    WORKERS_MAX,
    Recycled,
    check_functions,
    is_coroutine,
    log,
)
from tidelog.client.opening import TIMEOUT_S
from tidelog.client.processes import Processes, end_with_parent
from tidelog.jobs.codecs import NAMED
from tidelog.server.config.kinds import memory_bytes
from tidelog.store.errors import DataError, NotAStore
from tidelog.tools import exits
from tidelog.tools.failed import Failed
from tidelog.tools.names import groups, queues
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.store import names_of, no_queue, no_store
from tidelog.tools.queue.store import opened as reader
from tidelog.tools.queue.value import retry_option
from tidelog.tools.times import duration
from tidelog.tools.worker import logs
from tidelog.tools.worker.handler import Named, load
from tidelog.tools.worker.sources import Sources
from tidelog.tools.worker.tasks import (
    OF_TASKS,
    check_options,
    queues_of,
    run_options,
    tasks_of,
    work_of,
)

LOOK_S: Final = 1.0
# Options of the queue, and arguments of its `run`, that have the names of the command's options.
OPTIONS: Final = (
    *("codec", "retry_after", "max_deliveries", "max_failures", "keep"),
    *("concurrency", "concurrency_per_key", "rate", "lease", "retry", "time_limit"),
)
RUN: Final = ("workers", "drain", "worker", "batch", "results", "max_jobs", "max_memory")
# Functions of the program: how many arguments each takes, and which.
HOOKS: Final = {
    "on_dead": (1, "one argument, the dead job"),
    "on_retry": (3, "three arguments: the job, the error and the pause"),
    "on_done": (2, "two arguments: the job and its result"),
}
AROUND: Final = (2, "two arguments: the job and next")


# A child that ends with one of these would do so again.
FINAL: Final = frozenset((exits.USAGE, exits.NOT_A_STORE, exits.DAMAGED, exits.NEWER))


within: Final = partial(duration, most=86_400)  # at most a day


def count_of(ctx: Any, param: Any, given: str) -> int:
    """A number of processes; auto = that of the processors that this process may use."""
    if given == "auto":
        return min(len(os.sched_getaffinity(0)), PROCESSES_MAX)
    if given.isdecimal() and 1 <= int(given) <= PROCESSES_MAX:
        return int(given)
    raise click.BadParameter(f"{given!r} is neither auto nor a number from 1 to {PROCESSES_MAX}")


def bytes_of(ctx: Any, param: Any, given: str | None) -> int | None:
    """A number of bytes, or one with a unit."""
    found = None if given is None else memory_bytes(given)
    if given is not None and not found:
        raise click.BadParameter(f"{given!r} is no size such as 500mb")
    return found


class Wrong(Failed):
    """Options that contradict each other."""

    exit_code = exits.USAGE


@at_path_or_url(
    "tidelog worker mail-data mails work:send",
    "tidelog worker mail-data mails work:send --processes 2 --workers 8 --drain 1m",
    "tidelog worker mail-data mails work:send --reload --loglevel debug",
    "tidelog worker redis://mail.example:6379 mails work:send",
    "tidelog worker mail-data mails work:send --until-idle 0",
    "tidelog worker mail-data mails work:send --create",
    "tidelog worker shop.tasks",
    "tidelog worker shop.tasks --queues mails=3,reports=1",
    codes=(*exits.CHANGING, exits.AGAIN),
    json=None,
)
@click.argument("name", metavar="[QUEUE", required=False, shell_complete=queues)
@click.argument("function", metavar="MODULE:FUNCTION]", required=False)
@click.option(
    "--queues",
    metavar="NAMES",
    help="With PATH alone, which then is a module of tasks: only these queues, the first before the others: a,b; or by "
    "turns: a=3,b=1.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    default=4,
    show_default=True,
    help="Threads of each process, or tasks if the function is async.",
)
@click.option(
    "--processes",
    callback=count_of,
    metavar="COUNT|auto",
    default="1",
    show_default=True,
    help="Processes, or auto: one for each processor. One that ends unexpectedly is started again.",
)
@within(
    "--drain",
    help="Time that running jobs have to end after a signal.",
    default=30.0,
    show_default=True,
)
@click.option(
    "--reload", is_flag=True, help="Start again when a Python file below this directory changes."
)
@click.option(
    "--name", "worker", help="Name of the workers. After a restart they get their own jobs at once."
)
@click.option(
    "--group",
    default="workers",
    show_default=True,
    shell_complete=groups,
    help="The group of workers.",
)
@click.option(
    "--codec",
    type=click.Choice(sorted(NAMED)),
    default="json",
    show_default=True,
    help="How values are decoded.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Jobs that a worker fetches at once.",
)
@within(
    "--retry-after",
    help="Pause before the first retry, and life of a lease without --lease.",
    least=0.001,
    above=True,
    default=30.0,
    show_default=True,
)
@within(
    "--lease",
    help="Time after which a job is taken from a worker that does not answer.",
    least=0.001,
    above=True,
)
@retry_option("a job without a policy of its own")
@click.option(
    "--max-deliveries",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Deliveries after which a job that fails is dead.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Recorded failures of the queue to keep.",
)
@within(
    "--time-limit",
    help="Time that the function has for a job without a limit of its own.",
    least=0.001,
    above=True,
)
@click.option(
    "--isolate",
    type=click.Choice(("process", "thread")),
    help="Call the function in processes that can be killed, or in threads. Default: process with a limit of time.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    help="Jobs after which a process ends in order and another one takes its place.",
)
@click.option(
    "--max-memory",
    callback=bytes_of,
    metavar="SIZE",
    help="Memory, such as 500mb, above which a process ends likewise after a job.",
)
@click.option(
    "--results",
    is_flag=True,
    help="Keep the value that the function returns as the result of the job.",
)
@click.option(
    "--on-dead",
    metavar="MODULE:FUNCTION",
    help="Call this function with each job that dies.",
)
@click.option(
    "--on-retry",
    metavar="MODULE:FUNCTION",
    help="Call this function with a job, the error and the pause before each retry.",
)
@click.option(
    "--on-done",
    metavar="MODULE:FUNCTION",
    help="Call this function with each job that is done, and its result.",
)
@click.option(
    "--middleware",
    metavar="MODULE:FUNCTION",
    multiple=True,
    help="Call this function around the other one, with a job and `next`; may be repeated.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="Jobs of the queue that all workers together may hold.",
)
@click.option(
    "--concurrency-per-key",
    type=click.IntRange(1),
    help="Jobs of one key that all workers together may hold; they come in order.",
)
@click.option(
    "--rate", help="At most this many deliveries in a period, such as 100/m (s, m, h or d)."
)
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Number of finished jobs to keep.",
)
@within("--until-idle", help="End after this time without a job; 0 = when no job is due.")
@click.option(
    "--create", is_flag=True, help="Begin the queue, and the store, if there is none of that name."
)
@click.option(
    "--embedded",
    is_flag=True,
    help="Open the store in this process: faster, and closed to all others.",
)
@click.option(
    "--loglevel",
    type=click.Choice(list(logs.LEVELS)),
    default="info",
    show_default=True,
    help="Lowest level to log.",
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Format of log messages on standard error.",
)
@click.option("--child", is_flag=True, hidden=True)
def command(path: PathOrUrl, name: str | None, function: str | None, **given: Any) -> int:
    logs.begin(given["loglevel"], given["log_format"])
    if given["embedded"] and (given["processes"] > 1 or isinstance(path, str)):
        raise Wrong(
            "--embedded needs a directory and one process: the others could not open the store"
        )
    if name is None:
        return work_on_tasks(str(path), given)
    if function is None:
        raise click.UsageError("Missing argument 'MODULE:FUNCTION'.")
    if given["queues"] is not None:
        raise Wrong("--queues is for a module of tasks; this worker has the queue of its line")
    hangs = given["isolate"] == "thread" and given["time_limit"] is not None
    if not given["child"] and (hangs or has_children(given)):
        look_for(path, name, given["create"])
        return run_children(path, name, function, given)
    handler = load(function, os.getcwd())
    run = {key: given[key] for key in RUN}
    run["block"] = given["until_idle"]
    run |= loaded(given, is_coroutine(handler))
    if isolates(given, given["time_limit"] is not None, is_coroutine(handler)):
        handler, run["isolate"] = Named(function, os.getcwd()), "process"
    if given["child"]:
        end_with_parent()
    else:
        look_for(path, name, given["create"])
    options = {key: given[key] for key in OPTIONS}

    def work() -> int:
        if is_coroutine(handler):
            return asyncio.run(work_in_tasks(path, name, given, options, handler, run))
        with opened(path, given) as store:
            return store.queue(name, given["group"], **options).run(handler, **run)

    return code_of(work)


def has_children(given: dict[str, Any]) -> bool:
    """Whether other processes do the work, which this one replaces when they end."""
    spends = given["max_jobs"] is not None or given["max_memory"] is not None
    return bool(given["processes"] > 1 or given["reload"] or spends)


def isolates(given: dict[str, Any], limited: bool, asynchronous: bool) -> bool:
    """Whether processes of their own call the functions: without --isolate, those that have a limit of time."""
    if asynchronous and given["isolate"] == "process":
        raise Wrong(
            "--isolate process is for a plain function; an async one is cancelled at its limit"
        )
    asked = given["isolate"] or ("process" if limited else "thread")
    return asked == "process" and not asynchronous


def code_of(work: Callable[[], int]) -> int:
    """The exit code of a run."""
    try:
        left = work()
    except tidelog.WorkersHang as error:
        log.error("%s; this process ends, to be started again", error)
        return exits.AGAIN
    return exits.AGAIN if isinstance(left, Recycled) else exits.OK


def run_children(
    path: PathOrUrl, name: str | None, function: str | None, given: dict[str, Any]
) -> int:
    """Let processes do the work of this one."""
    sources = Sources(Path.cwd()) if given["reload"] else None
    return Processes(
        ["-m", "tidelog", "worker", *words_of(path, name, function, given)],
        given["processes"],
        given["drain"],
        given["until_idle"] is not None,
        final=FINAL,
        changed=None if sources is None else sources.changed,
    ).run()


def work_on_tasks(module: str, given: dict[str, Any]) -> int:
    """Work on the queues of a module of tasks: all, or those of --queues."""
    if not given["child"]:
        check_options(click.get_current_context())
        # of --isolate thread: a task may have a limit of time
        if has_children(given) or given["isolate"] == "thread":
            used = {name: value for name, value in given.items() if name in OF_TASKS}
            return run_children(module, None, None, used)
    tasks = tasks_of(module, os.getcwd())
    queues = queues_of(given["queues"], tasks)
    if given["child"]:
        end_with_parent()
    tasks.shared = not given["embedded"]
    tasks.work.finder = partial(work_of, module, os.getcwd())
    names = tasks.queues if queues is None else queues
    coroutines, limited = tasks.work.coroutines(names), tasks.work.limited(names)
    if coroutines and (plain := [name for name in limited if name not in coroutines]):
        log.warning(
            "the limit of time of %s cannot stop it: it runs in a thread, since %s is async; give the async tasks "
            "another queue, and a worker with --queues of their own",
            *(plain[0], coroutines[0]),
        )
    isolated = isolates(given, bool(limited or given["time_limit"]), bool(coroutines))
    given = given | loaded(given, bool(coroutines)) | {"isolate": "process" if isolated else None}
    with tasks:
        return code_of(partial(tasks.run, queues, **run_options(given).arguments()))


def loaded(given: dict[str, Any], asynchronous: bool) -> dict[str, Any]:
    """The functions that are called besides the handler, as arguments of `run`."""
    here = os.getcwd()
    found: dict[str, Any] = {
        name: load(given[name], here, *taken)
        for name, taken in HOOKS.items()
        if given[name] is not None
    }
    found["middleware"] = [load(each, here, *AROUND) for each in given["middleware"]]
    try:
        check_functions(asynchronous, batch=given["batch"], **found)
    except DataError as error:
        raise Wrong(str(error)) from error
    return found


def look_for(path: PathOrUrl, name: str, create: bool) -> None:
    """Refuse a queue that does not exist, for which a worker would wait for ever, unless it is to be begun.

    A server that does not answer yet cannot be asked; the worker waits for one as long as any call does. Raises
    NotThere, and the errors of a store that cannot be read.
    """
    try:
        with (
            tidelog.connect(path, timeout=LOOK_S)
            if isinstance(path, str)
            else reader(path) as store
        ):
            known = sorted({known for known, _ in names_of(store)})
    except tidelog.Unreachable as error:
        log.warning("%s; waits for a server for %g s", error, TIMEOUT_S)
        return
    except (aof.NotAStore, NotAStore) as error:
        if not create:
            raise no_store(error) from error
        log.info("new store %s", path)
        return
    if name not in known and not create:
        raise no_queue(path, name, known)


def opened(path: PathOrUrl, given: dict[str, Any]) -> tidelog.Store | tidelog.SharedStore:
    """The store of the queue."""
    return tidelog.open(path) if given["embedded"] else tidelog.connect(path)


async def work_in_tasks(
    path: PathOrUrl,
    name: str,
    given: dict[str, Any],
    options: dict[str, Any],
    handler: Any,
    run: dict[str, Any],
) -> int:
    opening: Any = tidelog.aopen(path) if given["embedded"] else tidelog.aconnect(path)
    async with opening as store:
        found: int = await store.queue(name, given["group"], **options).arun(handler, **run)
    return found


def words_of(
    path: PathOrUrl, name: str | None, function: str | None, given: dict[str, Any]
) -> list[str]:
    """The command line of a child, after `tidelog worker`."""
    words = ["--child"]
    for key, value in given.items():
        option = "--name" if key == "worker" else f"--{key.replace('_', '-')}"
        if key in ("processes", "reload", "child", "create") or value is None or value is False:
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [option] if each is True else [option, str(each)]
    return [*words, "--", str(path), *filter(None, (name, function))]
