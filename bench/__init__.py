"""The bench: how fast tidelog is, beside other queues or beside another version of itself. Run from a clone.

It is no part of the wheel and uses public names of tidelog only, so the same subject runs on another clone of it.

    command.py     the command line; machine.py, report.py, figure.py: what it prints
    run.py         one run: its directory, its pace, the versions that are measured
    worker.py      a process that holds one object of one version, or one baseline
    race.py        workers and servers in short alternating slices, medians
    ours.py        tidelog's streams and queues as such an object
    baselines/     system calls, sqlite3, lmdb, queuelib, persist-queue, litequeue, huey, RQ, redis-py; task queues
    servers.py     `tidelog serve` and redis-server, and redis-benchmark as their client; postgres.py
    latency.py     clients that measure the way of an entry; pair.py: a leader and its follower
    subjects/      one module per subject, each with `rows(run)`

Absolute figures move by a fifth from run to run; ratios within a run hold.
"""
