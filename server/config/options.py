"""The table of all server options: kind, default, when they may be changed, and what they do.

Names, defaults and bounds are those of Redis 7.0 and, for streams, of 8.8 (spec 16.3), where Redis has the option.
Differences: `bind` defaults to loopback, appendonly is always on, and `unixsocketperm` admits only the owner.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog.aof.log import SEGMENT_BYTES
from tidelog.engine.integers import INT64_MAX
from tidelog.engine.keys.state import DATABASES
from tidelog.server.config.kinds import (
    INT_MAX,
    Boolean,
    Choice,
    EventClasses,
    Integer,
    Kind,
    Limit,
    Memory,
    Mode,
    OneOf,
    OutputLimits,
    SaveRules,
    Text,
    Words,
)
from tidelog.store.options import (
    CHECKPOINT_BYTES,
    MEMORY_BUDGET_MIN,
    RETAIN_BYTES,
    SAVE,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
)

RUN: Final = "run"  # by CONFIG SET, and at startup
START: Final = "start"  # in the file and on the command line
FIXED: Final = "fixed"  # never: clients and tools read it; the value states a fact

SERVER: Final = "server"
STORE: Final = "store"  # options of the store; if it is already open, its owner sets them
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
_ALL: Final = (
    # Listening and access
    Option("bind", Words(), "127.0.0.1 -::1", START,
           "Addresses to listen on; one with - before it may be missing; * is all."),
    Option("port", _PORT, 6379, START, "TCP port; 0 = none."),
    Option("unixsocket", Text(), "", START, "Path of a Unix socket; empty = none."),
    Option("unixsocketperm", Mode(), "700", START, "Permissions of the Unix socket, octal."),
    Option("tcp-backlog", Integer(0, INT_MAX), 511, START, "Connections that may wait to be accepted."),
    Option("protected-mode", Boolean(), True, RUN, "Without a password serve only clients on this machine."),
    Option("requirepass", Text(), "", RUN, "Password of the default user; empty = none is asked for.", secret=True),
    Option("maxclients", Integer(1, (1 << 32) - 1), 10_000, RUN, "Clients served at a time."),
    Option("timeout", Integer(0, INT_MAX), 0, RUN, "Seconds after which an idle client is disconnected; 0 = never."),
    Option("tcp-keepalive", Integer(0, INT_MAX), 300, RUN, "Seconds between probes of an idle connection; 0 = none."),
    Option("enable-debug-command", Choice("no", "yes", "local"), "no", START,
           "Who may use DEBUG: nobody, all, clients on this machine."),
    # Limits for one client
    Option("proto-max-bulk-len", Memory(1 << 20), 512 << 20, RUN, "Bytes one argument may have."),
    Option("client-query-buffer-limit", Memory(1 << 20), 1 << 30, RUN, "Bytes of an unfinished command that are kept."),
    Option("client-output-buffer-limit", OutputLimits(_LIMITS), _LIMITS, RUN,
           "Bytes a client may leave unread: class, hard, soft, seconds."),
    # TLS
    Option("tls-port", _PORT, 0, START, "Port for TLS; 0 = none."),
    Option("tls-cert-file", Text(), "", RUN, "Certificate of the server and those that it rests on, PEM."),
    Option("tls-key-file", Text(), "", RUN, "Its private key, PEM."),
    Option("tls-key-file-pass", Text(), "", RUN, "Password of the private key.", secret=True),
    Option("tls-ca-cert-file", Text(), "", START, "Certificates that a client's must rest on, PEM."),
    Option("tls-ca-cert-dir", Text(), "", START, "A folder of such certificates, as `openssl rehash` makes it."),
    Option("tls-auth-clients", Choice("no", "yes", "optional"), "yes", START,
           "Whether clients must show a certificate."),
    Option("tls-protocols", Words(("TLSv1.2", "TLSv1.3"), empty=True), "", START,
           "Versions that are spoken; empty = both."),
    Option("tls-ciphers", Text(), "", START, "Ciphers of TLS 1.2, in the words of OpenSSL; empty = Python's choice."),
    Option("tls-prefer-server-ciphers", Boolean(), False, START,
           "The server's order of ciphers counts, not the client's."),
    # Storage
    Option("appendfsync", Choice("everysec", "always", "no"), "everysec", RUN,
           "When a reply means that the disk has it.", STORE),
    Option("save", SaveRules(), _SAVE, RUN, "Fold the log after so many seconds if so much changed.", STORE),
    Option("auto-aof-rewrite-min-size", Memory(), CHECKPOINT_BYTES, RUN,
           "Fold the log when it grew by so many bytes.", STORE),
    Option("auto-aof-rewrite-percentage", OneOf(100, 0), 100, RUN, "0 = growth alone does not fold the log.", STORE),
    Option("maxmemory", Memory(MEMORY_BUDGET_MIN, off=True), 0, RUN,
           "Memory budget: what is not used leaves memory; 0 = none.", STORE),
    Option("segment-bytes", Memory(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX), SEGMENT_BYTES, START,
           "Size at which the log goes on in a new file.", STORE),
    Option("retain-bytes", Memory(), RETAIN_BYTES, START, "Bytes of the folded log that stay.", STORE),
    Option("retain-seconds", Integer(0, 10**12), 0, START,
           "What is younger stays of the folded log too; 0 = by bytes alone.", STORE),
    Option("snapshot-every", Integer(0, 10**12), 0, START, "Seconds between snapshots; 0 = none by themselves.", STORE),
    Option("keep-snapshots", Integer(0, INT_MAX), 0, START, "How many snapshots stay, the newest; 0 = all.", STORE),
    Option("stream-node-max-entries", Integer(0, INT64_MAX), 100, RUN,
           "Entries in one node of a stream; 0 = no limit."),
    Option("stream-node-max-bytes", Memory(), 4096, RUN, "Bytes in one node of a stream; 0 = no limit."),
    Option("stream-idmp-duration", Integer(1, 86_400), 100, RUN, "Seconds for which a producer's IDs are remembered."),
    Option("stream-idmp-maxsize", Integer(1, 10_000), 100, RUN, "IDs that are remembered of one producer."),
    # Reporting
    Option("notify-keyspace-events", EventClasses(), "", RUN,
           "Events of keys that are published: letters of K E A g t x n ..."),
    Option("slowlog-log-slower-than", Integer(-1, INT64_MAX), 10_000, RUN,
           "Microseconds from which SLOWLOG keeps a command; -1 = never."),
    Option("slowlog-max-len", Integer(0, INT64_MAX), 128, RUN, "Commands that SLOWLOG keeps."),
    Option("latency-monitor-threshold", Integer(0, INT64_MAX), 0, RUN,
           "Milliseconds from which LATENCY keeps an event; 0 = none."),
    Option("acllog-max-len", Integer(0, INT64_MAX), 128, RUN, "Refusals that ACL LOG keeps."),
    Option("metrics-port", _PORT, 0, START, "HTTP port of /metrics and /health; 0 = none."),
    Option("metrics-bind", Text(), "127.0.0.1", START, "Address of that port."),
    Option("metrics-streams", Integer(0, 10_000), 100, START,
           "Streams that /metrics shows one by one, the first by name."),
    Option("loglevel", Choice("debug", "verbose", "notice", "warning"), "notice", RUN,
           "What is logged: from this level on.", LOGS),
    Option("logfile", Text(), "", START, "File of the log; empty = standard error.", LOGS),
    Option("log-format", Choice("text", "json"), "text", START, "Lines of text, or one JSON object a line.", LOGS),
    # The process
    Option("databases", OneOf(DATABASES), DATABASES, FIXED, "Databases."),
    Option("hz", Integer(0, INT_MAX, (1, 500)), 10, RUN, "How often a second timers are looked at."),
    Option("shutdown-timeout", Integer(0, INT_MAX), 10, RUN, "Seconds that a shutdown waits for replies to leave."),
    # Fixed facts
    Option("dir", Text(), "", FIXED, "The directory of the store: PATH on the command line."),
    Option("appendonly", Boolean(), True, FIXED, "Everything goes through the log."),
    Option("appenddirname", Text(), "aof", FIXED, "Folder of the log."),
    Option("appendfilename", Text(), ".aof", FIXED, "What files of the log are called, after their number."),
    Option("dbfilename", Text(), "checkpoint/data.mdb", FIXED, "The checkpoint, which SAVE writes."),
    Option("aof-use-rdb-preamble", Boolean(), True, FIXED, "The log goes on behind a checkpoint."),
    Option("aof-load-truncated", Boolean(), True, FIXED,
           "A write that a crash cut off is dropped when the store is opened."),
    Option("aof-timestamp-enabled", Boolean(), True, FIXED, "The log knows when a thing happened."),
    Option("aof-disable-auto-gc", Boolean(), False, FIXED,
           "Files of the log that are folded go, but for retain-bytes."),
    Option("no-appendfsync-on-rewrite", Boolean(), False, FIXED, "The log is synced during a checkpoint too."),
    Option("rdbcompression", Boolean(), False, FIXED, "Checkpoints are not compressed."),
    Option("rdbchecksum", Boolean(), True, FIXED, "Checkpoints have checksums."),
    Option("stop-writes-on-bgsave-error", Boolean(), False, FIXED,
           "A failed checkpoint loses nothing: the log goes on."),
    Option("maxmemory-policy", Choice("noeviction"), "noeviction", FIXED, "Nothing is ever dropped to make room."),
    Option("maxmemory-clients", Memory(), 0, FIXED, "Clients are bounded one by one."),
    Option("lazyfree-lazy-eviction", Boolean(), False, FIXED, "Nothing is evicted."),
    Option("lazyfree-lazy-expire", Boolean(), False, FIXED, "What expires goes at once."),
    Option("lazyfree-lazy-server-del", Boolean(), False, FIXED, "What is replaced goes at once."),
    Option("lazyfree-lazy-user-del", Boolean(), False, FIXED, "DEL deletes at once."),
    Option("lazyfree-lazy-user-flush", Boolean(), False, FIXED, "FLUSHALL and FLUSHDB delete at once."),
    Option("latency-tracking", Boolean(), True, FIXED, "Times of all commands are counted."),
    Option("latency-tracking-info-percentiles", Text(), "50 99 99.9", FIXED, "What INFO shows of them."),
    Option("io-threads", OneOf(1), 1, FIXED, "One thread serves all clients."),
    Option("activedefrag", Boolean(), False, FIXED, "Memory is not moved."),
    Option("dynamic-hz", Boolean(), False, FIXED, "hz is what it is."),
    Option("daemonize", Boolean(), False, FIXED, "It stays in the foreground."),
    Option("cluster-enabled", Boolean(), False, FIXED, "No cluster."),
    Option("replicaof", Text(), "", FIXED, "It follows nobody."),
    Option("replica-read-only", Boolean(), True, FIXED, "A follower would take no writes."),
    Option("min-replicas-to-write", Integer(0, INT_MAX), 0, FIXED, "Writes wait for no followers."),
    Option("propagation-error-behavior", Choice("ignore"), "ignore", FIXED, "What was logged is applied as it is."),
    Option("enable-protected-configs", Choice("no"), "no", FIXED, "dir and dbfilename cannot be set."),
    Option("enable-module-command", Choice("no"), "no", FIXED, "There are no modules."),
    Option("aclfile", Text(), "", FIXED, "Users stand in the configuration file: users = [...]"),
    Option("acl-pubsub-default", Choice("resetchannels"), "resetchannels", FIXED, "A new user may use no channels."),
)
# fmt: on

OPTIONS: Final = {option.name: option for option in _ALL}
PROTECTED: Final = frozenset(("dir", "dbfilename"))  # CONFIG SET refuses them with another message
# CONFIG SET refuses these even if the value would not change, as Redis does.
IMMUTABLE: Final = frozenset(
    """databases io-threads daemonize cluster-enabled appendfilename appenddirname aclfile enable-protected-configs
    enable-module-command""".split()
)
# The value names a file that may have changed, so setting the same value is a change (as Redis's VOLATILE_CONFIG).
VOLATILE: Final = frozenset(("tls-cert-file", "tls-key-file"))
# A name in the file that is not an option: users' lines, as ACL LIST shows them.
USERS: Final = "users"
