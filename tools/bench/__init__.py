"""`tidelog bench`: measure the speed of this store, beside bare system calls and its peers in the same run.

    command.py     the command line race.py        contenders in short alternating slices, medians row.py         one
    figure: measured, baselines, ratio, target report.py      the table and the JSON machine.py     the machine: file
    system, processor, versions messages.py    the messages that all contenders store peer.py        the interface of a
    contender ours.py        tidelog as such a queue, through its public interface alone our_queue.py tidelog's durable
    queue, the same way baselines/     system calls, redis-server, sqlite3, lmdb, queuelib, persist-queue, litequeue,
    huey subjects/      one module per subject, each with `rows(bench)` fresh.py       an object in a separate process,
    and that process's memory opened.py      the calls of such a process on a store with checkpoints pauses.py the
    pauses of a writer beside a checkpoint stored.py      large stores, made once for several subjects served.py a
    server in a process of its own; our_server.py: `tidelog serve` wire.py commands as bytes redis_benchmark.py,
    stream_latency.py, idle.py    clients of a server: throughput, latency, idle clients append.py      a separate
    study: ways to append a frame child.py       measurements in a separate process: memory, start-up

Absolute figures move by a fifth from run to run; ratios against baselines of the same run hold.
"""
