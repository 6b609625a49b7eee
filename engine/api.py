"""The engine as the store and the server use it: they import from here and from the modules beside this one.

The modules in the folders below may change their shape as long as these names keep their meaning. The layer
check of `make check` refuses an import past this face. Values that every layer shares (errors, replies, IDs,
integers) stay in their own small modules beside this one.
"""

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide, expire_due, resolve
from tidelog.engine.commands.groups.ack import still_referenced
from tidelog.engine.commands.groups.grouping import log_claim
from tidelog.engine.commands.groups.readgroup import log_new, next_one, nothing_new, read_new
from tidelog.engine.commands.streams.add import (
    Alike,
    decide_xadd_at,
    decide_xadd_auto,
    decide_xadd_many,
    decide_xadd_run,
    next_id,
)
from tidelog.engine.commands.streams.delete import log_acked, log_delete
from tidelog.engine.commands.streams.trim import xtrim
from tidelog.engine.commands.table import TABLE, Command, Table, wrong_arity
from tidelog.engine.commands.transaction import (
    Exec,
    PlainAdd,
    Queued,
    Transaction,
    Watches,
    discarded,
    words_of,
)
from tidelog.engine.effects.apply import APPLY, applier
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import (
    APPEND,
    COPY,
    DEL,
    DELIVER,
    END,
    EPOCH,
    FLUSHALL,
    FLUSHDB,
    OPCODE,
    RESTORE,
    SEEN,
    SET,
    VOLATILE,
    XACK,
    XACKDEL,
    XADD,
    XADD_IDMP,
    XADD_MANY,
    XADD_NODE,
    XDEL,
    XGROUP_DELCONSUMER,
    XGROUP_DESTROY,
    XIDMPRECORD,
    XNACK,
    XTRIM,
    Effect,
)
from tidelog.engine.effects.events import Event, Notifications, events
from tidelog.engine.effects.observe import SIGNALS, signals, touches
from tidelog.engine.effects.prepare import prepare
from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.groups.pending import NOBODY
from tidelog.engine.keys.freeze import Frozen, freeze, load_state, release, settle, thaw
from tidelog.engine.keys.keyspace import Keyspace, resident
from tidelog.engine.keys.series import SERIES, SERIES_MS
from tidelog.engine.keys.state import DATABASES, Settings, State
from tidelog.engine.keys.values import (
    GROUP_BYTES,
    KEY_BYTES,
    PENDING_BYTES,
    RawString,
    encoding_name,
)
from tidelog.engine.keys.waiting import DbKey, Waiter, Waiting
from tidelog.engine.streams import reading
from tidelog.engine.streams.block import EntryRow
from tidelog.engine.streams.entries import ClaimedEntries, Columns, Entries, RowsPart
from tidelog.engine.streams.idmp import DURATION_MAX_S, FREED, HELD, MAXSIZE_MAX, Idmp
from tidelog.engine.streams.lag import lag
from tidelog.engine.streams.stream import Stream

__all__ = [
    # Databases and keys, and the frozen copy of their changes that a checkpoint writes.
    "DATABASES",
    "DbKey",
    "Frozen",
    "GROUP_BYTES",
    "KEY_BYTES",
    "Keyspace",
    "SERIES",
    "SERIES_MS",
    "PENDING_BYTES",
    "RawString",
    "Settings",
    "State",
    "Waiter",
    "Waiting",
    "encoding_name",
    "freeze",
    "load_state",
    "release",
    "resident",
    "settle",
    "thaw",
    # Commands: words in, effects and a reply out.
    "Alike",
    "Command",
    "Context",
    "Exec",
    "PlainAdd",
    "Queued",
    "TABLE",
    "Table",
    "Transaction",
    "Watches",
    "decide",
    "decide_xadd_at",
    "decide_xadd_auto",
    "decide_xadd_many",
    "decide_xadd_run",
    "discarded",
    "expire_due",
    "log_acked",
    "log_claim",
    "log_delete",
    "log_new",
    "next_id",
    "next_one",
    "nothing_new",
    "read_new",
    "resolve",
    "still_referenced",
    "words_of",
    "wrong_arity",
    "xtrim",
    # Effects: applied, observed, digested.
    "APPEND",
    "APPLY",
    "COPY",
    "DEL",
    "DELIVER",
    "END",
    "EPOCH",
    "Effect",
    "Event",
    "FLUSHALL",
    "FLUSHDB",
    "Notifications",
    "OPCODE",
    "RESTORE",
    "SEEN",
    "SET",
    "SIGNALS",
    "VOLATILE",
    "XACK",
    "XACKDEL",
    "XADD",
    "XADD_IDMP",
    "XADD_MANY",
    "XADD_NODE",
    "XDEL",
    "XGROUP_DELCONSUMER",
    "XGROUP_DESTROY",
    "XIDMPRECORD",
    "XNACK",
    "XTRIM",
    "applier",
    "digest",
    "events",
    "prepare",
    "signals",
    "touches",
    # Streams and groups.
    "ClaimedEntries",
    "Columns",
    "DURATION_MAX_S",
    "Entries",
    "EntryRow",
    "FREED",
    "Group",
    "HELD",
    "Idmp",
    "MAXSIZE_MAX",
    "NOBODY",
    "RowsPart",
    "Stream",
    "UNKNOWN",
    "lag",
    "reading",
]
