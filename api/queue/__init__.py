"""The faces of a queue: for threads and for asyncio, with the workers of `run` and `arun`."""
