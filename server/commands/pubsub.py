"""SUBSCRIBE and its relatives, PUBLISH, PUBSUB, MONITOR, and PING, whose reply differs for a RESP2 subscriber."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.api.face import nothing
from tidelog.engine.api import wrong_arity
from tidelog.engine.errors import CommandError, echo
from tidelog.engine.glob import matcher
from tidelog.engine.reply import OK, Reply, Status
from tidelog.server.session import Session
from tidelog.server.wire.replies import Push
from tidelog.store.commit.durability import Promise

# --- subscriptions: one message for each name


def subscribe(session: Session, args: list[bytes]) -> Reply:
    return _each(session, args, args[1:], session.server.pubsub.subscribe, _all)


def psubscribe(session: Session, args: list[bytes]) -> Reply:
    return _each(session, args, args[1:], session.server.pubsub.psubscribe, _all)


def ssubscribe(session: Session, args: list[bytes]) -> Reply:
    if session.in_exec:
        raise CommandError(b"ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
    return _each(session, args, args[1:], session.server.pubsub.ssubscribe, _of_shards)


def unsubscribe(session: Session, args: list[bytes]) -> Reply:
    names = args[1:] or list(session.channels)
    return _each(session, args, names, session.server.pubsub.unsubscribe, _all)


def punsubscribe(session: Session, args: list[bytes]) -> Reply:
    names = args[1:] or list(session.patterns)
    return _each(session, args, names, session.server.pubsub.punsubscribe, _all)


def sunsubscribe(session: Session, args: list[bytes]) -> Reply:
    names = args[1:] or list(session.shard_channels)
    return _each(session, args, names, session.server.pubsub.sunsubscribe, _of_shards)


def _each(
    session: Session,
    args: list[bytes],
    names: list[bytes],
    change: Callable[[Session, bytes], None],
    count: Callable[[Session], int],
) -> Reply:
    """Change the subscription for each name and confirm each. The last confirmation is the reply, for EXEC."""
    word = args[0].lower()
    # deliver earlier events before a subscription changes
    session.server.pubsub.deliver()
    if not names:
        return Push([word, None, count(session)])
    messages = []
    for name in names:
        change(session, name)
        messages.append(Push([word, name, count(session)]))
    session.settle()
    *before, last = messages
    for message in before:
        session.push(message)
    return last


def _all(session: Session) -> int:
    return len(session.channels) + len(session.patterns)


def _of_shards(session: Session) -> int:
    return len(session.shard_channels)


# --- messages


def publish(session: Session, args: list[bytes]) -> Reply:
    pubsub = session.server.pubsub
    pubsub.deliver()  # earlier events go before this message
    return pubsub.publish(args[1], args[2], _all_before(session))


def spublish(session: Session, args: list[bytes]) -> Reply:
    return session.server.pubsub.spublish(args[1], args[2], _all_before(session))


def _all_before(session: Session) -> Promise:
    """A promise for everything logged so far: a message may report any earlier write, so it waits for all of them."""
    return session.core.look(nothing)[1]


def ping(session: Session, args: list[bytes]) -> Reply:
    if len(args) > 2:
        raise wrong_arity(b"ping")
    if session.subscribed and session.protocol == 2:
        return [b"pong", args[1] if len(args) == 2 else b""]
    return args[1] if len(args) == 2 else Status(b"PONG")


def monitor(session: Session, args: list[bytes]) -> Reply:
    if session.in_exec:
        raise CommandError(b"ERR MONITOR isn't allowed for DENY BLOCKING client")
    session.server.set_monitor(session)
    return OK


# --- PUBSUB


def pubsub_channels(session: Session, args: list[bytes]) -> Reply:
    return _matching(session, session.server.pubsub.channels, args)


def pubsub_shardchannels(session: Session, args: list[bytes]) -> Reply:
    return _matching(session, session.server.pubsub.shard_channels, args)


def pubsub_numsub(session: Session, args: list[bytes]) -> Reply:
    channels = session.server.pubsub.channels
    return _pairs((name, len(channels.get(name, ()))) for name in args[2:])


def pubsub_shardnumsub(session: Session, args: list[bytes]) -> Reply:
    channels = session.server.pubsub.shard_channels
    return _pairs((name, len(channels.get(name, ()))) for name in args[2:])


def pubsub_numpat(session: Session, args: list[bytes]) -> Reply:
    """PUBSUB NUMPAT: the number of distinct patterns."""
    return len(session.server.pubsub.patterns)


def pubsub_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _HELP]


def _matching(session: Session, names: Iterable[bytes], args: list[bytes]) -> list[bytes]:
    """Those of the channels that match, and that the user may use."""
    if len(args) > 3:
        raise CommandError(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try PUBSUB HELP."
            % echo(args[1])
        )
    allowed = list(filter(session.user.allows_channel, names))
    return list(filter(matcher(args[2]), allowed)) if len(args) == 3 else allowed


def _pairs(counts: Iterable[tuple[bytes, int]]) -> list[bytes | int]:
    return [part for pair in counts for part in pair]


_HELP = (
    b"PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"CHANNELS [<pattern>]",
    b"    Return the currently active channels matching a <pattern> (default: '*').",
    b"NUMPAT",
    b"    Return number of subscriptions to patterns.",
    b"NUMSUB [<channel> ...]",
    b"    Return the number of subscribers for the specified channels, excluding",
    b"    pattern subscriptions(default: no channels).",
    b"SHARDCHANNELS [<pattern>]",
    b"    Return the currently active shard level channels matching a <pattern> (default: '*').",
    b"SHARDNUMSUB [<shardchannel> ...]",
    b"    Return the number of subscribers for the specified shard level channel(s)",
    b"HELP",
    b"    Print this help.",
)
