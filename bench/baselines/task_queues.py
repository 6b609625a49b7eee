"""Task queues as their users run them: what to install, a module of jobs, and the command of a worker.

Each has an environment of its own, so nothing of them is imported here. The module, `peer_jobs`, has a task that calls
`record`, and `put(ns)`, which puts it with this argument; `put` and `begin`, which is called once before, may be
coroutines. Options that the text does not name are as the project has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REDIS, POSTGRES = "redis", "postgres"
# a put is on disk when it returns; a power cut may lose the last second, or more
SYNCED, RELAXED = 0, 1


@dataclass(frozen=True)
class TaskQueue:
    """One of them.

    requirements   what pip installs; none = the tidelog of a clone
    server         the server that it needs, or none
    fsync          its durability if synced, and if relaxed, as its own option
    module         the text of `peer_jobs`, with $port, $place (a directory) and $fsync
    worker         the command of a worker after `python -m`, with $n processes; it is started n times if it has no $n
    note           a difference that its figures do not show
    """

    name: str
    requirements: tuple[str, ...]
    server: str | None
    fsync: tuple[str, str]
    module: str
    worker: str
    note: str = "acknowledged after the work"


ON_REDIS: Final = ("appendfsync=always", "appendfsync=everysec")

TIDELOG: Final = TaskQueue(
    "tidelog",
    (),
    None,
    ('fsync="always"', 'fsync="everysec"'),
    """
import tidelog
from record import record
tasks = tidelog.tasks("$place/store", $fsync)

@tasks.task(queue="jobs")
def work(ns: int) -> None:
    record(ns)

put = work.put
""",
    "tidelog worker peer_jobs --processes $n --loglevel error",
)

HUEY: Final = """
import huey
from record import record
app = huey.{made}

@app.task()
def work(ns):
    record(ns)

put = work
"""
HUEY_WORKER: Final = "huey.bin.huey_consumer peer_jobs.app -k process -w $n -q"
FORGETS: Final = "a job is forgotten when a worker gets it"

PEERS: Final = (
    TaskQueue(
        "huey, SQLite",
        ("huey>=3.5,<4",),
        None,
        ("fsync=True", "fsync=False"),
        HUEY.format(made='SqliteHuey("jobs", filename="$place/huey.db", $fsync)'),
        HUEY_WORKER,
        FORGETS,
    ),
    TaskQueue(
        "huey, Redis",
        ("huey>=3.5,<4", "redis"),
        REDIS,
        ON_REDIS,
        HUEY.format(made='RedisHuey("jobs", port=$port)'),
        HUEY_WORKER,
        FORGETS,
    ),
    TaskQueue(
        "RQ",
        ("rq>=3,<4",),
        REDIS,
        ON_REDIS,
        """
import redis, rq
from record import record
queue = rq.Queue("jobs", connection=redis.Redis(port=$port))

def work(ns):
    record(ns)

def put(ns):
    queue.enqueue("peer_jobs.work", ns)
""",
        "rq.cli worker jobs --url redis://127.0.0.1:$port -q",
        "a process of its own for each job",
    ),
    TaskQueue(
        "SAQ",
        ("saq[redis]>=0.26,<0.27", "typing-extensions"),  # which it does not ask for
        REDIS,
        ON_REDIS,
        """
import saq
from record import record
queue = saq.Queue.from_url("redis://127.0.0.1:$port")

async def work(ctx, *, ns):
    record(ns)

settings = {"queue": queue, "functions": [work]}

def put(ns):
    return queue.enqueue("work", ns=ns)
""",
        "saq peer_jobs.settings --workers $n --quiet",
    ),
    TaskQueue(
        "taskiq",
        ("taskiq>=0.13,<0.14", "taskiq-redis>=1.2,<2"),
        REDIS,
        ON_REDIS,
        """
import taskiq_redis
from record import record
broker = taskiq_redis.RedisStreamBroker("redis://127.0.0.1:$port")
begin = broker.startup

@broker.task
async def work(ns):
    record(ns)

put = work.kiq
""",
        "taskiq worker peer_jobs:broker --workers $n --log-level ERROR",
    ),
    TaskQueue(
        "arq",
        ("arq>=0.25",),
        REDIS,
        ON_REDIS,
        """
import arq
from arq.connections import RedisSettings
from record import record

async def work(ctx, ns):
    record(ns)

class Settings:
    functions = [work]
    redis_settings = RedisSettings(port=$port)

async def begin():
    global pool
    pool = await arq.create_pool(Settings.redis_settings)

def put(ns):
    return pool.enqueue_job("work", ns)
""",
        "arq peer_jobs.Settings",
    ),
    TaskQueue(
        "procrastinate",
        ("procrastinate>=3.10,<4", "psycopg[binary]"),
        POSTGRES,
        ("synchronous_commit=on", "synchronous_commit=off"),
        """
import procrastinate
from record import record
app = procrastinate.App(connector=procrastinate.PsycopgConnector(
    conninfo="postgresql://bench@127.0.0.1:$port/bench", kwargs={"options": "-c $fsync"}
))

@app.task(queue="jobs", name="work")
async def work(ns):
    record(ns)

async def begin():
    await app.open_async()
    if not await app.check_connection_async():
        await app.schema_manager.apply_schema_async()

def put(ns):
    return work.defer_async(ns=ns)
""",
        "procrastinate --app peer_jobs.app --log-level error worker",
        "the job of a killed worker stays with it",
    ),
    TaskQueue(
        "Celery",
        ("celery[redis]>=5.7,<6",),
        REDIS,
        ON_REDIS,
        """
import celery
from record import record
app = celery.Celery("peer_jobs", broker="redis://127.0.0.1:$port")
app.conf.task_acks_late = True

@app.task
def work(ns):
    record(ns)

put = work.delay
""",
        "celery -A peer_jobs worker -c $n -l ERROR",
    ),
)
