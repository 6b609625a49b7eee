"""XGROUP: create, change and delete groups and consumers (spec 7.1)."""

from __future__ import annotations

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.groups.grouping import position, shown
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import (
    STREAM_CREATE,
    XGROUP_CREATE,
    XGROUP_CREATECONSUMER,
    XGROUP_DELCONSUMER,
    XGROUP_DESTROY,
    XGROUP_SETID,
)
from tidelog.engine.errors import CommandError, echo
from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Reply, Status
from tidelog.engine.streams.stream import Stream

KEY_REQUIRED = (
    b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use"
    b" the MKSTREAM option to create an empty stream automatically."
)
BUSYGROUP = b"BUSYGROUP Consumer Group name already exists"
CREATE_ARGS_MAX = 8  # as in XGROUP CREATE key group id MKSTREAM ENTRIESREAD n
SETID_ARGS_MAX = 7

HELP = b"""\
XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
CREATE <key> <groupname> <id|$> [option]
    Create a new consumer group. Options are:
    * MKSTREAM
      Create the empty stream if it does not exist.
    * ENTRIESREAD entries_read
      Set the group's entries_read counter (internal use).
CREATECONSUMER <key> <groupname> <consumer>
    Create a new consumer in the specified group.
DELCONSUMER <key> <groupname> <consumer>
    Remove the specified consumer.
DESTROY <key> <groupname>
    Remove the specified group.
SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]
    Set the current group ID and entries_read counter.
HELP
    Print this help.""".split(b"\n")


def wrong_subcommand(args: list[bytes]) -> CommandError:
    """The error for a subcommand whose arguments have the right number but are malformed."""
    return CommandError(
        b"ERR unknown subcommand or wrong number of arguments for '%b'. Try %b HELP."
        % (echo(args[1]), echo(args[0]).upper())
    )


def no_such_group(key: bytes, group: bytes) -> CommandError:
    """The error for a missing group of an existing key."""
    return CommandError(
        b"NOGROUP No such consumer group '%b' for key name '%b'" % (shown(group), shown(key))
    )


def _options(args: list[bytes], may_create: bool) -> tuple[bool, int]:
    """Parse the options after the ID of CREATE and SETID: (MKSTREAM, ENTRIESREAD or UNKNOWN). Raises CommandError."""
    mkstream, entries_read = False, UNKNOWN
    at = 5
    while at < len(args):
        word = args[at].upper()
        if word == b"MKSTREAM" and may_create:
            mkstream = True
            at += 1
        elif word == b"ENTRIESREAD" and at + 1 < len(args):
            entries_read = int64(args[at + 1])
            if entries_read < 0 and entries_read != UNKNOWN:
                raise CommandError(b"ERR value for ENTRIESREAD must be positive or -1")
            at += 2
        else:
            raise wrong_subcommand(args)
    return mkstream, entries_read


def _stream(ctx: Context, key: bytes) -> Stream:
    stream = ctx.stream(key)
    if stream is None:
        raise CommandError(KEY_REQUIRED)
    return stream


def _group(ctx: Context, key: bytes, name: bytes) -> tuple[Stream, Group]:
    stream = _stream(ctx, key)
    group = stream.groups.get(name)
    if group is None:
        raise no_such_group(key, name)
    return stream, group


@command("xgroup|create", -5, "write denyoom", (2, 2, 1))
def xgroup_create(ctx: Context, args: list[bytes]) -> Reply:
    """XGROUP CREATE key group <id | $> [MKSTREAM] [ENTRIESREAD n]"""
    key, name = args[2], args[3]
    mkstream, entries_read = _options(args, may_create=True)
    stream = ctx.stream(key)
    if stream is None and not mkstream:
        raise CommandError(KEY_REQUIRED)
    if len(args) > CREATE_ARGS_MAX:
        raise wrong_subcommand(args)
    if args[4] == b"$":
        last_id = 0 if stream is None else stream.last_id
    else:
        last_id = ids.parse(args[4])
    if stream is None:
        ctx.effects.append((STREAM_CREATE, ctx.db, key))
    elif name in stream.groups:
        raise CommandError(BUSYGROUP)
    entries_read = min(entries_read, 0 if stream is None else stream.entries_added)
    ctx.effects.append((XGROUP_CREATE, ctx.db, key, name, *position(last_id, entries_read)))
    return OK


@command("xgroup|setid", -5, "write", (2, 2, 1))
def xgroup_setid(ctx: Context, args: list[bytes]) -> Reply:
    """XGROUP SETID key group <id | $> [ENTRIESREAD n]"""
    _, entries_read = _options(args, may_create=False)
    stream, _ = _group(ctx, args[2], args[3])
    if len(args) > SETID_ARGS_MAX:
        raise wrong_subcommand(args)
    last_id = stream.last_id if args[4] == b"$" else ids.parse_lax(args[4], 0)
    entries_read = min(entries_read, stream.entries_added)
    ctx.effects.append((XGROUP_SETID, ctx.db, args[2], args[3], *position(last_id, entries_read)))
    return OK


@command("xgroup|destroy", 4, "write", (2, 2, 1))
def xgroup_destroy(ctx: Context, args: list[bytes]) -> Reply:
    """XGROUP DESTROY key group"""
    if args[3] not in _stream(ctx, args[2]).groups:
        return 0
    ctx.effects.append((XGROUP_DESTROY, ctx.db, args[2], args[3]))
    return 1


@command("xgroup|createconsumer", 5, "write denyoom", (2, 2, 1))
def xgroup_createconsumer(ctx: Context, args: list[bytes]) -> Reply:
    """XGROUP CREATECONSUMER key group consumer"""
    _, group = _group(ctx, args[2], args[3])
    if args[4] in group.consumers:
        return 0
    ctx.effects.append((XGROUP_CREATECONSUMER, ctx.db, *args[2:5], ctx.now))
    return 1


@command("xgroup|delconsumer", 5, "write", (2, 2, 1))
def xgroup_delconsumer(ctx: Context, args: list[bytes]) -> Reply:
    """XGROUP DELCONSUMER key group consumer"""
    _, group = _group(ctx, args[2], args[3])
    consumer = group.consumers.get(args[4])
    if consumer is None:
        return 0
    ctx.effects.append((XGROUP_DELCONSUMER, ctx.db, *args[2:5]))
    return group.pending.held_by(consumer.index)


@command("xgroup|help", 2, "loading stale", (0, 0, 0))
def xgroup_help(ctx: Context, args: list[bytes]) -> Reply:
    """XGROUP HELP"""
    return [Status(line) for line in HELP]
