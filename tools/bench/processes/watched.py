"""`tidelog top` without a terminal, in a fresh process."""

from __future__ import annotations

import asyncio
import time

from tidelog.tools.top.app import Top
from tidelog.tools.top.command import source_of

EVERY_S = 1.0
SIZE = (140, 40)
FIRST_LOOK_S = 60.0


class Watched:
    """`top` of a store or server, as an object for `Fresh`."""

    def watch(self, place: str, seconds: float) -> float:
        """Processor time of the application in milliseconds per second, once it has drawn its first look."""
        return asyncio.run(self._watch(place, seconds))

    async def _watch(self, place: str, seconds: float) -> float:
        source = await asyncio.to_thread(source_of, place)
        app = Top(source, every=EVERY_S, sort="lag", wanted="")
        try:
            async with app.run_test(size=SIZE):
                async with asyncio.timeout(FIRST_LOOK_S):
                    while app.look is None:
                        await asyncio.sleep(0.01)
                await asyncio.sleep(EVERY_S)
                start, began = time.process_time(), time.perf_counter()
                await asyncio.sleep(seconds)
                spent = (time.process_time() - start) / (time.perf_counter() - began)
        finally:
            await asyncio.to_thread(app.settle)
            source.close()
        if app.failure is not None:
            raise app.failure
        return spent * 1000

    def close(self) -> None: ...
