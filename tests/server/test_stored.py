"""tidelog.toml: how a store is served. It says what it may, only its user reads it, and nothing but serving uses it."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from tests.tools.conftest import Run, run  # noqa: F401  # the fixture
from tests.until import until

import tidelog
from tidelog.disk import recipe
from tidelog.disk.simulated import SimulatedDisk
from tidelog.server.config import stored
from tidelog.server.config.config import Config, ConfigError
from tidelog.server.config.file import rewritten
from tidelog.server.config.options import OPTIONS
from tidelog.server.config.stored import DEFAULTS, NAME, Stored, checked

HASH = "#" + "5" * 64


def write(root: Path, text: str | bytes, mode: int = 0o600) -> Path:
    root.mkdir(exist_ok=True)
    path = root / NAME
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def spoil(root: Path) -> None:
    """Damage the file STORE, so that a repair has something to do."""
    path = root / "STORE"
    path.write_bytes(path.read_bytes().replace(b"uuid ", b"uuid x"))


def loaded(root: Path) -> Config:
    config = Config()
    assert Stored(root).load(config)
    return config


def test_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "sésame")
    secret = tmp_path / "secret"
    secret.write_text("open \n")
    root = tmp_path / "store"
    write(
        root,
        f'format = 1\nmaxmemory = "64mb"\nrequirepass = {{ env = "ORDERS_PASSWORD" }}\n'
        f'masterauth = {{ file = "{secret}" }}\nusers = ["user ann on {HASH} ~* +@all"]\n',
    )
    config = loaded(root)
    assert config.file == root / NAME
    assert (config["maxmemory"], config["requirepass"], config["masterauth"]) == (
        64 << 20,
        "sésame",
        "open ",
    )
    assert config["users"] == (f"user ann on {HASH} ~* +@all".encode(),)


def test_what_it_does_not_say(tmp_path: Path) -> None:
    write(tmp_path, "")
    config = loaded(tmp_path)
    assert (config["port"], config["appendfsync"]) == (0, "always")
    others = OPTIONS.keys() - DEFAULTS.keys()
    assert all(config[name] == OPTIONS[name].default for name in others)


def test_no_file(tmp_path: Path) -> None:
    config = Config()
    assert not Stored(tmp_path).load(config) and not Stored(tmp_path / "missing").load(config)
    assert (config["port"], config["appendfsync"], config.file) == (6379, "everysec", None)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("port = \n", ", line 1, column 8: Invalid value"),
        (b"port = 1\n\0\0\0\n", ", line 2, column 1: "),
        (b"\xff\n", ", line 1: not UTF-8"),
        ("port = 63", ": its last line has no end, so it may be half written"),
        ("users = [\n", ": "),
        ("format = 2\nfuture = 1\n", " is of a later version of tidelog: it has format 2, and this version reads"),
        ("format = true\n", ": format must be 1"),
        ("prot = 1\n", ", line 1: there is no option 'prot'; did you mean port?"),
        ("port = 65536\n", ", line 1: port must be an integer from 0 to 65535, not 65536"),
        ('appendonly = false\n', ", line 1: appendonly cannot be changed from yes"),
        ('hz = 1\nrequirepass = "x"\n', ", line 2: requirepass is a password, and this file takes only the name of"),
        ('masterauth = "x"\n', ", line 1: masterauth is a password"),
        ('tls-key-file-pass = "x"\n', ", line 1: tls-key-file-pass is a password"),
        ('requirepass = { env = "" }\n', ", line 1: requirepass must be a string without NUL, { env = "),
        ('requirepass = { env = "A", file = "/b" }\n', ", line 1: requirepass must be a string without NUL"),
        ('requirepass = { file = "x" }\n', ", line 1: requirepass must be an absolute path, not 'x'"),
        ('tls-key-file = "key.pem"\n', ", line 1: tls-key-file must be an absolute path, not 'key.pem'"),
        ('unixsocket = "s"\n', ", line 1: unixsocket must be an absolute path, not 's'"),
        ('users = ["user ann on >x ~*"]\n', ", line 1: user ann has a password in clear; write its hash"),
        ('users = ["user ann on <x ~*"]\n', ", line 1: user ann has a password in clear; write its hash"),
        ("users = 1\n", ", line 1: users must be a list of lines"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(tmp_path: Path, text: str | bytes, error: str) -> None:
    path = write(tmp_path, text)
    config = Config()
    before = {name: config[name] for name in OPTIONS}
    with pytest.raises(ConfigError) as caught:
        Stored(tmp_path).load(config)
    assert str(caught.value).startswith(f"{path}{error}") and "\n" not in str(caught.value)
    assert {name: config[name] for name in OPTIONS} == before and config.file is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('requirepass = { env = "TIDELOG_NONE" }\n', "requirepass: the variable TIDELOG_NONE is not set"),
        ('requirepass = { file = "/no/such" }\n', "requirepass: /no/such: No such file or directory"),
    ],
)  # fmt: skip
def test_a_password_that_is_not_there(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Stored(tmp_path).load(Config())
    assert str(caught.value) == f"{path}, line 1: {error}"
    checked(path, text.encode())  # another process may have it


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_others_may_not_read_it(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, "port = 1\n", mode)
    with pytest.raises(ConfigError, match=f"^{path} has the mode {mode:o}, so that others can"):
        Stored(tmp_path).load(Config())


def test_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "port = 1\n")
    (tmp_path / "LOCK").touch()
    monkeypatch.setattr("tidelog.disk.private.user_of", lambda path: os.geteuid() + 1)
    other = f"user {os.geteuid() + 1}"
    monkeypatch.setattr(stored, "_name_of", lambda uid: f"user {uid}")
    with pytest.raises(ConfigError) as caught:
        Stored(tmp_path).load(Config())
    assert str(caught.value) == (
        f"{path} belongs to user {os.geteuid()}, and the store to {other}: give it to that user, with the mode 600"
    )
    with pytest.raises(ConfigError, match=f"belongs to {other}, who alone can change it"):
        Stored(tmp_path).update(lambda data: "port = 2\n")


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME, 0o600)
    with pytest.raises(ConfigError, match="it is not a plain file"):
        Stored(tmp_path).load(Config())
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="No such file"):
        Stored(tmp_path).load(Config())
    write(tmp_path / "other", "#" * stored.BYTES_MAX + "\n").rename(tmp_path / NAME)
    with pytest.raises(ConfigError, match="is longer than"):
        Stored(tmp_path).load(Config())


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    """As a secret is mounted: the file lies elsewhere."""
    secret = write(tmp_path / "secrets", "port = 7\n")
    root = tmp_path / "store"
    root.mkdir()
    (root / NAME).symlink_to(secret)
    assert loaded(root)["port"] == 7
    with tidelog.open(root) as db:
        db.xadd("s", {"a": "1"})
    with tidelog.open(root, read_only=True) as db:
        assert db.xlen("s") == 1
    Stored(root).update(lambda data: data.decode() + "hz = 20\n")
    assert (root / NAME).is_symlink() and secret.read_text() == "port = 7\nhz = 20\n"


def test_a_change_is_whole_and_private(tmp_path: Path) -> None:
    root = tmp_path / "new"
    (tmp_path / "old").mkdir()
    Stored(root).update(lambda data: "port = 1\n")
    path = root / NAME
    assert path.read_text() == "port = 1\n" and path.stat().st_mode & 0o777 == 0o600
    left = root / (NAME + recipe.BESIDE)
    left.write_text("half")
    left.chmod(0o666)
    with pytest.raises(ConfigError, match="there is no option 'prot'"):
        Stored(root).update(lambda data: "prot = 1\n")
    assert path.read_text() == "port = 1\n"
    Stored(root).update(lambda data: data.decode() + "hz = 20\n")
    assert path.read_text() == "port = 1\nhz = 20\n" and path.stat().st_mode & 0o777 == 0o600
    assert not left.exists()
    Stored(root).remove()
    assert not path.exists()


def test_changes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = ("hz", "timeout", "maxclients", "slowlog-max-len", "acllog-max-len", "tcp-backlog")

    def add(name: str) -> None:
        Stored(tmp_path).update(lambda data: data.decode() + f"{name} = 11\n")

    threads = [threading.Thread(target=add, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    config = loaded(tmp_path)
    assert [config[name] for name in names] == [11] * len(names)


def test_a_store_may_be_made_around_it(tmp_path: Path) -> None:
    write(tmp_path, "port = 7\n")
    with pytest.raises(tidelog.NotAStore, match="it is empty"):
        tidelog.open(tmp_path, read_only=True)
    with tidelog.open(tmp_path) as db:
        db.xadd("s", {"a": "1"})
    assert (tmp_path / NAME).read_text() == "port = 7\n"


def test_restore_import_and_repair_make_one_around_it(tmp_path: Path, run: Run) -> None:  # noqa: F811
    with tidelog.open(tmp_path / "store") as db:
        db.xadd("s", {"a": "1"})
        kept = db.snapshot()
    assert run("rdb", "export", tmp_path / "store", tmp_path / "dump.rdb").code == 0
    spoil(tmp_path / "store")
    for name, words in {
        "restored": ("snapshot", "restore", kept.path),
        "imported": ("import",),
        "repaired": ("repair", tmp_path / "store", "--to"),
    }.items():
        root = tmp_path / name
        write(root, "port = 7\n")
        last = [tmp_path / "dump.rdb"] if name == "imported" else []
        done = run(*words, root, *last)
        assert done.code == 0, (name, done)
        with tidelog.open(root) as db:
            assert db.xlen("s") == 1, name
        assert (root / NAME).read_text() == "port = 7\n"


def test_no_copy_has_it(tmp_path: Path, run: Run) -> None:  # noqa: F811
    """Neither a snapshot, nor a repaired copy, nor a follower."""
    root = tmp_path / "store"
    write(root, "port = 7\n")
    with tidelog.open(root) as db:
        db.xadd("s", {"a": "1"})
        db.snapshot()
        with tidelog.serve(db, port=0) as server:
            with tidelog.follow(
                tmp_path / "follower", f"tidelog://127.0.0.1:{server.port}"
            ) as copy:
                until(lambda: copy.xlen("s") == 1, "the follower has nothing")
    spoil(root)
    assert run("repair", root, "--to", tmp_path / "copy").code == 0
    assert (tmp_path / "copy" / "STORE").exists()
    assert [path for path in tmp_path.rglob(NAME + "*")] == [root / NAME]


@pytest.mark.parametrize("words", [("verify",), ("aof", "verify"), ("repair",)])
def test_the_tools_know_it(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:  # noqa: F811
    root = tmp_path / "store"
    with tidelog.open(root) as db:
        db.xadd("s", {"a": "1"})
    plain = run(*words, root)
    elsewhere = write(tmp_path / "elsewhere", "port = 7\n")
    (root / NAME).symlink_to(elsewhere)
    assert plain.code == 0 and run(*words, root) == plain
    if words != ("repair",):
        (root / NAME).unlink()
        (root / NAME).mkdir()
        done = run(*words, root)
        assert done.code != 0 and NAME in done.out + done.err
    assert elsewhere.read_text() == "port = 7\n"


def test_rewriting() -> None:
    values = {name: option.default for name, option in OPTIONS.items()}
    text = rewritten(b"# mine\nhz = 10\n", values, (), DEFAULTS)
    assert text.startswith("# mine\nhz = 10\n")
    assert text.endswith('port = 6379\nappendfsync = "everysec"\n')
    for name in ("requirepass", "masterauth", "tls-key-file-pass"):
        with pytest.raises(Exception, match=f"^: {name} is a password, and this file takes only"):
            rewritten(b"", values | {name: "x"}, (), DEFAULTS)


def test_rewriting_keeps_the_place_of_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "x")
    write(tmp_path, 'requirepass = { env = "ORDERS_PASSWORD" }\n')
    config = loaded(tmp_path)
    config.set([(b"hz", b"20")])
    config.rewrite([b"user default on " + HASH.encode()])()
    text = (tmp_path / NAME).read_text()
    assert text.startswith('requirepass = { env = "ORDERS_PASSWORD" }\n') and "hz = 20" in text
    config.set([(b"requirepass", b"y")])
    with pytest.raises(Exception, match="requirepass is a password"):
        config.rewrite()()
    assert (tmp_path / NAME).read_text() == text


def test_rewriting_is_atomic_and_durable() -> None:
    """`update` publishes as every file of a store is published; here on a disk that loses its power."""
    disk, path = SimulatedDisk(), Path("/tidelog.toml")
    rng = random.Random(1)
    recipe.publish(disk, path, b"port = 1\n")
    found: set[bytes] = set()
    disk.before = lambda name, place: found.update(
        recipe.read(disk.power_loss(rng), path) for _ in range(10)
    )
    recipe.publish(disk, path, b"port = 2\n")
    disk.before = None
    found.add(recipe.read(disk.power_loss(rng), path))
    assert found == {b"port = 1\n", b"port = 2\n"}
