"""The table of all server options: kind, default, when they may be changed, and what they do.

Names, defaults and bounds are those of Redis 7.0 and, for streams, of 8.8 (spec 16.3), where Redis has the option.
Differences: `bind` defaults to loopback, appendonly is always on, `unixsocketperm` admits only the owner, and the
replication backlog is the log on disk.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog.aof.bookmarks import KEEP_BYTES
from tidelog.aof.log import SEGMENT_BYTES
from tidelog.engine.api import DATABASES
from tidelog.engine.integers import INT64_MAX
from tidelog.server.config.kinds import (
    INT_MAX,
    Boolean,
    Choice,
    EventClasses,
    FileName,
    HostName,
    Integer,
    Kind,
    Limit,
    Memory,
    Mode,
    OneOf,
    OutputLimits,
    ReplicaOf,
    SaveRules,
    Secret,
    Text,
    Words,
)
from tidelog.store.options import (
    CHECKPOINT_BYTES,
    MAXDISK_MIN,
    MEMORY_BUDGET_MIN,
    RETAIN_BYTES,
    SAVE,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
)

RUN: Final = "run"  # by CONFIG SET, and at startup
START: Final = "start"  # in the file and on the command line
FIXED: Final = "fixed"  # cannot be set; clients and tools only read its value

SERVER: Final = "server"
# options of the store; an embedding program that opens the store sets them itself
STORE: Final = "store"
LOGS: Final = "logs"  # options of logging; an embedding program sets them itself


class Option(NamedTuple):
    """One option.

    when    RUN, START or FIXED        of      SERVER, STORE or LOGS
    help    one line                   secret  the value is not shown in errors
    """

    name: str
    kind: Kind
    default: Any
    when: str
    help: str
    of: str = SERVER
    secret: bool = False


_PORT: Final = Integer(0, 65535)
_LIMITS: Final = {
    "normal": Limit(0, 0, 0),
    "replica": Limit(256 << 20, 64 << 20, 60),
    "pubsub": Limit(32 << 20, 8 << 20, 60),
}
_SAVE: Final = tuple((int(seconds), changes) for seconds, changes in SAVE)

# fmt: off
UNSAID: Final = -1  # of an option that the store decides

_ALL: Final = (
    # Listening and access
    Option("bind", Words(), "127.0.0.1 -::1", START,
           "Addresses to listen on. * means all; an address with - before it may be unavailable."),
    Option("port", _PORT, 6379, START, "TCP port; 0 = none."),
    Option("unixsocket", FileName(), "", START, "Path of a Unix socket to listen on; empty = none."),
    Option("unixsocketperm", Mode(), "700", START, "Permissions of the Unix socket, in octal."),
    Option("shared-socket", Boolean(), True, START,
           "Also listen on serve.sock in the directory of the store, where tidelog.connect finds this server."),
    Option("idle-exit", Integer(0, INT_MAX), 0, START,
           "Stop when no client was connected for this many seconds; 0 = never."),
    Option("started", Choice("auto", "by-clients", "by-operator"), "auto", START,
           "Who starts this server: by-operator = no client starts an owner; auto = so if tidelog.toml has TCP, TLS, "
           "users or followers."),
    Option("tcp-backlog", Integer(0, INT_MAX), 511, START, "Maximum number of connections that wait to be accepted."),
    Option("protected-mode", Boolean(), True, RUN,
           "While the default user has no password, serve only clients on this machine."),
    Option("requirepass", Secret(), "", RUN, "Password of the default user; empty = no password.", secret=True),
    Option("maxclients", Integer(1, (1 << 32) - 1), 10_000, RUN, "Maximum number of connected clients."),
    Option("timeout", Integer(0, INT_MAX), 0, RUN, "Seconds after which an idle client is disconnected; 0 = never."),
    Option("tcp-keepalive", Integer(0, INT_MAX), 300, RUN,
           "Seconds between TCP keepalive probes of an idle connection; 0 = no probes."),
    Option("enable-debug-command", Choice("no", "yes", "local"), "no", START,
           "Allow DEBUG: no, yes, or local (only clients on this machine)."),
    # Limits for one client
    Option("proto-max-bulk-len", Memory(1 << 20), 512 << 20, RUN, "Maximum size of one argument, in bytes."),
    Option("client-query-buffer-limit", Memory(1 << 20), 1 << 30, RUN,
           "Maximum size of a command that has not fully arrived, in bytes."),
    Option("client-output-buffer-limit", OutputLimits(_LIMITS), _LIMITS, RUN,
           "Maximum unread output per client, in bytes: class, hard limit, soft limit, seconds."),
    # TLS
    Option("tls-port", _PORT, 0, START, "TCP port for TLS; 0 = none."),
    Option("tls-cert-file", FileName(), "", RUN,
           "PEM file with the server's certificate, followed by its intermediate certificates."),
    Option("tls-key-file", FileName(), "", RUN, "PEM file with the private key of the server's certificate."),
    Option("tls-key-file-pass", Secret(), "", RUN, "Password of the private key's file.", secret=True),
    Option("tls-ca-cert-file", FileName(), "", START,
           "PEM file with the CA certificates that client certificates are verified against."),
    Option("tls-ca-cert-dir", FileName(), "", START,
           "Directory of such CA certificates, prepared with `openssl rehash`."),
    Option("tls-auth-clients", Choice("no", "yes", "optional"), "yes", START,
           "Require a client certificate: yes, no, or optional (verify it if the client sends one)."),
    Option("tls-protocols", Words(("TLSv1.2", "TLSv1.3"), empty=True), "", START,
           "TLS versions to accept; empty = both."),
    Option("tls-ciphers", Text(), "", START, "Cipher list for TLS 1.2, in OpenSSL's syntax; empty = Python's default."),
    Option("tls-prefer-server-ciphers", Boolean(), False, START,
           "Choose the cipher by the server's order of preference, not the client's."),
    # Storage
    Option("appendfsync", Choice("everysec", "always", "no"), "everysec", RUN,
           "When the log is synced to disk: always (before each reply to a write; in a store that a server creates), "
           "everysec, or no.", STORE),
    Option("save", SaveRules(), _SAVE, RUN,
           "Write a checkpoint after this many seconds if at least this many changes were made.", STORE),
    Option("auto-aof-rewrite-min-size", Memory(), CHECKPOINT_BYTES, RUN,
           "Write a checkpoint when the log has grown by this many bytes.", STORE),
    Option("auto-aof-rewrite-percentage", OneOf(100, 0), 100, RUN,
           "100 = growth of the log causes checkpoints; 0 = it does not.", STORE),
    Option("maxmemory", Memory(MEMORY_BUDGET_MIN, off=True), 0, RUN,
           "Memory budget in bytes: above it, unused data is evicted from memory; 0 = no budget.", STORE),
    Option("maxdisk", Memory(MAXDISK_MIN, off=True), 0, RUN,
           "Quota in bytes for log, checkpoint and snapshots: at it, writes that add data are refused; 0 = no quota.",
           STORE),
    Option("keep-dead-seconds", Integer(UNSAID, 10**12), UNSAID, RUN,
           "Seconds for which dead jobs are kept; 0 = for ever, -1 = 30 days if the store began empty in 0.2, else 0.",
           STORE),
    Option("keep-dead-jobs", Integer(UNSAID, INT64_MAX), UNSAID, RUN,
           "Number of dead jobs to keep of each queue; 0 = all, -1 = 100,000 if the store began empty in 0.2, else 0.",
           STORE),
    Option("segment-bytes", Memory(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX), SEGMENT_BYTES, START,
           "Size of a log file in bytes, after which a new file is begun.", STORE),
    Option("retain-bytes", Memory(), RETAIN_BYTES, START,
           "Bytes of the log to keep even though a checkpoint contains them.", STORE),
    Option("retain-seconds", Integer(0, 10**12), 0, START,
           "Also keep the part of the log that is younger than this many seconds; 0 = do not keep by age.", STORE),
    Option("retain-bookmark-bytes", Memory(), KEEP_BYTES, START,
           "Bytes of the log to keep for readers in other processes that have set a bookmark.", STORE),
    Option("snapshot-every", Integer(0, 10**12), 0, START, "Seconds between automatic snapshots; 0 = none.", STORE),
    Option("keep-snapshots", Integer(0, INT_MAX), 0, START,
           "Number of snapshots to keep; older ones are deleted; 0 = keep all.", STORE),
    Option("stream-node-max-entries", Integer(0, INT64_MAX), 100, RUN,
           "Maximum number of entries in one node of a stream; 0 = no limit."),
    Option("stream-node-max-bytes", Memory(), 4096, RUN,
           "Maximum size of one node of a stream, in bytes; 0 = no limit."),
    Option("stream-idmp-duration", Integer(1, 86_400), 100, RUN,
           "Seconds for which a stream remembers a producer's idempotent IDs."),
    Option("stream-idmp-maxsize", Integer(1, 10_000), 100, RUN,
           "Maximum number of idempotent IDs that a stream remembers per producer."),
    # Replication
    Option("replicaof", ReplicaOf(), "", START,
           "Host and port of the leader to follow; empty = this server is a leader. REPLICAOF changes it."),
    Option("masteruser", Text(), "", RUN, "User to sign in with at the leader; empty = the default user."),
    Option("masterauth", Secret(), "", RUN, "Password to sign in with at the leader; empty = none.", secret=True),
    Option("tls-replication", Boolean(), False, RUN,
           "Connect to the leader with TLS. tls-ca-cert-file or tls-ca-cert-dir verify its certificate."),
    Option("repl-timeout", Integer(1, INT_MAX), 10, RUN,
           "Seconds of silence after which either side of a replication link closes it; 1 counts as 2."),
    Option("repl-compression", Boolean(), False, RUN,
           "Compress what a leader sends to a follower, if both have this option: for slow links."),
    Option("repl-backlog-size", Memory(16 << 10), 1 << 30, RUN,
           "Maximum bytes of the log to keep for a follower that has not synced them yet."),
    Option("repl-backlog-ttl", Integer(0, INT_MAX), 86_400, RUN,
           "Seconds for which the log is kept for a follower that is away."),
    Option("min-replicas-to-write", Integer(0, INT_MAX), 0, RUN,
           "Refuse writes of clients while fewer followers than this are connected and not silent; 0 = do not."),
    Option("min-replicas-max-lag", Integer(0, INT_MAX), 10, RUN,
           "Seconds of silence after which min-replicas-to-write no longer counts a follower; 0 = refuse no writes."),
    Option("replicate-before-reply", Integer(0, INT_MAX), 0, RUN,
           "A leader's replies, of reads too, wait until this many followers have the data; 0 = they do not wait."),
    Option("replicate-timeout", Integer(0, INT_MAX), 10_000, RUN,
           "Milliseconds after which a reply that waits for followers becomes the error NOREPLICAS; 0 = no limit."),
    Option("replica-serve-stale-data", Boolean(), True, RUN,
           "Answer reads while the link to the leader is down; no = the error MASTERDOWN."),
    Option("replica-surplus-seconds", Integer(0, INT_MAX), 10, RUN,
           "A follower gives up records that its leader lost in a power cut if they span at most this many seconds."),
    Option("replica-verify-every", Integer(0, INT_MAX), 0, RUN,
           "Seconds between two comparisons of a follower's data with its leader's; each reads all data; 0 = none."),
    Option("replica-priority", Integer(0, INT_MAX), 100, RUN,
           "Rank for Sentinel: it promotes the follower with the lowest number, and none with 0."),
    Option("replica-announce-ip", HostName(), "", RUN,
           "Address that the leader shows for this follower; empty = the one it connects from."),
    Option("replica-announce-port", _PORT, 0, RUN,
           "Port that the leader shows for this follower; 0 = `port`, or `tls-port` with tls-replication or without "
           "`port`."),
    # Reporting
    Option("notify-keyspace-events", EventClasses(), "", RUN,
           "Keyspace events to publish, as letters such as K E A g t x n; empty = none."),
    Option("slowlog-log-slower-than", Integer(-1, INT64_MAX), 10_000, RUN,
           "SLOWLOG records commands that take at least this many microseconds; -1 = none."),
    Option("slowlog-max-len", Integer(0, INT64_MAX), 128, RUN, "Maximum number of commands in SLOWLOG."),
    Option("latency-monitor-threshold", Integer(0, INT64_MAX), 0, RUN,
           "LATENCY records events that take at least this many milliseconds; 0 = none."),
    Option("acllog-max-len", Integer(0, INT64_MAX), 128, RUN, "Maximum number of refusals in ACL LOG."),
    Option("metrics-port", _PORT, 0, START, "HTTP port of /metrics, /health and /console; 0 = none."),
    Option("metrics-bind", Text(), "127.0.0.1", START, "Address that metrics-port listens on."),
    Option("metrics-streams", Integer(0, 10_000), 100, START,
           "Maximum number of streams that /metrics lists one by one, in the order of their names."),
    Option("metrics-user", Text(), "default", RUN,
           "User whose rights decide which streams /metrics shows; of a user who does not exist, none."),
    Option("console", Boolean(), True, RUN, "Answer /console on metrics-port: queues and streams in a browser."),
    Option("console-write", Boolean(), False, RUN,
           "The console may change jobs and schedules, for users who signed in with a password."),
    Option("loglevel", Choice("debug", "verbose", "notice", "warning"), "notice", RUN,
           "Lowest level of messages to log.", LOGS),
    Option("logfile", FileName(), "", START, "File for log messages; empty = standard error.", LOGS),
    Option("log-format", Choice("text", "json"), "text", START,
           "Format of log messages: lines of text, or one JSON object per line.", LOGS),
    # The process
    Option("databases", OneOf(DATABASES), DATABASES, FIXED, "Databases."),
    Option("hz", Integer(0, INT_MAX, (1, 500)), 10, RUN, "How many times per second timers are checked."),
    Option("shutdown-timeout", Integer(0, INT_MAX), 10, RUN,
           "Maximum number of seconds that a shutdown waits for followers to have every record (0 = none), and for "
           "replies to be sent."),
    # Fixed facts
    Option("dir", Text(), "", FIXED, "The directory of the store: PATH on the command line."),
    Option("appendonly", Boolean(), True, FIXED, "Every change is written to the log."),
    Option("appenddirname", Text(), "aof", FIXED, "Directory of the log."),
    Option("appendfilename", Text(), ".aof", FIXED, "Suffix of the log's file names, after their number."),
    Option("dbfilename", Text(), "checkpoint/data.mdb", FIXED, "File of the checkpoint, which SAVE writes."),
    Option("aof-use-rdb-preamble", Boolean(), True, FIXED, "The log continues where the checkpoint ends."),
    Option("aof-load-truncated", Boolean(), True, FIXED,
           "When the store is opened, a write that a crash cut off is dropped."),
    Option("aof-timestamp-enabled", Boolean(), True, FIXED, "The log contains the time of each change."),
    Option("aof-disable-auto-gc", Boolean(), False, FIXED,
           "Log files that a checkpoint contains are deleted, except for retain-bytes."),
    Option("no-appendfsync-on-rewrite", Boolean(), False, FIXED,
           "The log is also synced while a checkpoint is written."),
    Option("rdbcompression", Boolean(), False, FIXED, "Checkpoints are not compressed."),
    Option("rdbchecksum", Boolean(), True, FIXED, "Checkpoints have checksums."),
    Option("stop-writes-on-bgsave-error", Boolean(), False, FIXED,
           "Writes continue after a failed checkpoint: the log keeps them."),
    Option("maxmemory-policy", Choice("noeviction"), "noeviction", FIXED, "No keys are deleted to free memory."),
    Option("maxmemory-clients", Memory(), 0, FIXED, "There is no common limit; each client has its own."),
    Option("lazyfree-lazy-eviction", Boolean(), False, FIXED, "No keys are evicted."),
    Option("lazyfree-lazy-expire", Boolean(), False, FIXED, "Expired keys are deleted at once."),
    Option("lazyfree-lazy-server-del", Boolean(), False, FIXED, "Replaced values are deleted at once."),
    Option("lazyfree-lazy-user-del", Boolean(), False, FIXED, "DEL deletes at once."),
    Option("lazyfree-lazy-user-flush", Boolean(), False, FIXED, "FLUSHALL and FLUSHDB delete at once."),
    Option("latency-tracking", Boolean(), True, FIXED, "The latency of every command is recorded."),
    Option("latency-tracking-info-percentiles", Text(), "50 99 99.9", FIXED, "Percentiles of these latencies in INFO."),
    Option("io-threads", OneOf(1), 1, FIXED, "One thread serves all clients."),
    Option("activedefrag", Boolean(), False, FIXED, "There is no active defragmentation."),
    Option("dynamic-hz", Boolean(), False, FIXED, "hz does not change with the number of clients."),
    Option("daemonize", Boolean(), False, FIXED, "The server stays in the foreground."),
    Option("cluster-enabled", Boolean(), False, FIXED, "Cluster mode is not supported."),
    Option("replica-read-only", Boolean(), True, FIXED, "A follower refuses writes."),
    Option("repl-ping-replica-period", OneOf(1), 1, FIXED, "A leader gives its followers a sign of life every second."),
    Option("propagation-error-behavior", Choice("ignore"), "ignore", FIXED,
           "Records of the log are applied as they are."),
    Option("enable-protected-configs", Choice("no"), "no", FIXED, "CONFIG SET cannot change dir and dbfilename."),
    Option("enable-module-command", Choice("no"), "no", FIXED, "Modules are not supported."),
    Option("aclfile", Text(), "", FIXED, "There is no ACL file; users are in the configuration file: users = [...]"),
    Option("acl-pubsub-default", Choice("resetchannels"), "resetchannels", FIXED,
           "A new user has access to no channels."),
)
# fmt: on

OPTIONS: Final = {option.name: option for option in _ALL}
# Former names, which Redis still knows: CONFIG GET and CONFIG SET take both. Files and command lines have the new ones.
ALIASES: Final = {
    name.replace("replica", "slave"): name
    for name in """replicaof replica-serve-stale-data replica-read-only replica-priority replica-announce-ip
    replica-announce-port min-replicas-to-write min-replicas-max-lag repl-ping-replica-period""".split()
}
PROTECTED: Final = frozenset(("dir", "dbfilename"))  # CONFIG SET refuses them with another message
# As in Redis, CONFIG SET refuses these options even if the new value equals the old one.
IMMUTABLE: Final = frozenset(
    """databases io-threads daemonize cluster-enabled appendfilename appenddirname aclfile enable-protected-configs
    enable-module-command""".split()
)
# The values name files whose content may have changed. So setting the same value again counts as a change (as for
# Redis's VOLATILE_CONFIG).
VOLATILE: Final = frozenset(("tls-cert-file", "tls-key-file"))
# A name in the file that is not an option. Its value lists the users, in the form of ACL LIST.
USERS: Final = "users"
