"""Figures: what a store holds at one moment, as small frozen objects, behind every view of it.

    names        the streams that queues keep for themselves, and which streams are the user's
    model        the objects
    streams      figures of streams and groups, from a state
    resident     the same of what is in memory, in short slices of the store's lock, for a scrape
    queues       figures of queues, from a state
    working      figures of the queues of an open store, for a scrape
    asked        figures out of the replies of a server
    served       figures of log, checkpoint and replication, from an open store
    advice       what of these is not as production recommends

`tidelog top`, `tidelog state`, INFO, /health, /metrics and the console show them; `tidelog doctor` advises.
"""
