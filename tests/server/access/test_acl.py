"""Users, passwords and rules, without a server: beside ACL of a real redis-server 7.0, and by themselves."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator

import pytest
from tests.oracle.server import EIGHT
from tests.oracle.wire import Connection, Form
from tests.rounds import rest_slow
from tests.server.real_redis import real_redis

from tidelog.engine.commands.table import TABLE as ENGINE
from tidelog.engine.errors import CommandError
from tidelog.server.acl import keys
from tidelog.server.acl.commands import CATEGORIES
from tidelog.server.acl.log import AclLog
from tidelog.server.acl.users import Acl
from tidelog.server.commands.describe import find_keys
from tidelog.server.handlers import COMMANDS

PASSWORD_HASH = b"30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4"  # of "pw"


@pytest.fixture(scope="module")
def redis7() -> Iterator[Connection]:
    with real_redis(EIGHT) as (server, _):
        connection = server.connect()
        yield connection
        connection.close()


@pytest.fixture
def acl() -> Acl:
    return Acl(COMMANDS.table, COMMANDS.categories)


def words(text: str) -> list[bytes]:
    return [word.encode() for word in shlex.split(text)]


def setuser(acl: Acl, *rules: bytes) -> object:
    try:
        acl.setuser(b"bob", rules)
    except CommandError as error:
        return ("-", error.line)
    return ("+", b"OK")


def there(redis7: Connection, *rules: bytes) -> Form:
    redis7.call(b"ACL", b"DELUSER", b"bob")
    return redis7.call(b"ACL", b"SETUSER", b"bob", *rules)


def comparable(line: bytes | None) -> tuple[list[bytes], set[bytes]] | None:
    """A user's line: all up to the rules for commands, and those.

    Redis shows its rules in the order of a hash table.
    """
    if line is None:
        return None
    given = line.split(b" ")
    at = next(i for i, word in enumerate(given) if word in (b"+@all", b"-@all"))
    return given[: at + 1], set(given[at + 1 :])


def line_there(redis7: Connection) -> bytes | None:
    return next(
        (line for line in redis7.call(b"ACL", b"LIST") if line.startswith(b"user bob ")), None
    )


def line_here(acl: Acl) -> bytes | None:
    bob = acl.users.get(b"bob")
    return None if bob is None else bob.line()


# fmt: off
RULES = [
    "", "on", "off on", "ON NoPass AllKeys AllCommands AllChannels", "nopass", "nopass resetpass",
    ">pw", ">pw >pw >other", ">pw <pw", ">pw nopass", "nopass >pw", "> on", ">a >b <a", ">pw resetpass",
    f"#{PASSWORD_HASH.decode()}", f">pw !{PASSWORD_HASH.decode()}", f"#{PASSWORD_HASH.decode()} >pw",
    "~*", "~* ~* allkeys", "~a* ~b ~a*", "~a resetkeys ~b", "~a allkeys resetkeys", "~", "~a allkeys",
    "%R~a* %RW~b %w~a* ~c", "%R~a", "%W~a", "%wr~a", "%R", "%W~*", "%RW~*", "%R~a %R~a", "%r~%W~x",
    "+@all -@all reset", "on nopass ~* &* +@all reset", ">pw ~a &c reset",
    "&*", "&a &b* &a", "&a allchannels", "&* resetchannels &c", "&",
    "+@all", "-@all", "+@all -@all", "-@all +@all", "allcommands nocommands", "+get", "+GET", "-get +get",
    "+@all -get", "+@all -@write", "+@all -@dangerous", "+@read", "+@Read", "+@stream", "+@stream +get",
    "+xgroup", "+xgroup -xgroup|create", "+xgroup|create +xgroup", "+xgroup|create", "+@all -xgroup",
    "+@all -xgroup +xgroup|create", "+acl|whoami +acl|cat", "-@all +@stream +@all", "+command", "+@hash", "+@scripting",
    # errors
    "foo", "+nosuch", "-nosuch", "+@nosuch", "-@nosuch", "+xgroup|nosuch", "-xgroup|nosuch", "+xgroup|create|x",
    "+xgroup|", "+get|", "-get|x", "+", "-", "+@",
    "'~a b'", "'&a b'", "'%R~a b'", "%~a", "%RR~a", "%X~a", "%", "~* ~a", "~* %R~a",
    "&* &a", "allchannels &*", "on bad off", "ONN", "|", "+@all|x", "+|get", "+nosuch|x",
    f"+{'x' * 300}",
]
# fmt: on


@pytest.mark.parametrize("rules", RULES)
def test_rules_as_in_redis(acl: Acl, redis7: Connection, rules: str) -> None:
    given = words(rules)
    assert setuser(acl, *given) == there(redis7, *given)
    assert comparable(line_here(acl)) == comparable(line_there(redis7))


def test_a_rule_too_many_changes_nothing(acl: Acl, redis7: Connection) -> None:
    redis7.call(b"ACL", b"DELUSER", b"bob")
    for text in (">pw ~a* +@read", "on ~b +nosuch", "~* ~c"):
        mine, theirs = (
            setuser(acl, *words(text)),
            redis7.call(b"ACL", b"SETUSER", b"bob", *words(text)),
        )
        assert mine == theirs
        assert comparable(line_here(acl)) == comparable(line_there(redis7))


def test_rules_of_commands_are_kept_in_order(acl: Acl) -> None:
    """As Redis shows them since 7.2, with what a later rule covers left out."""
    setuser(acl, *words("+@read -@write +get -GET +xgroup|create -xgroup +@read"))
    assert acl.users[b"bob"].shown_commands() == b"-@all -@write -get -xgroup +@read"
    setuser(acl, *words("+@all -xadd"))
    assert acl.users[b"bob"].shown_commands() == b"+@all -xadd"


@pytest.mark.parametrize(
    "rule, why",
    [
        ("(+get ~a)", b"Selectors are not supported"),
        ("(+get", b"Selectors are not supported"),
        ("+select|0", b"Allowing first-arg of a command is not supported"),
        ("+hset", b"Unknown command or category name in ACL"),
    ],
)
def test_what_is_not_here_is_refused(acl: Acl, rule: str, why: bytes) -> None:
    assert setuser(acl, rule.encode()) == (
        "-",
        b"ERR Error in ACL SETUSER modifier '%b': %b" % (rule.encode(), why),
    )
    assert b"bob" not in acl.users


@pytest.mark.parametrize("name", [b"", b"a b", b"a\tb", b"a\0b", b"a\nb"])
def test_names_that_could_not_be_read_back(acl: Acl, redis7: Connection, name: bytes) -> None:
    with pytest.raises(CommandError) as raised:
        acl.setuser(name, [])
    if name:  # Redis takes an empty one, and cannot read its own line afterwards
        assert ("-", raised.value.line) == redis7.call(b"ACL", b"SETUSER", name)


@pytest.mark.parametrize("rule", [b"<secret", b"!secret", b"#secret"])
def test_errors_do_not_repeat_a_password(acl: Acl, redis7: Connection, rule: bytes) -> None:
    _, line = there(redis7, rule)
    assert setuser(acl, rule) == ("-", line.replace(b"secret", b"(redacted)"))
    with pytest.raises(CommandError) as raised:
        acl.load([b"user bob " + rule])
    assert b"secret" not in raised.value.line


# --- which commands

CONTAINERS = COMMANDS.table.containers - {b"queue", b"tidelog"}  # which no Redis has


def shared(redis7: Connection) -> list[bytes]:
    """Commands that both know, subcommands as `container|sub`. WAIT counts as blocking since 7.2."""
    every = redis7.call(b"COMMAND", b"LIST")
    return sorted(set(COMMANDS.table.commands) & set(every) - {b"wait"})


def call_of(name: bytes) -> list[bytes]:
    """A call with the right number of arguments, all of them `k`."""
    found = COMMANDS.table.commands[name]
    call = name.split(b"|")
    call += [b"k"] * (abs(found.arity) - len(call))
    if name in (b"eval", b"evalsha"):
        call[2:] = [b"1", b"k"]
    if "movablekeys" in found.flags:
        call[-3:] = [b"STREAMS", b"k", b"0"]
    return call


@pytest.mark.parametrize("category", CATEGORIES)
def test_categories(acl: Acl, redis7: Connection, category: str) -> None:
    both = set(shared(redis7)) | CONTAINERS
    mine = acl.catalog.listing(category.encode())
    assert mine is not None
    theirs = redis7.call(b"ACL", b"CAT", category.encode())
    assert set(mine) & both == set(theirs) & both - (CONTAINERS - acl.catalog.every - set(mine))


def test_names_of_categories(redis7: Connection) -> None:
    assert [name.encode() for name in CATEGORIES] == redis7.call(b"ACL", b"CAT")


def test_every_command_has_a_family(acl: Acl) -> None:
    """Flags do not tell all: each command of the engine belongs to a type or a group, but for a few."""
    families = {"keyspace", "string", "stream", "connection", "transaction"}
    placed = frozenset[bytes]().union(*(acl.catalog.by_category[family] for family in families))
    assert {name for name in ENGINE.commands if name not in placed} == {
        b"time",
        b"memory|usage",
        b"memory|help",
    }


def verdicts(acl: Acl, redis7: Connection, names: list[bytes]) -> tuple[list[object], list[object]]:
    user = acl.users[b"bob"]
    calls = [call_of(name) for name in names]
    mine: list[object] = []
    for name, call in zip(names, calls, strict=True):
        mine.append(acl.dry_run(user, COMMANDS.table.commands[name], call) or ("+", b"OK"))
    theirs = redis7.pipeline([[b"ACL", b"DRYRUN", b"bob", *call] for call in calls])
    return mine, theirs


@pytest.mark.parametrize("seed", rest_slow(range(40), 8))
def test_random_rules_come_to_the_same(acl: Acl, redis7: Connection, seed: int) -> None:
    chance = random.Random(seed)
    names = [n for n in shared(redis7) if "no_auth" not in COMMANDS.table.commands[n].flags]
    sayable = [name.encode() for name in CATEGORIES] + [b"all"]
    rules = [b"~*", b"&*"]
    for _ in range(chance.randrange(1, 9)):
        sign = chance.choice([b"+", b"-"])
        kind = chance.random()
        if kind < 0.5:
            rules.append(sign + b"@" + chance.choice(sayable))
        elif kind < 0.7:
            rules.append(sign + chance.choice(sorted(CONTAINERS)))
        else:
            rules.append(sign + chance.choice(names))
    assert setuser(acl, *rules) == there(redis7, *rules)
    # The arity may differ where a command has grown since; what is asked here is only the permission.
    for name, mine, theirs in zip(names, *verdicts(acl, redis7, names), strict=True):
        if not (isinstance(theirs, tuple) and theirs[0] == "-"):
            assert (name, mine) == (name, theirs), rules


# --- which keys and channels


@pytest.mark.parametrize(
    "rule", ["~k", "%R~k", "%W~k", "~?*", "%R~k %W~[k]", "~x", "%R~x %W~k", "%R~k %W~x"]
)
def test_keys_of_every_command(acl: Acl, redis7: Connection, rule: str) -> None:
    rules = words(f"+@all {rule}")
    assert setuser(acl, *rules) == there(redis7, *rules)
    names = [
        name for name in shared(redis7) if keys.keys(COMMANDS.table.commands[name], call_of(name))
    ]
    assert len(names) > 50
    for name, mine, theirs in zip(names, *verdicts(acl, redis7, names), strict=True):
        assert (name, mine) == (name, theirs)


CALLS = """
    GET a1, GET b1, GET '', MGET a1 a2 b, MSET a1 v a2 v, MSET a1 b1 b1 a1, DEL a1 b1, COPY a1 w, COPY w a1,
    COPY r w, RENAME a1 w, RENAME r w, SET w v, SET w v GET, SET w v get, SET r v, SET a1 v GET,
    XREAD STREAMS a1 r 0 0, XREAD STREAMS a1 w 0 0, XREAD COUNT 1 BLOCK 5 STREAMS b1 0,
    XREAD streams STREAMS streams 0, XREAD junk STREAMS b1 0, XREAD STREAMS a1 b1 0, XREAD COUNT 1 NOTHING 5,
    XREADGROUP GROUP g c STREAMS b1 >, XREADGROUP GROUP g c NOACK STREAMS a1 r > >,
    XREADGROUP GROUP g STREAMS STREAMS b1 >, XGROUP CREATE a1 g 0, XGROUP CREATE b1 g 0, XGROUP CREATE w g 0,
    XGROUP CREATE r g 0, XGROUP HELP, XINFO STREAM r, XINFO STREAM w, OBJECT ENCODING w, OBJECT ENCODING b1,
    XLEN w, XLEN r, XLEN b1, WATCH w r a1, WATCH b1, DBSIZE, PUBLISH c1 x, PUBLISH d x, PUBLISH e x,
    SUBSCRIBE c1 d, SUBSCRIBE c1 e, PSUBSCRIBE c*, PSUBSCRIBE c? d, PSUBSCRIBE d, PSUBSCRIBE *, UNSUBSCRIBE e,
    PUNSUBSCRIBE e*, AUTH x, QUIT, HELLO, RESET, FLUSHALL, CONFIG GET x, ACL LIST, ACL WHOAMI, DEBUG SLEEP 0, INFO
"""


@pytest.mark.parametrize("call", [call.strip() for call in CALLS.split(",")])
def test_what_a_user_may_do(acl: Acl, redis7: Connection, call: str) -> None:
    rules = words("on >pw ~a* %R~r %W~w %R~streams &c* &d +@all -@dangerous +acl|whoami -acl")
    assert setuser(acl, *rules) == there(redis7, *rules)
    args = words(call)
    try:
        command = COMMANDS.table.resolve(args)
    except CommandError:
        pytest.skip("not here yet")
    mine = acl.dry_run(acl.users[b"bob"], command, args) or ("+", b"OK")
    assert mine == redis7.call(b"ACL", b"DRYRUN", b"bob", *args)


# fmt: off
@pytest.mark.parametrize("call", [
    "XREADGROUP COUNT 1 GROUP STREAMS a1 STREAMS b1 >",
    "XREADGROUP COUNT 1 GROUP STREAMS a1 NOACK STREAMS b1 >",
    "XREADGROUP CLAIM 5 GROUP g STREAMS STREAMS b1 >",
    "XREADGROUP GROUP g a1 MAXCOUNT 5 MAXSIZE 7 STREAMS b1 >",
    "XREAD MAXCOUNT 5 MAXSIZE 7 COUNT 1 STREAMS b1 0",
])
# fmt: on
def test_no_option_hides_a_key(acl: Acl, call: str) -> None:
    """Redis 7.0 looks for the first STREAMS, which may be a group's or a consumer's name."""
    acl.setuser(b"bob", words("~a* ~S* +@all"))
    args = words(call)
    command = COMMANDS.table.resolve(args)
    assert acl.users[b"bob"].denies(command, args) == ("key", b"b1")


def test_access_agrees_with_what_command_tells() -> None:
    for name, command in COMMANDS.table.commands.items():
        call = call_of(name)
        told = [use for _, use in find_keys(command, call) if "not_key" not in use]
        assert bool(told) == bool(keys.keys(command, call)), name
        first, rest = keys.access(command, call)
        for needed, use in zip((first, *[rest] * len(told)), told, strict=False):
            reads = keys.READ if "access" in use else 0
            writes = keys.WRITE if {"insert", "update", "delete"} & set(use) else 0
            assert needed == reads | writes, name


# --- refusals


def test_the_texts_of_refusals(acl: Acl, redis7: Connection) -> None:
    rules = words("on >pw ~a* &c* +@all -del")
    acl.setuser(b"bob", rules)
    there(redis7, *rules)
    redis7.call(b"AUTH", b"bob", b"pw")
    try:
        for call in ("DEL a1", "GET b1", "PUBLISH d x"):
            args = words(call)
            refusal = acl.refusal(acl.users[b"bob"], COMMANDS.table.resolve(args), args)
            assert refusal is not None
            assert ("-", refusal.line) == redis7.call(*args)
        # What was queued is asked about again: rules may have changed meanwhile, by the transaction itself too.
        for call, lost in (("XLEN a", b"-xlen"), ("GET a1", b"resetkeys"), ("PUBLISH c x", b"resetchannels")):
            args = words(call)
            redis7.pipeline([[b"MULTI"], [b"ACL", b"SETUSER", b"bob", lost], args])
            acl.setuser(b"bob", [lost])
            refusal = acl.refusal(acl.users[b"bob"], COMMANDS.table.resolve(args), args, queued=True)
            assert refusal is not None
            assert redis7.call(b"EXEC") == [("+", b"OK"), ("-", refusal.line)]
            back = [b"+xlen", b"~a*", b"&c*"]
            acl.setuser(b"bob", back)
            redis7.call(b"ACL", b"SETUSER", b"bob", *back)
    finally:
        redis7.call(b"RESET")


def test_a_superuser_is_asked_one_question(acl: Acl) -> None:
    assert acl.default.superuser
    command = COMMANDS.table.commands[b"xadd"]
    assert acl.default.allows(command) and acl.refusal(acl.default, command, [b"xadd"]) is None
    for less in ("-get", "resetkeys", "resetchannels"):
        acl.setuser(b"bob", words(f"reset ~* &* +@all {less}"))
        assert not acl.users[b"bob"].superuser
    acl.setuser(b"bob", words("reset ~* &* +@all -get +get"))
    assert acl.users[b"bob"].superuser


def test_a_change_holds_for_who_has_the_user(acl: Acl) -> None:
    bob = acl.setuser(b"bob", words("~* +get"))
    get = COMMANDS.table.commands[b"get"]
    assert bob.allows(get)
    assert acl.setuser(b"bob", [b"-get"]) is bob
    assert not bob.allows(get)


# --- passwords


def test_passwords(acl: Acl) -> None:
    def right(name: bytes, password: bytes) -> bool:
        return acl.authenticate(name, password) is not None

    assert right(b"default", b"anything") and not right(b"nobody", b"anything")
    acl.setuser(b"bob", [b">pw", b">other"])
    assert not right(b"bob", b"pw")  # it is off
    acl.setuser(b"bob", [b"on"])
    assert right(b"bob", b"pw") and right(b"bob", b"other")
    assert not right(b"bob", b"") and not right(b"bob", b"p") and not right(b"bob", PASSWORD_HASH)
    acl.setuser(b"bob", [b"<pw"])
    assert not right(b"bob", b"pw") and right(b"bob", b"other")
    acl.setuser(b"bob", [b"resetpass"])
    assert not right(b"bob", b"other") and not right(b"bob", b"")
    acl.setuser(b"bob", [b"nopass"])
    assert right(b"bob", b"")


def test_requirepass(acl: Acl) -> None:
    assert acl.default.open
    acl.set_default_password(b"secret")
    assert not acl.default.open and acl.default.superuser
    assert acl.authenticate(b"default", b"secret") is acl.default
    acl.set_default_password(b"another")
    assert acl.authenticate(b"default", b"secret") is None
    acl.set_default_password(b"")
    assert acl.default.open


# --- users, and keeping them


def test_deleting(acl: Acl) -> None:
    for name in (b"a", b"b"):
        acl.setuser(name, [])
    assert acl.delusers([b"a", b"a", b"nobody"]) == 1
    with pytest.raises(CommandError) as raised:
        acl.delusers([b"b", b"default"])
    assert raised.value.line == b"ERR The 'default' user cannot be removed"
    assert sorted(acl.users) == [b"b", b"default"]


def test_lines_are_read_back(acl: Acl) -> None:
    for rules in RULES:
        acl = Acl(COMMANDS.table, COMMANDS.categories)
        if setuser(acl, *words(rules)) != ("+", b"OK"):
            continue
        acl.set_default_password(b"secret")
        again = Acl(COMMANDS.table, COMMANDS.categories)
        default = again.default
        again.load(acl.lines())
        assert again.lines() == acl.lines(), rules
        assert again.users[b"bob"].granted == acl.users[b"bob"].granted
        assert again.default is default and not default.open
        assert not any(b"secret" in line or b">" in line for line in acl.lines())


def test_a_line_says_all_of_a_user(acl: Acl) -> None:
    acl.setuser(b"bob", words("on nopass ~* +@all"))
    acl.load([b"user bob on >pw ~a* +get"])
    assert acl.users[b"bob"].line() == b"user bob on sanitize-payload #%b ~a* resetchannels -@all +get" % PASSWORD_HASH


@pytest.mark.parametrize(
    "lines, error",
    [
        (["bob on"], b"ERR A user's line begins with 'user' and a name"),
        (["user"], b"ERR A user's line begins with 'user' and a name"),
        ([""], b"ERR A user's line begins with 'user' and a name"),
        (["user bob on +nosuch"],
         b"ERR Error in user declaration 'bob': '+nosuch': Unknown command or category name in ACL"),
        (["user bob on", "user bob off"],
         b"ERR Error in user declaration 'bob': Duplicate user found. A user can only be defined once in config files"),
    ],
)  # fmt: skip
def test_lines_that_are_wrong(acl: Acl, lines: list[str], error: bytes) -> None:
    before = acl.lines()
    with pytest.raises(CommandError) as raised:
        acl.load([b"user ann on", *(line.encode() for line in lines)])
    assert raised.value.line == error
    assert acl.lines() == before


# --- the log


def test_the_log_counts_what_repeats() -> None:
    log = AclLog(3)

    def counts(now: float) -> list[tuple[object, object]]:
        return [(entry[7], entry[1]) for entry in log.reply(10, now)]

    for at in range(5):
        log.add("key", "toplevel", b"k", b"bob", b"id=1", at * 1.0)
    log.add("key", "multi", b"k", b"bob", b"id=1", 5.0)
    assert counts(5.0) == [(b"k", 1), (b"k", 5)]
    log.add("key", "toplevel", b"k", b"bob", b"id=1", 100.0)  # more than a minute later
    assert counts(100.0) == [(b"k", 1), (b"k", 1), (b"k", 5)]
    log.add("command", "toplevel", b"del", b"bob", b"id=1", 101.0)
    assert counts(101.0) == [(b"del", 1), (b"k", 1), (b"k", 1)]
    assert len(log.reply(1, 101.0)) == 1 and log.reply(-1, 101.0) == []
    log.reset()
    assert log.reply(10, 101.0) == []
