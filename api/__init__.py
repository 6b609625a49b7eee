"""The faces of a store: the methods for threads and for asyncio, pipelines, and the forms of arguments and replies."""
