"""`tidelog bench`: how fast this store is, beside bare system calls and its peers in the same run.

    command.py     the command line
    race.py        contenders in short alternating slices, medians
    row.py         one figure: measured, baselines, ratio, target
    report.py      the table and the JSON
    machine.py     what was measured on: file system, processor, versions
    messages.py    the messages everybody stores
    peer.py        what a queue must be able to do to take part
    ours.py        tidelog as such a queue, through its public interface alone
    our_queue.py   tidelog's durable queue, the same way
    baselines/     system calls, redis-server, sqlite3, lmdb, queuelib, persist-queue, litequeue, huey
    subjects/      one module per subject, each with `rows(bench)`
    fresh.py       a process of its own with an object in it, and its memory
    opened.py      what such a process does with a store that has checkpoints
    pauses.py      what a writer beside a checkpoint meets
    stored.py      large stores, made once for several subjects
    served.py      a server in a process of its own; our_server.py: `tidelog serve`
    wire.py        commands as bytes
    redis_benchmark.py, stream_latency.py, idle.py    clients of a server: throughput, latency, those that wait
    append.py      a study of its own: ways to append a frame
    child.py       what is measured in a process of its own: memory, start-up

Absolute figures move by a fifth from run to run; ratios against baselines of the same run hold.
"""
