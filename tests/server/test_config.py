"""The options: what CONFIG says beside a real redis-server, the file, and what wins over what."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.oracle.wire import Connection
from tests.server.real_redis import as_of_8, real_redis

from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import OK, Map, Status
from tidelog.server.config import file as config_file
from tidelog.server.config.config import Config, ConfigError, pairs_of
from tidelog.server.config.kinds import Limit
from tidelog.server.config.options import FIXED, OPTIONS, RUN, START
from tidelog.server.handlers import COMMANDS
from tidelog.store.options import Options, make_options


@pytest.fixture(scope="module")
def redis_7() -> Iterator[Connection]:
    with real_redis() as (server, _):
        connection = server.connect()
        yield connection
        connection.close()


def ask(config: Config, *args: bytes) -> Any:
    """The answer of CONFIG: the reply, or the error as redis-py has it."""
    session = SimpleNamespace(
        server=SimpleNamespace(
            config=config,
            stats=SimpleNamespace(reset=lambda: None),
            acl=SimpleNamespace(lines=list),
        )
    )
    try:
        reply = COMMANDS.handlers[b"config|" + args[0].lower()](
            cast(Any, session), [b"CONFIG", *args]
        )
        if asyncio.iscoroutine(reply):
            reply = asyncio.run(reply)
    except CommandError as error:
        return error
    return reply


def shown(config: Config, name: str) -> str:
    raw: bytes = config.get([name.encode()])[1]
    return raw.decode()


def refusal(config: Config, *words: str) -> str:
    with pytest.raises(CommandError) as caught:
        config.set(pairs_of([word.encode() for word in words]))
    return str(caught.value)


# --- beside redis-server

# fmt: off
SAME = [
    # former names
    ["min-slaves-to-write", "3"],
    ["min-slaves-to-write", "2", "min-replicas-to-write", "1"],
    ["slave-priority", "7", "slave-priority", "8"],
    ["slave-priority", "x"],
    ["slave-serve-stale-data", "x"],
    ["slaveof", "a 1"],
    ["timeout", "x"], ["timeout", "-1"], ["timeout", "99999999999"], ["timeout", "0x10"], ["timeout", " 5"],
    ["timeout", "05"], ["timeout", "+5"], ["timeout", ""], ["timeout", "5"],
    ["TIMEOUT", "5", "timeout", "6"], ["timeout", "9", "hz", "x"], ["timeout", "x", "hz", "x"], ["Timeout", "x"],
    ["timeout", "1", "timeout", "x", "dir", "here"],
    ["nosuch", "1"], ["NoSuch", "1", "timeout", "5"], ["timeout", "7", "nosuch", "6"], ["no\r\nsuch\xff", "1"],
    ["a" * 300, "1"], ["nosuch", "1", "databases", "1"], ["databases", "1", "nosuch", "1"], ["", "1"],
    ["a", "b", "c"], ["timeout", "1", "hz"],
    ["databases", "16"], ["databases", "17"], ["DATABASES", "x"], ["hz", "x", "databases", "1", "nosuch", "1"],
    ["dir", "here"], ["dir", "here", "dir", "x"], ["dbfilename", "x"], ["unixsocket", "here"],
    ["unixsocketperm", "700"],
    ["tcp-backlog", "1"], ["logfile", "x"], ["enable-debug-command", "yes"], ["cluster-enabled", "yes"],
    ["aclfile", "x"], ["appendfilename", "x"], ["daemonize", "yes"], ["io-threads", "2"],
    ["appendfsync", "x"], ["appendfsync", "ALWAYS"], ["appendfsync", "no"], ["appendfsync", ""],
    ["loglevel", "x"], ["loglevel", "WARNING"], ["maxmemory", "x"], ["maxmemory", "1gb"], ["maxmemory", "3G"],
    ["maxmemory", "5mB"], ["maxmemory", "-1"], ["maxmemory", "1.5gb"], ["maxmemory", "1 mb"], ["maxmemory", ""],
    ["maxmemory", "7m"], ["maxmemory", "2097152b"], ["maxmemory", "0"], ["maxmemory", "9tb"], ["maxmemory", "kb"],
    ["stream-node-max-bytes", "-1"], ["stream-node-max-bytes", "5%"], ["stream-node-max-bytes", "1k"],
    ["stream-node-max-bytes", "4kb"], ["stream-node-max-entries", "-1"], ["stream-node-max-entries", "1k"],
    ["stream-node-max-entries", "9223372036854775807"], ["stream-node-max-entries", "9223372036854775808"],
    ["protected-mode", ""], ["protected-mode", "YES"], ["protected-mode", "1"], ["protected-mode", "no"],
    ["slowlog-log-slower-than", "-1"], ["slowlog-log-slower-than", "-2"], ["slowlog-max-len", "-1"],
    ["slowlog-max-len", "5"], ["latency-monitor-threshold", "-1"], ["acllog-max-len", "x"], ["acllog-max-len", "3"],
    ["notify-keyspace-events", "KEA"], ["notify-keyspace-events", "Kxtn"], 
    ["notify-keyspace-events", "tx"], ["notify-keyspace-events", "Eg$lshzxetd"], ["notify-keyspace-events", "m"],
    ["notify-keyspace-events", ""],
    ["save", "1"], ["save", "x y"], ["save", "900 1 300 10"], ["save", "0 1"], ["save", "1 -1"], ["save", "900  1"],
    ["save", "900 1 300"], ["save", " 5 1 "], ["save", "300 10 900 1 300 10"], ["save", "05 1"], ["save", "+5 1"],
    ["save", ""],
    ["client-output-buffer-limit", "normal 1mb 2mb 60"], ["client-output-buffer-limit", "x 1mb 2mb 60"],
    ["client-output-buffer-limit", "normal 1mb"], ["client-output-buffer-limit", "normal x 2mb 60"],
    ["client-output-buffer-limit", "normal 0 0 -1"], ["client-output-buffer-limit", "normal 0 0 x"],
    ["client-output-buffer-limit", "replica 1 2 3 pubsub 0 0 0"], ["client-output-buffer-limit", "SLAVE 4 5 6"],
    ["client-output-buffer-limit", "master 4 5 6"], ["client-output-buffer-limit", ""],
    ["maxclients", "0"], ["maxclients", "500"], ["maxclients", "4294967296"],
    ["proto-max-bulk-len", "1"], ["proto-max-bulk-len", "1mb"], ["client-query-buffer-limit", "1"],
    ["client-query-buffer-limit", "2mb"], ["hz", "0"], ["hz", "501"], ["hz", "-1"], ["hz", "20"],
    ["tcp-keepalive", "-1"], ["tcp-keepalive", "60"], ["shutdown-timeout", "-1"], ["shutdown-timeout", "3"],
    ["requirepass", ""], ["min-replicas-to-write", "yes"], ["replica-read-only", "maybe"],
    ["lazyfree-lazy-user-del", "x"], ["lazyfree-lazy-user-del", "no"], ["propagation-error-behavior", "ignore"],
    ["maxmemory-policy", "noeviction"], ["stop-writes-on-bgsave-error", "no"], ["auto-aof-rewrite-percentage", "0"],
    ["auto-aof-rewrite-percentage", "100"], ["auto-aof-rewrite-min-size", "1kb"], ["auto-aof-rewrite-min-size", "-1"],
    ["timeout", "11", "hz", "12", "appendfsync", "everysec", "save", "5 6"],
]
# fmt: on


def test_set_answers_as_redis(redis_7: Connection) -> None:
    config = Config()
    for words in SAME:
        raw = [word.encode("latin-1") for word in words]
        expected = redis_7.call(b"CONFIG", b"SET", *raw)
        got = ask(config, b"SET", *raw)
        if isinstance(got, CommandError):
            assert expected == ("-", got.line), words
            continue
        assert (expected, got) == (("+", b"OK"), OK), words
        for name in raw[::2]:
            assert config.get([name]) == redis_7.call(b"CONFIG", b"GET", name), words


@pytest.mark.parametrize(
    "patterns",
    [
        ["timeout"],
        ["TIMEOUT"],
        ["nosuch"],
        ["stream-node-max-*"],
        ["hz", "h?", "hz"],
        ["hz", "ti*out"],
        ["HZ", "hz", "hz*"],
        ["H?"],
        ["[ht]*z"],
        ["min-*"],
        ["Slave-Priority", "replica-priority", "slaveof"],
        ["slave-[pa]*", "slave-announce-ip"],
    ],
)
def test_get_finds_what_redis_finds(redis_7: Connection, patterns: list[str]) -> None:
    raw = [pattern.encode() for pattern in patterns]
    theirs = set(redis_7.call(b"CONFIG", b"GET", *raw)[::2])
    ours = ask(Config(), b"GET", *raw)
    assert isinstance(ours, Map)
    assert set(ours[::2]) == theirs and len(ours) == 2 * len(theirs)


def test_defaults_are_those_of_redis(redis_7: Connection) -> None:
    """But for what is said in the text of the table, and what is so because this is another program."""
    words = redis_7.call(b"CONFIG", b"GET", b"*")
    theirs = dict(zip(words[::2], words[1::2], strict=True))
    config = Config()
    mentioned = {words[0].lower() for words in SAME} | {"save", "appendfsync"}
    differing = {
        name
        for name, option in OPTIONS.items()
        if name.encode() in theirs
        and name not in mentioned
        and option.kind.show(config[name]).encode() != theirs[name.encode()]
    }
    assert differing == {
        "appenddirname",
        "aof-timestamp-enabled",
        "appendonly",
        "bind",
        "dynamic-hz",
        "port",  # the oracle's has none
        "rdbcompression",
        # The backlog is the log on disk, so it costs no memory; both sides give a sign of life every second.
        "repl-backlog-size",
        "repl-backlog-ttl",
        "repl-ping-replica-period",
        "repl-timeout",
    }


def test_help_is_that_of_redis(redis_7: Connection) -> None:
    ours = ask(Config(), b"HELP")
    assert [("+", line) for line in ours] == as_of_8(redis_7.call(b"CONFIG", b"HELP"))
    assert all(type(line) is Status for line in ours)


# --- the table


def test_every_default_is_a_value_of_its_kind() -> None:
    for option in OPTIONS.values():
        kind, value = option.kind, option.default
        assert kind.parse(kind.show(value)) == value, option.name
        assert kind.native(kind.plain(value)) == value, option.name
        assert option.when in (RUN, START, FIXED)
        assert option.help.endswith(".") or option.help.endswith("...") or "]" in option.help
        assert kind.allowed


def test_options_that_the_server_asks_for_are_in_the_table() -> None:
    asked = {
        name
        for path in Path(__file__).parents[2].joinpath("server").rglob("*.py")
        for name in re.findall(r'config(?:\.on\(|\[)"([a-z-]+)"', path.read_text())
    }
    assert len(asked) > 30
    assert asked <= {*OPTIONS, "users"}


def test_the_store_takes_its_options() -> None:
    assert make_options(**Config().store_options()) == Options(fsync="everysec")
    config = Config()
    for name, text in {
        "appendfsync": "always",
        "maxmemory": "64mb",
        "save": "",
        "auto-aof-rewrite-min-size": "1mb",
        "retain-seconds": "60",
        "snapshot-every": "3600",
        "keep-snapshots": "2",
        "segment-bytes": "8kb",
        "retain-bytes": "0",
        "retain-bookmark-bytes": "5mb",
        "maxdisk": "2gb",
        "keep-dead-seconds": "0",
        "keep-dead-jobs": "9",
    }.items():
        config.take(name, text, "")
    more = 5 << 20, 2 << 30, 0.0, 9
    made = Options("always", False, 8192, 1 << 20, (), 64 << 20, 0, 60.0, 2, 3600.0, *more)
    assert make_options(**config.store_options()) == made
    other = Config()
    other.adopt(made, "no")
    assert make_options(**other.store_options()) == made._replace(fsync="no")
    config.take("auto-aof-rewrite-percentage", "0", "")
    assert config.store_options()["checkpoint_bytes"] == 0


def test_what_is_smaller_than_a_memory_budget_can_be() -> None:
    reason = "argument must be 0 or between 1048576 and 9223372036854775807 inclusive"
    assert refusal(Config(), "maxmemory", "5").endswith(reason)


# --- changing at run time


def test_fixed_options_can_be_set_to_what_they_are() -> None:
    config = Config()
    config.set([(b"appendonly", b"YES"), (b"maxmemory-policy", b"noeviction")])
    assert refusal(config, "appendonly", "no") == (
        "ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config"
    )
    assert refusal(config, "timeout", "5", "appendonly", "no")
    assert config["timeout"] == 0


def test_callbacks() -> None:
    config = Config()
    heard: list[Any] = []
    config.on("timeout", lambda value: heard.append(("timeout", value, config["hz"])))
    config.on("hz", lambda value: heard.append(("hz", value)))
    config.set([(b"timeout", b"5"), (b"hz", b"20")])
    assert heard == [("timeout", 5, 20), ("hz", 20)]
    config.set([(b"timeout", b"5")])
    assert len(heard) == 2  # it is what it was
    config.set([(b"tls-cert-file", b"")])


def test_one_that_objects_takes_all_back() -> None:
    config = Config()
    hz: list[int] = []

    def object_to(value: int) -> None:
        if value > 100:
            raise ValueError("too\r\nmuch")

    config.on("hz", hz.append)
    config.on("timeout", object_to)
    assert refusal(config, "hz", "20", "timeout", "101", "maxclients", "5") == (
        "ERR CONFIG SET failed (possibly related to argument 'timeout') - too  much"
    )
    assert (hz, config["hz"], config["timeout"], config["maxclients"]) == ([20, 10], 10, 0, 10_000)

    def breaks(value: int) -> None:
        raise KeyError("oh")

    config.on("maxclients", breaks)
    with pytest.raises(KeyError):
        config.set([(b"hz", b"30"), (b"maxclients", b"6")])
    assert (hz, config["hz"], config["maxclients"]) == ([20, 10, 30, 10], 10, 10_000)


def test_a_volatile_option_is_told_again() -> None:
    config = Config()
    told: list[str] = []
    config.on("tls-cert-file", told.append)
    config.set([(b"tls-cert-file", b"a.pem")])
    config.set([(b"tls-cert-file", b"a.pem")])
    assert told == ["a.pem", "a.pem"]


def test_what_is_no_text_is_refused() -> None:
    reason = "argument must be UTF-8 text without NUL"
    for raw in (b"\xff", b"a\0b", b"\xed\xa0\x80"):
        with pytest.raises(CommandError, match=reason):
            Config().set([(b"requirepass", raw)])
    config = Config()
    config.set([(b"requirepass", "pässwörd".encode())])
    assert config["requirepass"] == "pässwörd"


def test_no_such_class_of_events() -> None:
    """Redis 8 knows more of them than 7.0, and names them."""
    reason = "Invalid event class character. Use 'Ag$lshzxeKEtmdnoc'."
    assert refusal(Config(), "notify-keyspace-events", "q").endswith(reason)
    config = Config()
    config.set([(b"notify-keyspace-events", b"KAn")])
    assert set(shown(config, "notify-keyspace-events")) == set("AKn")


def test_output_limits() -> None:
    config = Config()
    assert config.pubsub_limits == Limit(32 << 20, 8 << 20, 60)
    config.set([(b"client-output-buffer-limit", b"pubsub 1 2 3")])
    assert config.pubsub_limits == (1, 2, 3)
    assert Config().pubsub_limits.hard == 32 << 20  # the default is nobody's to change


# --- options of a program


def test_start() -> None:
    config = Config()
    config.start(
        {"port": 0, "maxclients": 5, "requirepass": "x", "protected_mode": False, "save": [(5, 1)]}
    )
    assert (config["port"], config.ephemeral, config["maxclients"]) == (0, True, 5)
    assert (config["protected-mode"], config["save"]) == (False, ((5, 1),))
    config = Config()
    config.start({"bind": ["127.0.0.1", "-::1"], "proto_max_bulk_len": "2mb"}, fsync="always")
    assert (config["bind"], config["appendfsync"], config.ephemeral) == (
        "127.0.0.1 -::1",
        "always",
        False,
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prot": 1}, "there is no option 'prot'; did you mean port?"),
        ({"xyzzy": 1}, "there is no option 'xyzzy'"),
        ({"users": ["user ann on"]}, "users can only be set in the configuration file"),
        ({"port": "1"}, "port must be an integer from 0 to 65535, not '1'"),
        ({"port": True}, "port must be an integer from 0 to 65535, not true"),
        ({"requirepass": 5}, "requirepass must be a string without NUL"),
        ({"hz": 1.5}, "hz must be an integer from 1 to 500, not 1.5"),
        ({"databases": 17}, "databases must be 16, not 17"),
        ({"save": [(1, 2, 3)]}, "save must be pairs of seconds and changes"),
        (
            {"save": (), "x": 1},
            "save cannot be set here: the store is already open, so set it in tidelog.open",
        ),
        ({"appendfsync": "no"}, "appendfsync cannot be set here: the store is already open"),
        ({"loglevel": "debug"}, "loglevel cannot be set here: the store is already open"),
        (
            {"appendonly": False},
            "appendonly cannot be changed from yes: Every change is written to the log.",
        ),
        ({"replicaof": "a"}, "replicaof must be a host and a port"),
    ],
)
def test_options_of_a_program_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    embedded = "is already open" in text
    with pytest.raises(ConfigError) as caught:
        Config().start(options, fsync="no" if embedded else None)
    assert str(caught.value).startswith(text)


def test_in_a_program_the_log_is_not_ours() -> None:
    config = Config()
    config.start({}, fsync="no")
    assert refusal(config, "loglevel", "debug").endswith("can't set immutable config")


# --- the file

FILE = """\
# What the shop needs
port = 7000            # not 6379
maxmemory = "64mb"     # half of the machine
timeout = 300
appendfsync = "always"

save = [[3600, 1], [60, 10_000]]
users = [
    "user default off",
    "user ann on >secret ~* +@all",  # and nobody else
]

[client-output-buffer-limit]
pubsub = ["1mb", 0, 0]   # slow readers
"""


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


PATH = Path("/tidelog.toml")


def write(disk: SimulatedDisk, text: str | bytes) -> None:
    file = disk.create(PATH)
    file.write(0, text.encode() if isinstance(text, str) else text)
    file.fsync()
    file.close()
    disk.sync_directory(PATH.parent)


def read(disk: SimulatedDisk) -> str:
    file = disk.open(PATH)
    return file.pread(file.size(), 0).decode()


def loaded(disk: SimulatedDisk, text: str | bytes) -> Config:
    write(disk, text)
    config = Config(disk)
    config.load(PATH)
    return config


def test_the_file(disk: SimulatedDisk) -> None:
    config = loaded(disk, FILE)
    assert config.file == PATH
    assert (config["port"], config["maxmemory"], config["timeout"]) == (7000, 64 << 20, 300)
    assert (config["appendfsync"], config["save"]) == ("always", ((3600, 1), (60, 10_000)))
    assert config["users"] == (b"user default off", b"user ann on >secret ~* +@all")
    assert config.pubsub_limits == Limit(1 << 20, 0, 0)
    config.take("port", "7001", "--port: ")
    assert config["port"] == 7001


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("port = \n", ", line 1, column 8: Invalid value"),
        ("a = 1\na = 2\n", ", line 2, column 6: Cannot overwrite a value"),
        (b"a = 1\nb = '\xff'", ", line 2: not UTF-8"),
        ("# x\nprot = 1", ", line 2: there is no option 'prot'; did you mean port?"),
        ("user = 1", ", line 1: there is no option 'user'; did you mean users?"),
        ("\n[server]\nport = 1", ", line 2: there is no option 'server'"),
        ('port = "1"', ", line 1: port must be an integer from 0 to 65535, not '1'"),
        ("port = 65536", ", line 1: port must be an integer from 0 to 65535, not 65536"),
        ("port = true", ", line 1: port must be an integer from 0 to 65535, not true"),
        ('protected-mode = "yes"', ", line 1: protected-mode must be true or false, not 'yes'"),
        ('"maxmemory" = "64tb"', ", line 1: maxmemory must be 0 or bytes from 1048576, as a number or with a unit: "
                                 "\"64mb\" (k kb m mb g gb), not '64tb'"),
        ("maxmemory = 5", ", line 1: maxmemory must be 0 or bytes from 1048576, as a number"),
        ('appendfsync = "sometimes"', ', line 1: appendfsync must be one of "everysec", "always", "no", not'),
        ("appendfsync = false", ', line 1: appendfsync must be one of "everysec", "always", "no", not false'),
        ("save = [[1, true]]", ", line 1: save must be pairs of seconds and changes, each 1 or more"),
        ("unixsocketperm = 700", ', line 1: unixsocketperm must be octal digits as a string, from "0" to "777"'),
        ("requirepass = 12345", ", line 1: requirepass must be a string without NUL"),
        ("users = 'user ann on'", ', line 1: users must be a list of lines: ["user ann on ..."]'),
        ("users = [1]", ", line 1: users must be a list of lines"),
        ("dir = 'here'", ", line 1: dir cannot be changed from empty: The directory of the store"),
        ("[client-output-buffer-limit]\nx = 1", ", line 1: client-output-buffer-limit must be a class of"),
        ("[client-output-buffer-limit]\nx = [1, 1, 1]", ", line 1: client-output-buffer-limit must be a class of"),
        ('bind = ""', ', line 1: bind must be words, as "a b" or ["a", "b"], not \'\''),
        ('tls-protocols = "SSLv3"', ", line 1: tls-protocols must be words among TLSv1.2, TLSv1.3, as "),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense(disk: SimulatedDisk, text: str | bytes, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(disk, text)
    assert str(caught.value).startswith(f"{PATH}{error}")
    assert "12345" not in str(caught.value) and "\n" not in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none.toml: No such file or directory"):
        Config().load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=": Is a directory"):
        Config().load(tmp_path)


# --- rewriting


def test_rewrite_without_a_file() -> None:
    got = ask(Config(), b"REWRITE")
    assert got.line == b"ERR The server is running without a config file"


def test_rewrite_keeps_what_people_wrote(disk: SimulatedDisk) -> None:
    config = loaded(disk, FILE)
    config.set([(b"timeout", b"5"), (b"maxmemory", b"32mb"), (b"requirepass", b'q"\\\xc3\xa9')])
    config.set([(b"maxclients", b"100"), (b"client-output-buffer-limit", b"replica 1 2 3")])
    users = [b"user ann on #aa ~* +@all", b"user default off"]
    config.rewrite(users)()
    assert (
        read(disk)
        == """\
# What the shop needs
port = 7000            # not 6379
maxmemory = 33554432     # half of the machine
timeout = 5
appendfsync = "always"

save = [[3600, 1], [60, 10_000]]
users = [
    "user ann on #aa ~* +@all",
    "user default off",
]
requirepass = "q\\"\\\\é"
maxclients = 100

[client-output-buffer-limit]
pubsub = [1048576, 0, 0]   # slow readers
normal = [0, 0, 0]
replica = [1, 2, 3]
"""
    )
    again = Config(disk)
    again.load(PATH)
    assert all(again[name] == config[name] for name in OPTIONS)
    assert again["users"] == tuple(users)


def test_rewrite_by_the_command(disk: SimulatedDisk) -> None:
    config = loaded(disk, "port = 1\n")
    config.set([(b"hz", b"20")])
    assert ask(config, b"REWRITE") == OK
    assert "hz = 20" in read(disk)


def test_rewrite_of_a_file_without_tables(disk: SimulatedDisk) -> None:
    config = loaded(disk, "# mine\nport = 7000 # x\n")
    config.set([(b"hz", b"20")])
    config.rewrite([b"user default on nopass ~* &* +@all"])()
    assert read(disk) == "# mine\nport = 7000 # x\n\n# Generated by CONFIG REWRITE\nhz = 20\n"
    config.set([(b"timeout", b"20"), (b"hz", b"10")])
    config.rewrite([b"user default on #aa ~* &* +@all", b"user ann on #bb"])()
    assert read(disk) == (
        "# mine\nport = 7000 # x\n\n# Generated by CONFIG REWRITE\nhz = 10\ntimeout = 20\n"
        'users = [\n    "user default on #aa ~* &* +@all",\n    "user ann on #bb",\n]\n'
    )


def test_rewrite_of_a_file_that_went_away(disk: SimulatedDisk) -> None:
    config = loaded(disk, "port = 7000\n")
    disk.unlink(PATH)
    config.rewrite()()
    assert read(disk) == "# Generated by CONFIG REWRITE\nport = 7000\n"


def test_rewrite_of_a_file_that_somebody_broke(disk: SimulatedDisk) -> None:
    config = loaded(disk, "port = 7000\n")
    write(disk, "port = \n")
    assert ask(config, b"REWRITE").line.startswith(b"ERR Rewriting config file: ")
    assert read(disk) == "port = \n"


def test_rewrite_of_a_user_that_toml_cannot_hold(disk: SimulatedDisk) -> None:
    config = loaded(disk, "port = 7000\n")
    with pytest.raises(CommandError) as caught:
        config.rewrite([b"user default on", b"user a\xff on ~\xfe"])()
    assert caught.value.line == (
        b"ERR Rewriting config file: /tidelog.toml: user a\\xff has a name or a rule that is not valid UTF-8, "
        b"which TOML requires"
    )
    assert read(disk) == "port = 7000\n"
    odd = "user \x01\x7f'\"\\\u2028\U0001f600 on".encode()
    config.rewrite([odd])()
    again = Config(disk)
    again.load(PATH)
    assert again["users"] == (odd,)


def test_rewrite_is_atomic_and_durable(disk: SimulatedDisk) -> None:
    config = loaded(disk, "port = 7000\n")
    config.set([(b"hz", b"20")])
    rng = random.Random(1)
    found: list[str] = []
    disk.before = lambda name, path: found.extend(read(disk.power_loss(rng)) for _ in range(20))
    config.rewrite()()
    disk.before = None
    after = read(disk)
    assert after.endswith("hz = 20\n")
    assert set(found) == {"port = 7000\n", after}
    assert {read(disk.power_loss(rng)) for _ in range(20)} == {after}


def test_rewriting_twice_changes_nothing(disk: SimulatedDisk) -> None:
    config = loaded(disk, FILE)
    users = [b"user default off", b"user ann on >secret ~* +@all"]
    config.rewrite(users)()
    assert read(disk) == FILE
    values = {name: config[name] for name in OPTIONS}
    assert config_file.rewritten(FILE.encode(), values, users) == FILE
