"""The durable queue: a layer over streams and consumer groups.

Everything it does is ordinary commands of streams, one unit for each operation, so any Redis client and every tool sees
and understands the same data. For a queue `mails` with the group `workers`:

    mails             the jobs. Behind the group's position they wait; pending with an owner they are in flight; pending
                      without one (XNACK) they are paused until their retry
    mails:holds       until when a job is paused, or lent for longer than its lease: one entry for each such job
    mails:failures    what went wrong, capped: worker, exception, traceback
    mails:dead        jobs that were given up, with the evidence

The modules, from the bottom:

    codecs, rows      values and entries as bytes        options      what a queue can be told
    streams           what is there, who has what in hand
    shared            what the workers of one queue in this process know together: who lives, what is paused
    fetch, settle     decisions under the store's lock: what a worker gets next; how a job ends
    leases            the thread that renews the leases of living jobs
    base              the queue without waiting; face and aio add it, for threads and for asyncio
"""
