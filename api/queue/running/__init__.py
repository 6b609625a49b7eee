"""`Queue.run` and `AsyncQueue.arun`: workers that take jobs until a signal comes, and then end in order."""
