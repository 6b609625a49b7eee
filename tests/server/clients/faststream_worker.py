"""A FastStream worker: URL NAME DIES [claim]. Takes `jobs`, writes `done`, acknowledges; dies at job DIES, 0 = never.

XAUTOCLAIM, or XREADGROUP's CLAIM, takes over the messages of a dead worker.
"""

import asyncio
import os
import signal
import sys

from faststream import AckPolicy, FastStream
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import Redis, RedisStreamMessage

IDLE_MS = 200

url, name, dies = sys.argv[1], sys.argv[2], int(sys.argv[3])
claiming = "claim" in sys.argv[4:]
broker = RedisBroker(url)
app = FastStream(broker)
handled = 0


async def work(body: int, message: RedisStreamMessage, redis: Redis) -> None:
    global handled
    handled += 1
    if handled == dies:
        os.kill(os.getpid(), signal.SIGKILL)
    await redis.xadd("done", {"n": body, "by": name})
    await message.ack()


def subscribe(claim: int | None = None, autoclaim: int | None = None) -> None:
    """Idle times, ms."""
    stream = StreamSub(
        "jobs",
        100,
        "workers",
        name,
        max_records=10,
        claim_min_idle_time=claim,
        min_idle_time=autoclaim,
    )
    broker.subscriber(stream=stream, ack_policy=AckPolicy.MANUAL)(work)


if claiming:
    subscribe(claim=IDLE_MS)
else:
    subscribe()
    subscribe(autoclaim=IDLE_MS)

asyncio.run(app.run())
