"""The durable queue: a layer over streams and consumer groups.

Each operation is one unit of plain stream commands, so that every Redis client and tool can read the same data. For a
queue `mails` with the group `workers`:

    mails             the jobs. Those after the group's last delivered ID wait; pending ones with an owner are in
                      flight; pending ones without (XNACK) are paused until their retry
    mails:priority:3  the jobs of that priority; 1 to 9, each made by the first such job
    mails:later       delayed jobs; the pending entries of its group `due` tell when they are due
    mails:holds       one entry per job that is paused, or has an extended lease: until when
    mails:failures    recorded failures, capped: worker, exception, traceback
    mails:dead        dead jobs, with the evidence
    mails:cancels     cancelled jobs, capped

The modules, from the bottom:

    dedup             dedup IDs: their modes and records
    codecs, rows      values and entries as bytes        options      the options of a queue
    lanes             the streams of the priorities
    streams           which jobs there are, and which worker holds which
    known             the common knowledge of all workers of a queue in this process: which are alive, what is paused
    rules, scheduling, ticks   schedules: when they tick, the calls that change them, and the jobs that they put
    later             delayed jobs, and how they get into the queue's stream
    fetch, settle     decisions under the store's lock: which jobs a worker gets next; how a job ends
    cancelling        a job is cancelled, also one that runs
    cancels           where that is announced to those who run it
    freeing           which job has a dedup ID, and which IDs are freed
    deaths            the log line of each job that becomes a dead job
    drops             the log line of a job that a worker dropped without an end
    leases            the thread that renews the leases of living workers
    engine            a queue of an open store. Putting, settling and the verbs work with it
    verbs             what a queue is asked by name, a file for each verb
    base              what the faces have in common; face and aio wait, for threads and for asyncio
"""
