"""Handlers: `COMMANDS` lists each command of the server's own with its handler. All others are the engine's."""

from typing import Final

from tidelog.server.commands import (
    auth,
    capabilities,
    client,
    config,
    debug,
    failover,
    follow,
    handover,
    info,
    introspect,
    keys,
    once,
    persistence,
    pubsub,
    replication,
    scripts,
    slowlog,
    snapshot,
    token,
    transactions,
    wait,
    yielding,
)
from tidelog.server.commands.queue.table import QUEUE
from tidelog.server.session import Session
from tidelog.server.table import Commands, Own

_ADMIN = "admin noscript loading stale"
_ANY_TIME = "loading stale"
_OWN = "noscript loading stale"
_SUBSCRIBER = "pubsub noscript loading stale"
_SIGN_IN = "noscript loading stale fast no_auth allow_busy"
_TRANSACTION = "noscript loading stale fast allow_busy"
_SCRIPT = "noscript stale skip_monitor no_mandatory_keys movablekeys"

# fmt: off
COMMANDS: Final[Commands[Session]] = Commands((
    # name, arity, flags, handler, categories, keys
    Own("auth", -2, _SIGN_IN, auth.auth, "connection"),
    Own("hello", -1, _SIGN_IN, auth.hello, "connection"),
    Own("quit", -1, _SIGN_IN, auth.quit_, "connection"),
    Own("reset", 1, _SIGN_IN, auth.reset, "connection"),
    Own("acl|setuser", -3, _ADMIN, auth.acl_setuser),
    Own("acl|deluser", -3, _ADMIN, auth.acl_deluser),
    Own("acl|getuser", 3, _ADMIN, auth.acl_getuser),
    Own("acl|list", 2, _ADMIN, auth.acl_list),
    Own("acl|users", 2, _ADMIN, auth.acl_users),
    Own("acl|whoami", 2, _OWN, auth.acl_whoami),
    Own("acl|load", 2, _ADMIN, auth.acl_load),
    Own("acl|save", 2, _ADMIN, auth.acl_save),
    Own("acl|cat", -2, _OWN, auth.acl_cat),
    Own("acl|genpass", -2, _OWN, auth.acl_genpass),
    Own("acl|dryrun", -4, _ADMIN, auth.acl_dryrun),
    Own("acl|log", -2, _ADMIN, auth.acl_log),
    Own("acl|help", 2, _ANY_TIME, auth.acl_help),

    Own("client|id", 2, _OWN, client.client_id, "connection"),
    Own("client|info", 2, _OWN, client.client_info, "connection"),
    Own("client|setname", 3, _OWN, client.client_setname, "connection"),
    Own("client|getname", 2, _OWN, client.client_getname, "connection"),
    Own("client|setinfo", 4, _OWN, client.client_setinfo, "connection"),
    Own("client|reply", 3, _OWN, client.client_reply, "connection"),
    Own("client|no-evict", 3, _ADMIN, client.client_no_evict, "connection"),
    Own("client|no-touch", 3, _OWN, client.client_no_touch, "connection"),
    Own("client|tracking", -3, _OWN, client.client_tracking, "connection"),
    Own("client|trackinginfo", 2, _OWN, client.client_trackinginfo, "connection"),
    Own("client|getredir", 2, _OWN, client.client_getredir, "connection"),
    Own("client|caching", 3, _OWN, client.client_caching, "connection"),
    Own("client|list", -2, _ADMIN, client.client_list, "connection"),
    Own("client|kill", -3, _ADMIN, client.client_kill, "connection"),
    Own("client|unblock", -3, _ADMIN, client.client_unblock, "connection"),
    Own("client|pause", -3, _ADMIN, client.client_pause, "connection"),
    Own("client|unpause", 2, _ADMIN, client.client_unpause, "connection"),
    Own("client|help", 2, _ANY_TIME, client.client_help, "connection"),

    Own("config|get", -3, _ADMIN, config.config_get),
    Own("config|set", -4, _ADMIN, config.config_set),
    Own("config|resetstat", 2, _ADMIN, config.config_resetstat),
    Own("config|rewrite", 2, _ADMIN, config.config_rewrite),
    Own("config|help", 2, _ANY_TIME, config.config_help),

    Own("debug", -2, _ADMIN, debug.debug),

    Own("info", -1, _ANY_TIME, info.info_, "dangerous"),
    Own("lolwut", -1, "readonly fast", info.lolwut),
    Own("memory|doctor", 2, "", info.memory_doctor),
    Own("memory|stats", 2, "", info.memory_stats),
    Own("memory|malloc-stats", 2, "", info.memory_malloc_stats),
    Own("memory|purge", 2, "", info.memory_purge),
    Own("memory|help", 2, _ANY_TIME, info.memory_help),
    Own("latency|history", 3, _ADMIN, info.latency_history),
    Own("latency|latest", 2, _ADMIN, info.latency_latest),
    Own("latency|reset", -2, _ADMIN, info.latency_reset),
    Own("latency|histogram", -2, _ADMIN, info.latency_histogram),
    Own("latency|help", 2, _ANY_TIME, info.latency_help),

    Own("command", -1, _ANY_TIME, introspect.command_, "connection"),
    Own("command|count", 2, _ANY_TIME, introspect.command_count, "connection"),
    Own("command|info", -2, _ANY_TIME, introspect.command_info, "connection"),
    Own("command|docs", -2, _ANY_TIME, introspect.command_docs, "connection"),
    Own("command|list", -2, _ANY_TIME, introspect.command_list, "connection"),
    Own("command|getkeys", -3, _ANY_TIME, introspect.command_getkeys, "connection"),
    Own("command|getkeysandflags", -3, _ANY_TIME, introspect.command_getkeysandflags, "connection"),
    Own("command|help", 2, _ANY_TIME, introspect.command_help, "connection"),

    Own("keys", 2, "readonly", keys.keys),
    Own("scan", -2, "readonly", keys.scan),
    Own("randomkey", 1, "readonly", keys.randomkey),

    Own("save", 1, "admin noscript no_async_loading no_multi", persistence.save),
    Own("bgsave", -1, "admin noscript no_async_loading", persistence.bgsave),
    Own("bgrewriteaof", 1, "admin noscript no_async_loading", persistence.bgrewriteaof),
    Own("lastsave", 1, "loading stale fast", persistence.lastsave, "admin dangerous"),
    Own("shutdown", -1, "admin noscript loading stale no_multi allow_busy", persistence.shutdown),

    Own("role", 1, "noscript loading stale fast", replication.role, "admin dangerous"),
    Own("replicaof", -3, "admin noscript stale no_async_loading", replication.replicaof),
    Own("slaveof", -3, "admin noscript stale no_async_loading", replication.replicaof),
    Own("failover", -1, "admin noscript stale", failover.failover),
    Own("tidelog|follow", -9, "admin noscript loading stale no_multi", follow.follow),
    Own("tidelog|digest", 4, "noscript loading stale", replication.digest, "admin dangerous"),
    Own("tidelog|verify", 2, "noscript loading stale", replication.verify, "admin dangerous"),
    Own("tidelog|status", 2, "noscript loading stale", replication.status, "admin dangerous"),
    Own("tidelog|once", -5, "write denyoom noscript no_multi", once.once, "connection"),
    Own("tidelog|yield", 3, "noscript loading stale fast no_multi", yielding.yield_, "connection"),
    Own("tidelog|handover", -2, "noscript loading stale fast no_multi", handover.handover, "connection"),
    Own("tidelog|capabilities", -2, _ANY_TIME, capabilities.capabilities, "connection"),
    Own("tidelog|snapshot", 2, "noscript no_multi", snapshot.snapshot, "admin dangerous"),
    Own("tidelog|token", 2, "noscript loading stale fast", token.token, "connection"),
    Own("tidelog|waitfor", 4, "noscript loading stale blocking", token.waitfor, "connection"),
    Own("psync", -3, "admin noscript no_async_loading no_multi", follow.foreign),
    Own("sync", 1, "admin noscript no_async_loading no_multi", follow.foreign),
    Own("replconf", -1, "admin noscript loading stale allow_busy", follow.foreign),

    Own("subscribe", -2, _SUBSCRIBER, pubsub.subscribe),
    Own("psubscribe", -2, _SUBSCRIBER, pubsub.psubscribe),
    Own("ssubscribe", -2, _SUBSCRIBER, pubsub.ssubscribe, "", (1, -1, 1)),
    Own("unsubscribe", -1, _SUBSCRIBER, pubsub.unsubscribe),
    Own("punsubscribe", -1, _SUBSCRIBER, pubsub.punsubscribe),
    Own("sunsubscribe", -1, _SUBSCRIBER, pubsub.sunsubscribe, "", (1, -1, 1)),
    Own("publish", 3, "pubsub loading stale fast", pubsub.publish),
    Own("spublish", 3, "pubsub loading stale fast", pubsub.spublish, "", (1, 1, 1)),
    Own("ping", -1, "fast", pubsub.ping, "connection"),
    Own("monitor", 1, _ADMIN, pubsub.monitor),
    Own("pubsub|channels", -2, "pubsub loading stale", pubsub.pubsub_channels),
    Own("pubsub|shardchannels", -2, "pubsub loading stale", pubsub.pubsub_shardchannels),
    Own("pubsub|numsub", -2, "pubsub loading stale", pubsub.pubsub_numsub),
    Own("pubsub|shardnumsub", -2, "pubsub loading stale", pubsub.pubsub_shardnumsub),
    Own("pubsub|numpat", 2, "pubsub loading stale", pubsub.pubsub_numpat),
    Own("pubsub|help", 2, _ANY_TIME, pubsub.pubsub_help),

    Own("function|flush", -2, "write noscript", scripts.function_flush, "scripting"),
    Own("function|list", -2, "noscript", scripts.function_list, "scripting"),
    Own("function|stats", 2, "noscript allow_busy", scripts.function_stats, "scripting"),
    Own("function|delete", 3, "write noscript", scripts.function_delete, "scripting"),
    Own("function|kill", 2, "noscript allow_busy", scripts.function_kill, "scripting"),
    Own("function|help", 2, _ANY_TIME, scripts.function_help, "scripting"),
    Own("script|flush", -2, "noscript", scripts.script_flush, "scripting"),
    Own("script|exists", -3, "noscript", scripts.script_exists, "scripting"),
    Own("script|load", 3, "noscript stale", scripts.script_load, "scripting"),
    Own("script|kill", 2, "noscript allow_busy", scripts.script_kill, "scripting"),
    Own("script|help", 2, _ANY_TIME, scripts.script_help, "scripting"),

    Own("eval", -3, _SCRIPT, scripts.eval_, "scripting"),
    Own("evalsha", -3, _SCRIPT, scripts.eval_, "scripting"),

    *(
        Own(verb.command(), verb.facts.arity, verb.facts.flags, handle, "stream", verb.facts.keys)
        for verb, handle in QUEUE.items()
    ),

    Own("slowlog|get", -2, "admin loading stale", slowlog.slowlog_get),
    Own("slowlog|len", 2, "admin loading stale", slowlog.slowlog_len),
    Own("slowlog|reset", 2, "admin loading stale", slowlog.slowlog_reset),
    Own("slowlog|help", 2, _ANY_TIME, slowlog.slowlog_help),

    Own("multi", 1, _TRANSACTION, transactions.multi, "transaction"),
    Own("exec", 1, "noscript loading stale skip_slowlog", transactions.exec_, "transaction"),
    Own("discard", 1, _TRANSACTION, transactions.discard, "transaction"),
    Own("watch", -2, _TRANSACTION, transactions.watch, "transaction", (1, -1, 1)),
    Own("unwatch", 1, _TRANSACTION, transactions.unwatch, "transaction"),
    Own("select", 2, "loading stale fast", transactions.select, "connection"),

    Own("wait", 3, "blocking", wait.wait, "connection"),
    Own("waitaof", 4, "blocking", wait.waitaof, "connection"),
))
# fmt: on
