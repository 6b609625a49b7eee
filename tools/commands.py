"""Commands: the tables of all commands, group by group. A command's module is imported only when the command runs.

A row is the module of a command, or a group of commands, and a line of help. A module that makes several commands names
one of them behind a colon.
"""

from __future__ import annotations

from tidelog.tools.lazy import LazyGroup, Table

REPAIR = ("tidelog.tools.repair.command", "Say what a damaged store has left, and repair it.")
IMPORT = (
    "tidelog.tools.importing.command",
    "Make a store of the data of a Redis: an RDB file, an append-only file, or a server.",
)

# fmt: off
AOF = {
    "ls":     ("tidelog.tools.aof.ls", "List the segments of the log."),
    "dump":   ("tidelog.tools.aof.dump", "Print the records of the log as Redis commands."),
    "stats":  ("tidelog.tools.aof.stats", "Count what the log consists of: commands, keys, groups, lives, frames."),
    "plot":   ("tidelog.tools.aof.plot", "Draw write rate, bytes, lag, pending and exposed records over time."),
    "verify": ("tidelog.tools.aof.verify", "Check every byte of the log; one exit code per check."),
    "export": ("tidelog.tools.aof.export", "Write the log as commands for redis-cli --pipe."),
}
# fmt: on
OF_AOF = LazyGroup(
    AOF,
    "tidelog aof ls orders-data",
    "tidelog aof dump orders-data --key orders --count 3",
    "tidelog aof verify orders-data; echo $?",
    moved={"repair": REPAIR},
)

# fmt: off
SNAPSHOT = {
    "create":  ("tidelog.tools.snapshot.create", "Create a snapshot of a store; its writer may be running."),
    "ls":      ("tidelog.tools.snapshot.ls", "List the snapshots of a store."),
    "show":    ("tidelog.tools.snapshot.show", "Show what a snapshot contains."),
    "verify":  ("tidelog.tools.snapshot.verify", "Check every byte, row and count of a snapshot."),
    "copy":    ("tidelog.tools.snapshot.copy", "Copy a snapshot to or from an object store, or another directory."),
    "restore": ("tidelog.tools.snapshot.restore", "Restore a snapshot into a new store, up to an LSN or a time."),
    "prune":   ("tidelog.tools.snapshot.prune", "Delete all but the newest snapshots of a store."),
}
# fmt: on
OF_SNAPSHOTS = LazyGroup(
    SNAPSHOT,
    "tidelog snapshot create orders-data",
    "tidelog snapshot ls orders-data",
    "tidelog snapshot restore orders-data/snapshots/00000000000000004711 restored",
)

# fmt: off
RDB = {
    "export": ("tidelog.tools.rdb.export", "Write a store as a dump file that Redis loads."),
}
# fmt: on
OF_RDB = LazyGroup(
    RDB,
    "tidelog rdb export orders-data dump.rdb --target 7.0",
    moved={"import": IMPORT},
)

# fmt: off
DEAD = {
    "ls":      ("tidelog.tools.queue.dead.ls", "List the dead jobs of a queue, oldest first."),
    "show":    ("tidelog.tools.queue.dead.show", "Show everything about a dead job."),
    "redrive": ("tidelog.tools.queue.dead.redrive", "Put dead jobs back into their queue."),
    "purge":   ("tidelog.tools.queue.dead.purge", "Delete dead jobs permanently."),
}
# fmt: on
OF_DEAD = LazyGroup(
    DEAD,
    "tidelog queue dead ls orders-data mails --older-than 1d",
    "tidelog queue dead show orders-data mails 1700000009000-0",
    "tidelog queue dead redrive orders-data mails --error Timeout --dry-run",
)

# fmt: off
SCHEDULE = {
    "ls":     ("tidelog.tools.queue.schedule.ls", "List the schedules of a store, by name."),
    "add":    ("tidelog.tools.queue.schedule.add", "Add a schedule, or replace the one of that name."),
    "pause":  ("tidelog.tools.queue.schedule.change:pause",
               "Stop the ticks of a schedule; they are not made up later."),
    "resume": ("tidelog.tools.queue.schedule.change:resume", "End the pause of a schedule."),
    "rm":     ("tidelog.tools.queue.schedule.change:rm",
               "Delete a schedule; jobs that it has put stay in their queue."),
}
# fmt: on
OF_SCHEDULES = LazyGroup(
    SCHEDULE,
    "tidelog queue schedule ls orders-data",
    "tidelog queue schedule add orders-data nightly reports --cron '0 3 * * *' --tz Europe/Berlin",
    "tidelog queue schedule pause orders-data nightly",
)

# fmt: off
QUEUE: Table = {
    "ls":       ("tidelog.tools.queue.ls", "List the queues of a store."),
    "watch":    ("tidelog.tools.queue.watch", "Show the queues of a store as they change."),
    "put":      ("tidelog.tools.queue.put", "Put jobs into a queue."),
    "stats":    ("tidelog.tools.queue.stats", "Show the counts of a queue, and measure its rates."),
    "peek":     ("tidelog.tools.queue.peek", "Show the next waiting jobs without delivering them."),
    "failures": ("tidelog.tools.queue.failures", "Show the latest failures of jobs, newest first."),
    "dead":     (OF_DEAD, "Inspect dead jobs, and put them back."),
    "schedule": (OF_SCHEDULES, "List and change schedules, which put jobs again and again."),
    "status":   ("tidelog.tools.queue.status", "Say where a job is, or what became of it."),
    "find":     ("tidelog.tools.queue.find", "Find jobs that are not done, and dead ones."),
    "cancel":   ("tidelog.tools.queue.cancel", "Cancel a job that is not done."),
    "move":     ("tidelog.tools.queue.move", "Make a delayed job due at another time."),
    "pause":    ("tidelog.tools.queue.switches:pause", "Deliver no more jobs until `queue resume`."),
    "resume":   ("tidelog.tools.queue.switches:resume", "Deliver the jobs of a paused queue again."),
    "forget":   ("tidelog.tools.queue.forget", "Free a dedup ID, so that the next put with it adds a job."),
    "purge":    ("tidelog.tools.queue.purge", "Delete every job that is not in flight."),
    "rm":       ("tidelog.tools.queue.switches:rm", "Remove a queue that holds no jobs."),
}
# fmt: on
OF_QUEUES = LazyGroup(
    QUEUE,
    "tidelog queue ls orders-data",
    "tidelog queue stats orders-data mails --over 10",
    "tidelog queue dead redrive orders-data mails --error Timeout",
)

# fmt: off
REPLICA = {
    "status":  ("tidelog.tools.replica.status", "Show role, followers and lag, and which follower to promote."),
    "promote": ("tidelog.tools.replica.promote", "Let a follower lead."),
    "verify":  ("tidelog.tools.replica.verify", "Compare a follower's data with its leader's."),
}
# fmt: on
OF_REPLICAS = LazyGroup(
    REPLICA,
    "tidelog replica status redis://10.0.0.1:6379",
    "tidelog replica status orders-data --json | jq .generation",
)

# fmt: off
TOP: Table = {
    "aof":      (OF_AOF, "Inspect the append-only log of a store."),
    "info":     ("tidelog.tools.info", "Show what a store contains."),
    "snapshot": (OF_SNAPSHOTS, "Make, check, restore and delete snapshots of a store."),
    "export":   ("tidelog.tools.export",
                 "Export a snapshot as Parquet, CSV, JSON or ORC files, or what changed since an earlier export."),
    "import":   IMPORT,
    "rdb":      (OF_RDB, "Write a store as a dump file of Redis."),
    "verify":   ("tidelog.tools.verify", "Check checkpoint, log and snapshots; one exit code per check."),
    "repair":   REPAIR,
    "state":    ("tidelog.tools.state", "Show streams, groups, pending entries and queues as of any moment."),
    "cat":      ("tidelog.tools.cat", "Print the entries of a stream, or a string, as text, JSON or CSV."),
    "why":      ("tidelog.tools.why",
                 "Tell the life of one entry or job: added, delivered, acknowledged, trimmed."),
    "top":      ("tidelog.tools.top.command",
                 "Show streams, groups and queues as they change, of a store or a server."),
    "console":  ("tidelog.tools.console_page", "Show a store in the browser: queues, jobs, schedules, workers."),
    "doctor":   ("tidelog.tools.doctor", "Say what is not as recommended for production, and what to do."),
    "diff":     ("tidelog.tools.diff.command",
                 "Compare two logs, or two states: what is common, and where they differ."),
    "queue":    (OF_QUEUES,
                 "Inspect the queues of a store, put jobs into them, and put dead jobs back."),
    "worker":   ("tidelog.tools.worker.command",
                 "Call a function with each job of a queue, until SIGTERM or Ctrl-C."),
    "digest":   ("tidelog.tools.digest", "Print the digest of a store's whole state."),
    "replica":  (OF_REPLICAS, "Inspect leaders and their followers."),
    "report":   ("tidelog.tools.report.command", "Draw latency, lag, poison messages and queues into an HTML file."),
    "serve":    ("tidelog.tools.serve", "Serve a store to Redis clients over TCP, TLS and a Unix socket."),
    "config":   ("tidelog.tools.config", "Show and change how a store is served."),
    "demo":     ("tidelog.tools.demo.command", "Kill workers at random and prove that nothing is lost."),
    "crash":    ("tidelog.tools.crash.command",
                 "Crash stores at every operation, and see whether they keep their promises."),
    "completion": ("tidelog.tools.completion",
                   "Print the script that lets a shell complete commands, options and names."),
}
# fmt: on
