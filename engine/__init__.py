"""The engine: streams, consumer groups, keys and strings, as pure state.

Rules for what may live here:

* No I/O, no clock, no randomness, no threads, no asyncio. Time (`now`, unix milliseconds), limits and
  bytes are arguments. A test of the engine opens no file and never sleeps.
* `decide` computes effects and a reply and changes nothing; `apply` is the only code that changes state
  and cannot fail. Live execution, replay and the follower share the one apply table (`engine.effects.apply`).
* An effect is a tuple of ints, bytes and tuples (`engine.effects.effect`): what happened, never what was asked.
"""
