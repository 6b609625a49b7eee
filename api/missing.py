"""Missing: the error for a method that a store or a pipeline does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

# redis-py's names of methods that a store lacks, and the call to use instead.
INSTEAD = {
    "bgrewriteaof": "call checkpoint()",
    "bgsave": "call snapshot()",
    "save": "call snapshot()",
    "pubsub": "serve the store with tidelog.serve() and use a Redis client",
    "publish": "serve the store with tidelog.serve() and use a Redis client",
    "subscribe": "serve the store with tidelog.serve() and use a Redis client",
    "psubscribe": "serve the store with tidelog.serve() and use a Redis client",
    "monitor": "serve the store with tidelog.serve() and use a Redis client",
    "lpush": "use a queue (db.queue) or a stream",
    "rpush": "use a queue (db.queue) or a stream",
    "blpop": "use a queue (db.queue) or a stream",
    "brpop": "use a queue (db.queue) or a stream",
    "select": "use db.db(number)",
    "from_url": "use tidelog.open(path)",
}
_OTHERWISE = (
    "docs/guides/embedded.md lists the methods; execute_command() runs any command that tidelog has"
)
# The method names of redis-py 8. If a store or a pipeline lacks one of them, its AttributeError says what to use
# instead.
NAMES = frozenset(
    """
    acl_cat acl_deluser acl_dryrun acl_genpass acl_getuser acl_help acl_list acl_load acl_log acl_log_reset
    acl_save acl_setuser acl_users acl_whoami arcount ardel ardelrange arget argetrange argrep arinfo arinsert
    arlastitems arlen armget armset arnext arop arring arscan arseek arset auth bf bgrewriteaof bgsave bitcount
    bitfield bitfield_ro bitop bitpos blmove blmovem blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin cf
    client client_getname client_getredir client_id client_info client_kill client_kill_filter client_list
    client_no_evict client_no_touch client_pause client_reply client_setinfo client_setname client_tracking
    client_tracking_off client_tracking_on client_trackinginfo client_unblock client_unpause close cluster cms
    command command_count command_docs command_getkeys command_getkeysandflags command_info command_list
    config_get config_resetstat config_rewrite config_set debug_object debug_segfault delex digest digest_local
    dump eval eval_ro evalsha evalsha_ro failover fcall fcall_ro from_pool from_url ft function_delete
    function_dump function_flush function_kill function_list function_load function_restore function_stats geoadd
    geodist geohash geopos georadius georadiusbymember geosearch geosearchstore get_cache get_connection_kwargs
    get_encoder get_retry getbit getrange hdel hello hexists hexpire hexpireat hexpiretime hget hgetall hgetdel
    hgetex himport_discard himport_discard_all himport_discard_all_internal himport_discard_internal
    himport_prepare himport_prepare_internal himport_registry himport_set hincrby hincrbyfloat hkeys hlen hmget
    hmset hotkeys_get hotkeys_reset hotkeys_start hotkeys_stop hpersist hpexpire hpexpireat hpexpiretime hpttl
    hrandfield hscan hscan_iter hset hsetex hsetnx hstrlen httl hvals incrbyfloat increx info json
    keyspace_notifications lastsave latency_doctor latency_graph latency_histogram latency_history latency_latest
    latency_reset lcs lindex linsert llen lmove lmovem lmpop load_external_module lock lolwut lpop lpos lpush
    lpushx lrange lrem lset ltrim memory_doctor memory_help memory_malloc_stats memory_purge memory_stats migrate
    module_list module_load module_loadex module_unload monitor msetex parse_response pfadd pfcount pfmerge ping
    pipeline psubscribe psync publish pubsub pubsub_channels pubsub_numpat pubsub_numsub pubsub_shardchannels
    pubsub_shardnumsub quit readonly readwrite register_script replicaof reset restore role rpop rpoplpush rpush
    rpushx sadd save scan_iter scard script_debug script_exists script_flush script_kill script_load sdiff
    sdiffcard sdiffstore select sentinel sentinel_ckquorum sentinel_failover sentinel_flushconfig
    sentinel_get_master_addr_by_name sentinel_master sentinel_masters sentinel_monitor sentinel_remove
    sentinel_reset sentinel_sentinels sentinel_set sentinel_slaves set_response_callback set_retry setbit setrange
    shutdown sinter sintercard sinterstore sismember slaveof slowlog_get slowlog_len slowlog_reset smembers
    smismember smove sort sort_ro spop spublish srandmember srem sscan sscan_iter stralgo subscribe substr sunion
    sunioncard sunionstore sync tdigest time topk transaction ts unwatch vset wait waitaof watch zadd zcard zcount
    zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember
    zrange zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore
    zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscan_iter zscore zunion zunionstore
    """.split()
)

T = TypeVar("T")


class _Absent:
    """A descriptor in the place of a method that does not exist: looking it up raises AttributeError with advice.

    A `__getattr__` would do the same, but a class that has one makes every attribute of its objects slower to read.
    """

    __slots__ = ("_name", "_kind", "_advice")

    def __init__(self, name: str, kind: str, advice: str) -> None:
        self._name, self._kind, self._advice = name, kind, advice

    def __get__(self, obj: object, owner: type | None = None) -> object:
        text = f"tidelog's {self._kind} has no {self._name!r}: {self._advice}"
        raise AttributeError(text, name=self._name, obj=obj)


def answers_missing(kind: type[T]) -> type[T]:
    """Give a class an answer for every name of redis-py that it lacks. Type checkers and `dir` do not see these."""
    return answers(kind, {})


def answers(kind: type[T], instead: Mapping[str, str]) -> type[T]:
    """As `answers_missing`. `instead` has further names, and other advice for some."""
    absent = {name for name in NAMES | instead.keys() if not hasattr(kind, name)}
    advice = {**INSTEAD, **instead}
    for name in absent:
        setattr(kind, name, _Absent(name, kind.__name__, advice.get(name, _OTHERWISE)))

    def names(self: object) -> list[str]:
        return [name for name in object.__dir__(self) if name not in absent]

    setattr(kind, "__dir__", names)
    return kind
