"""COMMAND DOCS: each command's group, first version and one-line summary.

Arguments are not described; redis-cli works without them but shows no argument hints.
"""

from __future__ import annotations

from functools import cache

from tidelog.engine.reply import Map
from tidelog.jobs.verbs.found import VERBS
from tidelog.server.commands.describe import subcommands
from tidelog.server.table import Commands, S


def describe(name: bytes, commands: Commands[S]) -> Map | None:
    """Return one entry of COMMAND DOCS; None if there is no such command. `name` is in lower case."""
    if name not in commands.table.commands and name not in commands.table.containers:
        return None
    reply = Map()
    known = _table().get(name)
    if known is not None:
        group, since, summary = known
        reply += b"summary", summary, b"since", since, b"group", group
    below = subcommands(name, commands) if b"|" not in name else []
    if below:
        reply += (
            b"subcommands",
            Map(part for each in below for part in (each.name, describe(each.name, commands))),
        )
    return reply


@cache
def _table() -> dict[bytes, tuple[bytes, bytes, bytes]]:
    """Parse _TEXT, and ask the verbs of a queue: name -> (group, version, summary)."""
    found: dict[bytes, tuple[bytes, bytes, bytes]] = {}
    group = b""
    for line in _TEXT.encode().splitlines():
        if line.startswith(b"# "):
            group = line[2:]
        elif line:
            name, since, summary = line.split(None, 2)
            found[name] = group, since, summary
    for verb in VERBS:
        since, summary = verb.facts.since.encode(), verb.facts.summary.encode()
        found[verb.command().encode()] = b"stream", since, summary
    return found


_TEXT = """
# stream
queue 0.1.0 A durable queue of jobs, with leases and retries
xack 5.0.0 Acknowledge messages of a group
xackdel 8.2.0 Acknowledge messages of a group and delete them where nothing else refers to them
xadd 5.0.0 Append an entry to a stream
xautoclaim 6.2.0 Take over messages that have been pending for long, by a walk over them
xcfgset 8.6.0 Set how long and how many producer IDs a stream remembers
xclaim 5.0.0 Take over pending messages
xdel 5.0.0 Delete entries of a stream
xdelex 8.2.0 Delete entries of a stream, with a choice of what becomes of references to them
xgroup 5.0.0 Consumer groups of a stream
xgroup|create 5.0.0 Create a group
xgroup|createconsumer 6.2.0 Create a consumer of a group
xgroup|delconsumer 5.0.0 Delete a consumer of a group
xgroup|destroy 5.0.0 Delete a group
xgroup|help 5.0.0 Show the subcommands
xgroup|setid 5.0.0 Set the last delivered ID of a group
xidmprecord 8.6.2 Remember the ID of a producer, for a log that is replayed
xinfo 5.0.0 Facts about streams
xinfo|consumers 5.0.0 List the consumers of a group
xinfo|groups 5.0.0 List the groups of a stream
xinfo|help 5.0.0 Show the subcommands
xinfo|stream 5.0.0 Show what is known of a stream
xlen 5.0.0 Count the entries of a stream
xnack 8.8.0 Give pending messages back
xpending 5.0.0 Show what is pending in a group
xrange 5.0.0 Read a range of entries
xread 5.0.0 Read what is newer than given IDs, of many streams; may block
xreadgroup 5.0.0 Read as a consumer of a group, of many streams; may block
xrevrange 5.0.0 Read a range of entries, the newest first
xsetid 5.0.0 Set the last ID of a stream and its counters
xtrim 5.0.0 Delete the oldest entries of a stream
# string
append 2.0.0 Append to a string
decr 1.0.0 Subtract one
decrby 1.0.0 Subtract a number
get 1.0.0 Read a string
getdel 6.2.0 Read a string and delete it
getex 6.2.0 Read a string and set its time to live
getset 1.0.0 Set a string and answer the one before
incr 1.0.0 Add one
incrby 1.0.0 Add a number
mget 1.0.0 Read many strings
mset 1.0.1 Set many strings
msetnx 1.0.1 Set many strings, if none of the keys exists
psetex 2.6.0 Set a string that expires after a number of milliseconds
set 1.0.0 Set a string
setex 2.0.0 Set a string that expires after a number of seconds
setnx 1.0.0 Set a string, if the key does not exist
strlen 2.2.0 Tell the length of a string
# generic
copy 6.2.0 Copy a key
del 1.0.0 Delete keys
dump 2.6.0 Show a value as a payload that RESTORE takes
exists 1.0.0 Count which of the keys exist
expire 1.0.0 Set the time to live, in seconds
expireat 1.2.0 Set when a key expires, in unix seconds
expiretime 7.0.0 Tell when a key expires, in unix seconds
keys 1.0.0 List the keys that match a pattern
move 1.0.0 Move a key to another database
object 2.2.3 Facts about a key's value
object|encoding 2.2.3 Tell how the value is kept
object|freq 4.0.0 Tell how often the key is used
object|help 6.2.0 Show the subcommands
object|idletime 2.2.3 Tell for how long the key was not used
object|refcount 2.2.3 Tell how many references the value has
persist 2.2.0 Take the time to live away
pexpire 2.6.0 Set the time to live, in milliseconds
pexpireat 2.6.0 Set when a key expires, in unix milliseconds
pexpiretime 7.0.0 Tell when a key expires, in unix milliseconds
pttl 2.6.0 Tell the time to live, in milliseconds
randomkey 1.0.0 Answer any key
rename 1.0.0 Rename a key
renamenx 1.0.0 Rename a key, if the new name is free
restore 2.6.0 Store a value that DUMP has shown
scan 2.8.0 Walk over the keys
touch 3.2.1 Use keys, and count which exist
ttl 1.0.0 Tell the time to live, in seconds
type 1.0.0 Tell the type of a value
unlink 4.0.0 Delete keys
wait 3.0.0 Wait until replicas have what this connection wrote
waitaof 7.2.0 Wait until what this connection wrote is on the disk, here and at replicas
# transactions
discard 2.0.0 Drop a transaction
exec 1.2.0 Run a transaction
multi 1.2.0 Begin a transaction
unwatch 2.2.0 Watch nothing any more
watch 2.2.0 Watch keys: if one changes, EXEC runs nothing
# connection
auth 1.0.0 Log in
client 2.4.0 Connections
client|caching 6.0.0 Track the keys of the next command, or not
client|getname 2.6.9 Tell the name of this connection
client|getredir 6.0.0 Tell where invalidation messages go
client|help 5.0.0 Show the subcommands
client|id 5.0.0 Tell the ID of this connection
client|info 6.2.0 Show this connection
client|kill 2.4.0 Close connections
client|list 2.4.0 List connections
client|no-evict 7.0.0 Keep this connection when memory is short
client|no-touch 7.2.0 Leave keys as idle as they were
client|pause 2.9.50 Hold commands back for some time
client|reply 3.2.0 Answer, or do not
client|setinfo 7.2.0 Set the name and version of the client's library
client|setname 2.6.9 Name this connection
client|tracking 6.0.0 Switch client side caching; it is off
client|trackinginfo 6.2.0 Tell about client side caching
client|unblock 5.0.0 End the blocking command of another connection
client|unpause 6.2.0 Go on with what was held back
echo 1.0.0 Answer the argument
hello 6.0.0 Choose the protocol, and log in
ping 1.0.0 Answer PONG
quit 1.0.0 Close this connection
reset 6.2.0 Make this connection as new
select 1.0.0 Choose a database
# pubsub
psubscribe 2.0.0 Listen to channels that match patterns
publish 2.0.0 Send a message to a channel
pubsub 2.8.0 Facts about channels
pubsub|channels 2.8.0 List channels that somebody listens to
pubsub|help 6.2.0 Show the subcommands
pubsub|numpat 2.8.0 Count patterns
pubsub|numsub 2.8.0 Count who listens to channels
pubsub|shardchannels 7.0.0 List shard channels that somebody listens to
pubsub|shardnumsub 7.0.0 Count who listens to shard channels
punsubscribe 2.0.0 Listen to patterns no more
spublish 7.0.0 Send a message to a shard channel
ssubscribe 7.0.0 Listen to shard channels
subscribe 2.0.0 Listen to channels
sunsubscribe 7.0.0 Listen to shard channels no more
unsubscribe 2.0.0 Listen to channels no more
# scripting
eval 2.6.0 Run a script of redis-py's Lock
evalsha 2.6.0 Run a script of redis-py's Lock by its SHA1
function 7.0.0 Functions, of which there are none
function|delete 7.0.0 Answer that there is no such library
function|flush 7.0.0 Do nothing: there are no libraries
function|help 7.0.0 Show the subcommands
function|kill 7.0.0 Answer that no function runs
function|list 7.0.0 List the libraries, none
function|stats 7.0.0 Tell that no function runs
script 2.6.0 Scripts, of which there are three
script|exists 2.6.0 Tell which scripts are those of redis-py's Lock
script|flush 2.6.0 Do nothing: there are no scripts
script|help 5.0.0 Show the subcommands
script|kill 2.6.0 Answer that no script runs
script|load 2.6.0 Tell the SHA1 of a script of redis-py's Lock
# server
acl 6.0.0 Users and what they may do
acl|cat 6.0.0 List categories, or the commands of one
acl|deluser 6.0.0 Delete users
acl|dryrun 7.0.0 Tell whether a user may run a command
acl|genpass 6.0.0 Make up a password
acl|getuser 6.0.0 Show the rules of a user
acl|help 6.0.0 Show the subcommands
acl|list 6.0.0 List users with their rules
acl|load 6.0.0 Read the users from their file again
acl|log 6.0.0 List what was refused
acl|save 6.0.0 Write the users to their file
acl|setuser 6.0.0 Create or change a user
acl|users 6.0.0 List the names of users
acl|whoami 6.0.0 Tell the user of this connection
bgrewriteaof 1.0.0 Fold the log into the checkpoint, in the background
bgsave 1.0.0 Write a checkpoint, in the background
command 2.8.13 Describe all commands
command|count 2.8.13 Count the commands
command|docs 7.0.0 Tell what commands do
command|getkeys 2.8.13 Find the keys of a command
command|getkeysandflags 7.0.0 Find the keys of a command, and what it does with them
command|help 5.0.0 Show the subcommands
command|info 2.8.13 Describe commands
command|list 7.0.0 List the names of commands
config 2.0.0 Options
config|get 2.0.0 Show options
config|help 5.0.0 Show the subcommands
config|resetstat 2.0.0 Count anew
config|rewrite 2.8.0 Write the options to the configuration file
config|set 2.0.0 Set options
dbsize 1.0.0 Count the keys of this database
debug 1.0.0 What test suites need
flushall 1.0.0 Delete all keys of all databases
flushdb 1.0.0 Delete all keys of this database
info 1.0.0 Show facts and counters
lastsave 1.0.0 Tell when the last checkpoint was written
latency 2.8.13 What took long
latency|help 2.8.13 Show the subcommands
latency|histogram 7.0.0 Show how long commands take
latency|history 2.8.13 Show when one event took long
latency|latest 2.8.13 Show the latest of each event
latency|reset 2.8.13 Forget events
lolwut 5.0.0 Show the version
memory 4.0.0 What memory is used for
memory|doctor 4.0.0 Say what is wrong with memory
memory|help 4.0.0 Show the subcommands
memory|malloc-stats 4.0.0 Show the allocator's own figures
memory|purge 4.0.0 Give free memory back to the system
memory|stats 4.0.0 Show what memory is used for
memory|usage 4.0.0 Estimate the memory of a key
monitor 1.0.0 Show every command as it is run
psync 2.8.0 Answer that tidelog has a replication of its own
failover 6.2.0 Hand over to a replica
replconf 3.0.0 Answer that tidelog has a replication of its own
replicaof 5.0.0 Follow another server, or none
role 2.8.12 Tell whether this is a master
save 1.0.0 Write a checkpoint
shutdown 1.0.0 End the server
slaveof 1.0.0 Follow another server, or none
slowlog 2.2.12 Commands that took long
slowlog|get 2.2.12 Show the latest
slowlog|help 6.2.0 Show the subcommands
slowlog|len 2.2.12 Count them
slowlog|reset 2.2.12 Forget them
swapdb 4.0.0 Exchange two databases
sync 1.0.0 Answer that tidelog has a replication of its own
tidelog 0.1.0 What only tidelog has
tidelog|follow 0.1.0 Ask a leader for its log; followers send it
tidelog|digest 0.1.0 Get the digest of the state at an LSN; followers ask for it
tidelog|verify 0.1.0 Compare the data of this follower with its leader's
tidelog|status 0.1.0 Get role, followers, lag and log as a JSON object
tidelog|once 0.1.0 Run a write unless a write with this number was stored before
tidelog|snapshot 0.1.0 Publish a portable snapshot of the store
tidelog|capabilities 0.2.0 List what earlier versions of the server lack
tidelog|handover 0.2.0 Ask an owner that clients started to pass its socket on and to end
tidelog|yield 0.1.0 Ask an owner that is older and that nobody else uses to end
tidelog|token 0.1.0 The place in the log of what this connection wrote or was shown
tidelog|waitfor 0.1.0 Wait until this server has applied what a token names
time 2.6.0 Tell the time
"""
