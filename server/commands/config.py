"""CONFIG GET, SET, RESETSTAT, REWRITE and HELP (spec 16.3)."""

from __future__ import annotations

from tidelog.engine.reply import OK, Map, Reply, Status
from tidelog.server.config.config import pairs_of
from tidelog.server.saving import in_thread
from tidelog.server.session import Session


def config_get(session: Session, args: list[bytes]) -> Reply:
    return Map(session.server.config.get(args[2:]))


def config_set(session: Session, args: list[bytes]) -> Reply:
    session.server.config.set(pairs_of(args[2:]))
    return OK


def config_resetstat(session: Session, args: list[bytes]) -> Reply:
    session.server.stats.reset()
    return OK


async def config_rewrite(session: Session, args: list[bytes]) -> Reply:
    server = session.server
    await in_thread(server.config.rewrite(server.acl.lines()))
    return OK


def config_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _HELP]


_HELP = (
    b"CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"GET <pattern>",
    b"    Return parameters matching the glob-like <pattern> and their values.",
    b"SET <directive> <value>",
    b"    Set the configuration <directive> to <value>.",
    b"RESETSTAT",
    b"    Reset statistics reported by the INFO command.",
    b"REWRITE",
    b"    Rewrite the configuration file.",
    b"HELP",
    b"    Print this help.",
)
