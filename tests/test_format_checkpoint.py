"""docs/FORMAT.md against a real checkpoint and a real snapshot.

They are decoded by the page's own tables and lists with lmdb, msgpack and struct alone; nothing of tidelog reads them.
The result is compared with the answers of the store.
"""

from __future__ import annotations

import base64
import json
import mmap
import re
import struct
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import lmdb
import msgpack
import pytest

import tidelog
from tidelog import testing

PAGE: Final = (Path(__file__).parents[1] / "docs/FORMAT.md").read_text()
Entry = tuple[int, tuple[bytes, ...]]  # ID, names and values in turn


def table() -> list[int]:
    """CRC-32C by bytes."""
    made = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        made.append(byte)
    return made


TABLE: Final = table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


# --- what the page says


def section(heading: str) -> str:
    return re.split(r"\n##+ ", PAGE.split(f"## {heading}\n", 1)[1], maxsplit=1)[0]


def key_layouts() -> dict[bytes, tuple[str, list[tuple[str, int]]]]:
    """Of each kind of row, by the first byte of its key: the name, and the fields behind that byte."""
    found = {}
    for name, kind, fields in re.findall(
        r"^\| ([A-Z]+) \| `(.)`((?:, [^|,]+)*) \|", section("Rows"), re.M
    ):
        split = [field.rsplit(" ", 1) for field in fields.split(", ")[1:]]
        sizes = [(what, {"u32": 4, "u64": 8}.get(size) or int(size)) for what, size in split]
        found[kind.encode()] = name, sizes
    return found


def names(heading: str, part: str = "") -> list[str]:
    """The elements of an array that is drawn under a heading; of one of its parts."""
    (listed,) = re.findall(
        rf"^    {part + ' +' if part else ''}\[([^\]]*)\](?:,| or|$)", section(heading), re.M
    )
    return str(listed).split(", ")


def named(heading: str, values: list[Any], part: str = "") -> dict[str, Any]:
    return dict(zip(names(heading, part), values, strict=True))


# --- what the file holds


def unpack(payload: bytes) -> Any:
    return msgpack.unpackb(payload, raw=True, strict_map_key=False)


def number(packed: bytes) -> int:
    assert len(packed) == 16
    return int.from_bytes(packed, "big")


def ids_in(packed: bytes) -> list[int]:
    return [number(packed[at : at + 16]) for at in range(0, len(packed), 16)]


def mask_of(packed: bytes) -> int:
    assert not packed.endswith(b"\0"), "as many bytes as it needs"
    return int.from_bytes(packed, "little")


def block_of(sealed: bytes) -> list[Entry]:
    """The entries of a sealed block."""
    body, crc = sealed[:-4], int.from_bytes(sealed[-4:], "little")
    assert crc == crc32c(body)
    parts = unpack(body)
    ids, values = parts[0], parts[2]
    ms, seq, n = ids[:3]
    if len(ids) == 3:
        all_ids = [(ms << 64) + seq + i for i in range(n)]
    else:
        seqs = ids[4] if len(ids) == 5 else [0] * n
        all_ids = [(ms + more << 64) + seq for more, seq in zip(ids[3], seqs, strict=True)]
    assert all_ids[0] == (ms << 64) + seq or len(ids) == 5
    rows, at = [], 0
    for i in range(n):
        shape = parts[1] if len(parts) == 3 else parts[1][parts[3][i]]
        rows.append(tuple(x for pair in zip(shape, values[at:]) for x in pair))
        at += len(shape)
    assert at == len(values) and len(all_ids) == n
    return list(zip(all_ids, rows))


class Checkpoint:
    """The rows of a file, by kind and by the fields of their keys."""

    def __init__(self, folder: Path) -> None:
        self.rows: dict[str, dict[tuple[Any, ...], bytes]] = {}
        layouts = key_layouts()
        assert len(layouts) == 8
        with lmdb.open(str(folder), readonly=True, lock=False, max_dbs=0) as env:
            with env.begin() as txn:
                for key, value in txn.cursor():
                    payload, crc = value[:-4], int.from_bytes(value[-4:], "little")
                    assert crc == crc32c(key + payload)
                    kind, fields = layouts[key[:1]]
                    at, read = 1, []
                    for _, size in fields:
                        piece = key[at : at + size]
                        read.append(int.from_bytes(piece, "big") if size < 16 else piece)
                        at += size
                    assert at == len(key) <= 511
                    self.rows.setdefault(kind, {})[tuple(read)] = payload
        self.meta = {key.decode(): value for key, value in unpack(self.rows["META"][()]).items()}
        fields = re.findall(r"^\| `(\w+)` \|", section("META"), re.M)
        # the clock of this store was never ahead
        assert [*self.meta, "lead"] == fields
        self.used: set[tuple[str, tuple[Any, ...]]] = {("META", ())}

    def take(self, kind: str, *key: Any) -> bytes:
        self.used.add((kind, key))
        return self.rows[kind][key]

    def left(self) -> set[Any]:
        """Rows that nothing led to."""
        return {(kind, key) for kind, rows in self.rows.items() for key in rows} - self.used

    def keys(self) -> Iterator[tuple[int, bytes, int, int, Any]]:
        """(database, key, expiry, kind, what it holds) of every key."""
        tables = self.meta["tables"][b"tables"]
        assert len(tables) == 16 and len({number for number, *_ in tables}) == 16
        for db, (of_table, keys, expires) in enumerate(tables):
            found = expiring = 0
            for (row_table, hashed), payload in self.rows["KEY"].items():
                if row_table != of_table:
                    continue
                self.take("KEY", row_table, hashed)
                row = named("KEY", unpack(payload))
                key = row["key"]
                assert hashed == (
                    blake2b(key, digest_size=8).digest() + blake2b(key, digest_size=16).digest()
                )
                if row["expiry"] >= 0:
                    assert self.take("EXPIRY", of_table, row["expiry"], hashed) == key
                    assert row["expiry"] >= self.meta["tables"][b"next_expiry"]
                    expiring += 1
                found += 1
                yield db, key, row["expiry"], row["kind"], row["held"]
            assert (found, expiring) == (keys, expires)

    def stream(self, stream: int) -> Stream:
        return Stream(self, stream)


class Stream:
    def __init__(self, file: Checkpoint, stream: int) -> None:
        row = named("STREAM", unpack(file.take("STREAM", stream)))
        nodes = named("STREAM", row["nodes"], "nodes")
        self.row = row
        self.entries: list[Entry] = []
        self.pages = 0
        self.dropped = 0
        live = 0
        at = None
        for (owner, first), payload in file.rows.get("PAGE", {}).items():
            if owner != stream:
                continue
            self.pages += 1
            page = named("PAGE and DATA", unpack(file.take("PAGE", stream, first)))
            data = file.take("DATA", stream, first)
            firsts, lasts = ids_in(page["firsts"]), ids_in(page["lasts"])
            assert number(first) == firsts[0] and 1 <= len(firsts) <= 16
            assert at is None or page["ordinal"] == at
            at = page["ordinal"]
            masks = page["masks"] or [b""] * len(firsts)
            assert len(data) == sum(page["lengths"])
            assert len(data) <= 60_000 or len(firsts) == 1
            for first_id, last_id, slots, length, packed in zip(
                firsts, lasts, page["counts"], page["lengths"], masks, strict=True
            ):
                block, data = data[:length], data[length:]
                mask = mask_of(packed)
                if not slots:
                    assert not length
                    self.dropped += 1
                elif at >= nodes["head"]:
                    entries = block_of(block)
                    assert len(entries) == slots and entries[0][0] == first_id
                    assert entries[-1][0] == last_id
                    here = [each for i, each in enumerate(entries) if not mask >> i & 1]
                    live += bool(here)
                    self.entries += here
                    if at == nodes["head"]:
                        assert first_id == number(nodes["head-first"]) and here
                at += 1
            assert not data
        assert live == nodes["live"]
        if live:
            assert at == nodes["stop"] and self.entries[-1][0] <= number(nodes["greatest"])
        if row["tail"] is not None:
            tail = named("STREAM", row["tail"], "tail")
            entries = block_of(tail["block"])
            mask = mask_of(tail["mask"])
            self.entries += [each for i, each in enumerate(entries) if not mask >> i & 1]
            assert tail["unbounded"] in (True, False)
        assert len(self.entries) == row["length"]
        self.groups = {
            name: Group(file, stream, group, name, row["next-group"])
            for group, name in row["groups"]
        }


class Group:
    def __init__(
        self, file: Checkpoint, stream: int, group: int, name: bytes, next_group: int
    ) -> None:
        row = named("GROUP", unpack(file.take("GROUP", stream, group)))
        assert row["name"] == name and group < next_group
        pending = named("GROUP", row["pending"], "pending")
        self.row, self.wide = row, pending["wide"]
        self.free = pending["free"]
        self.consumers = {
            owner: (name, seen, active) for name, owner, seen, active in row["consumers"]
        }
        self._file, self._place, self._next = file, (stream, group), pending["next-serial"]

        by_id = named("GROUP", pending["by-id"], "by-id")
        by_time = named("GROUP", pending["by-time"], "by-time")
        self.entries = self._rows(by_id["serials"], 4, self._tops(by_id["tops"]), 0)
        times = self._rows(by_time["serials"], 2, self._int64(by_time["tops"]), 1)
        assert times == sorted(((i, t) for i, t, *_ in self.entries), key=lambda row: row[::-1])
        lasts = self._tops(by_time["last-ids"])
        assert set(lasts) <= {id for id, _ in times} and len(lasts) == len(by_time["tops"]) // 8
        assert pending["by-owner"][0] is None
        for owner, held in enumerate(pending["by-owner"]):
            mine = [(row[0],) for row in self.entries if row[2] == owner]
            if held is not None:
                n, tops, serials = held
                assert self._rows(serials, 1, self._tops(tops), 0) == mine
                assert n == len(mine) and owner in self.consumers
            else:
                assert owner == 0 or (not mine and owner in self.free)
        assert len(self.entries) == pending["entries"]
        released = [t for _, t, owner, _ in self.entries if owner == 0]
        assert all(-(1 << 62) <= t < pending["nack-time"] for t in released)

    def _int64(self, packed: bytes) -> list[int]:
        return list(struct.unpack(f"<{len(packed) // 8}q", packed))

    def _tops(self, packed: bytes) -> list[int]:
        if self.wide:
            return ids_in(packed)
        keys = [key + (1 << 63) for key in self._int64(packed)]  # ((ms - 2^41) << 22) | seq
        return [key >> 22 << 64 | key & (1 << 22) - 1 for key in keys]

    def _rows(self, serials: bytes, columns: int, tops: list[int], top: int) -> list[Any]:
        rows = []
        for serial, greatest in zip(self._int64(serials), tops, strict=True):
            assert 0 < serial < self._next
            entries, *packed = unpack(self._file.take("CHUNK", *self._place, serial))
            assert len(packed) == columns
            found = []
            for at, column in enumerate(packed):
                if isinstance(column, int):
                    more = entries if at == 0 else 1  # IDs go up one by one; all else is the same
                    values = [column + i % more for i in range(entries)]
                    if at == 0:
                        values = self._tops(struct.pack(f"<{entries}q", *values))
                elif at == 0:
                    values = self._tops(column)
                else:
                    code = "I" if at == 2 else "q"
                    values = list(struct.unpack(f"<{entries}{code}", column))
                found.append(values)
            chunk = list(zip(*found, strict=True))
            assert len(chunk) == entries and chunk[-1][top] == greatest
            rows += chunk
        return rows


# --- a store with everything


def text(entry_id: int) -> bytes:
    return b"%d-%d" % (entry_id >> 64, entry_id & (1 << 64) - 1)


def fill(db: tidelog.Store, clock: testing.Clock) -> None:
    """Two checkpoints over all there is; the second changes and deletes much of the first."""
    db.xadd_many("orders", [{"item": "tea", "n": n} for n in range(1990)])
    for n in range(40):
        clock.advance(1)
        db.xadd("orders", {"item": "rice", "n": n} if n % 3 else {"note": "x"})
    ids = [id for id, _ in db.xrange("orders")]
    db.xdel("orders", *ids[300:420])  # one node as a whole, and parts of its neighbours
    db.xgroup_create("orders", "packers", id="0")
    for name, count in (("anna", 200), ("ben", 7), ("carl", 1), ("dora", 90)):
        db.xreadgroup("packers", name, {"orders": ">"}, count=count)
        clock.advance(5)
    db.xgroup_create("orders", "none", id="$")
    db.xgroup_create("orders", "gone", id="0")
    db.execute_command("XNACK", "orders", "packers", "FAIL", "IDS", 2, ids[4], ids[1])
    db.xadd("far", {"k": "v"}, id="18446744073709551615-1")
    db.xgroup_create("far", "g", id="0")
    db.xreadgroup("g", "anna", {"far": ">"})
    for n in range(3):
        db.execute_command("XADD", "once", "IDMP", "p%d" % (n % 2), "i%d" % n, "*", "n", n)
    db.set("plain", "1", px=60_000_000)
    db.set("grown", "1")
    db.append("grown", "2")
    db.db(7).set("k" * 2000, "long")
    db.set("later", "1", px=90_000_000)
    db.xadd("away", {"a": "b"})
    db.checkpoint()

    db.xdel("orders", *ids[1000:1005])
    db.xtrim("orders", maxlen=1700)
    db.xgroup_destroy("orders", "gone")
    db.xack("orders", "packers", *ids[20:30])
    db.xgroup_delconsumer("orders", "packers", "carl")
    db.persist("later")
    db.delete("away")
    for n in range(250):
        clock.advance(1)
        db.xadd("orders", {"item": "salt", "n": n})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store with a checkpoint and a snapshot, and what it answers."""
    root = tmp_path_factory.mktemp("format") / "s"
    clock = testing.Clock()
    with tidelog.open(root, fsync="no", clock=clock) as db:
        fill(db, clock)
        lsn = db.checkpoint()
        made = db.snapshot()
        assert made.lsn == lsn
        told = {
            "lsn": lsn,
            "path": made.path,
            "orders": db.xrange("orders"),
            "far": db.xrange("far"),
            "once": db.xrange("once"),
            "pending": db.xpending_range("orders", "packers", "-", "+", 10_000),
            "info": db.execute_command("XINFO", "STREAM", "orders"),
            "consumers": db.execute_command("XINFO", "CONSUMERS", "orders", "packers"),
            "plain": db.pexpiretime("plain"),
        }
    return root, told


def test_every_row_of_a_checkpoint(store: tuple[Path, dict[str, Any]]) -> None:
    root, told = store
    file = Checkpoint(root / "checkpoint")
    assert file.meta["format"] == 1 and file.meta["number"] == 2
    assert file.meta["position"][b"lsn"] == told["lsn"]
    found = {(db, key): (expiry, kind, held) for db, key, expiry, kind, held in file.keys()}
    assert found[0, b"plain"] == (told["plain"], 1, b"1")
    assert found[0, b"later"] == (-1, 1, b"1")
    assert found[0, b"grown"] == (-1, 2, b"12")
    assert found[7, b"k" * 2000] == (-1, 1, b"long")
    streams = {key: held for (_, key), (_, kind, held) in found.items() if kind == 0}
    assert set(streams) == {b"orders", b"far", b"once"}
    assert len(found) == 7

    for key, held in streams.items():
        assert held < file.meta["tables"][b"next_stream_number"]
        stream = file.stream(held)
        entries = [
            (text(id), dict(zip(row[::2], row[1::2], strict=True))) for id, row in stream.entries
        ]
        assert entries == told[key.decode()]
    orders = file.stream(streams[b"orders"])
    assert orders.pages > 1 and orders.dropped
    assert set(orders.groups) == {b"packers", b"none"}
    info = told["info"]
    info = dict(zip(info[::2], info[1::2])) if isinstance(info, list) else info
    told_info = {str(k.decode() if isinstance(k, bytes) else k): v for k, v in info.items()}
    assert text(number(orders.row["last"])) == told_info["last-generated-id"]
    assert text(number(orders.row["max-deleted"])) == told_info["max-deleted-entry-id"]
    assert orders.row["added"] == told_info["entries-added"]
    assert number(orders.row["removed"]) >= number(orders.row["max-deleted"])

    group = orders.groups[b"packers"]
    assert not group.wide and group.free == [3]
    owners = {owner: name for owner, (name, *_) in group.consumers.items()} | {0: b""}
    assert [
        {"message_id": text(id), "consumer": owners[owner], "times_delivered": count}
        for id, _, owner, count in group.entries
    ] == [{k: v for k, v in each.items() if k in KNOWN} for each in told["pending"]]
    assert sum(owner == 0 for _, _, owner, _ in group.entries) == 2
    assert sorted(name for name, *_ in group.consumers.values()) == [b"anna", b"ben", b"dora"]
    assert file.stream(streams[b"far"]).groups[b"g"].wide

    idmp = named("STREAM", file.stream(streams[b"once"]).row["idmp"], "idmp")
    assert (idmp["duration"], idmp["maxsize"], idmp["iids-added"]) == (100, 100, 3)
    assert [(pid, iids) for pid, iids, _ in idmp["producers"]] == [
        (b"p1", [b"i1"]),
        (b"p0", [b"i0", b"i2"]),
    ]
    assert [text(id) for _, _, packed in idmp["producers"] for id in ids_in(packed)] == [
        told["once"][at][0] for at in (1, 0, 2)
    ]
    assert not file.left(), "rows that nothing leads to"


KNOWN = {"message_id", "consumer", "times_delivered"}


def test_the_place_in_the_log(store: tuple[Path, dict[str, Any]]) -> None:
    root, told = store
    meta = Checkpoint(root / "checkpoint").meta
    uuid = bytes.fromhex(re.findall("uuid (.*)", (root / "STORE").read_text())[0])
    assert meta["uuid"] == uuid
    where = {name.decode(): value for name, value in meta["position"].items()}
    assert list(where) == ["lsn", "crc", "segment", "offset", "incarnation"]
    data = (root / "aof" / f"{where['segment']:020}.aof").read_bytes()
    at, last = 80, None
    while at < where["offset"]:
        length, lsn, count = struct.unpack_from("<IQI", data, at + 4)
        (crc,) = struct.unpack_from("<I", data, at + 44)
        last = lsn + count - 1, crc
        at += 48 + length
    assert (at, last) == (where["offset"], (where["lsn"], where["crc"]))
    assert struct.unpack_from("<Q", data, 32) == (where["incarnation"],)
    assert meta["epochs"] == [[1, where["incarnation"], 1]]


def test_a_snapshot(store: tuple[Path, dict[str, Any]]) -> None:
    root, told = store
    folder = root / "snapshots" / f"{told['lsn']:020}"
    assert folder == Path(told["path"])
    assert sorted(path.name for path in folder.iterdir()) == ["data.mdb", "manifest.json"]
    there, copy = Checkpoint(root / "checkpoint"), Checkpoint(folder)
    assert copy.rows == there.rows

    raw = (folder / "manifest.json").read_bytes()
    manifest = json.loads(raw)
    (shown,) = re.findall(r"^    \{\n.*?^    \}$", section("Snapshots"), re.M | re.S)
    assert shape(manifest) == shape(json.loads(shown))
    assert list(manifest) == sorted(manifest)
    check = manifest.pop("check")
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert check == blake2b(text.encode(), digest_size=16).hexdigest()
    data = (folder / "data.mdb").read_bytes()
    assert manifest["data"] == {
        "bytes": len(data),
        "blake2b": blake2b(data, digest_size=32).hexdigest(),
    }
    meta = copy.meta
    where = {name.decode(): value for name, value in meta["position"].items()}
    assert manifest["uuid"] == meta["uuid"].hex()
    assert manifest["position"] == where | {
        "crc": f"{where['crc']:08x}",
        "incarnation": f"{where['incarnation']:016x}",
    }
    assert manifest["now_ms"] == meta["now"]
    counts = manifest["counts"]
    assert counts["databases"] == [
        {"db": 0, "keys": 6, "expires": 1},
        {"db": 7, "keys": 1, "expires": 0},
    ]
    assert (counts["streams"], counts["groups"]) == (3, 3)
    largest = counts["largest"][0]
    assert (largest["key"], largest["entries"]) == ("orders", len(told["orders"]))


def shape(value: Any) -> Any:
    """The names and types of a JSON value; of an array those of its first element."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


def test_keys_that_are_no_text(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xadd(b"\xff", {"a": "b"})
        db.xadd("x" * 1025, {"a": "b"})
        made = db.snapshot()
    counts = json.loads((Path(made.path) / "manifest.json").read_bytes())["counts"]
    (only,) = counts["largest"]
    assert counts["streams"] == 2
    assert only["key"] == {"base64": base64.b64encode(b"\xff").decode()}
    assert '`{"base64": "..."}`' in section("Snapshots")


def test_a_restored_store(store: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    from tidelog.disk.real import RealDisk
    from tidelog.snapshot.restore import restore

    root, told = store
    restore(RealDisk(), Path(told["path"]), tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "LOCK",
        "STORE",
        "aof",
        "checkpoint",
    ]
    (segment,) = (tmp_path / "new/aof").glob("*.aof")
    data = segment.read_bytes()
    assert segment.name == f"{told['lsn'] + 1:020}.aof" and len(data) == 80
    crc = Checkpoint(root / "checkpoint").meta["position"][b"crc"]
    assert struct.unpack_from("<QQI", data, 56) == (told["lsn"], 0, crc)
    old, new = (
        re.findall("uuid .*", (at / "STORE").read_text()) for at in (root, tmp_path / "new")
    )
    assert old == new


def test_restoring(tmp_path: Path) -> None:
    (tmp_path / "RESTORING").write_text("tidelog restore, not finished\n")
    with pytest.raises(tidelog.NotAStore, match="unfinished restore"):
        tidelog.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["RESTORING"]


def test_a_file_without_a_checkpoint_counts_as_none(tmp_path: Path) -> None:
    with tidelog.open(tmp_path, fsync="no") as db:
        db.xadd("k", {"a": "b"})
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for blank in (b"", bytes(8192)):
        (folder / "data.mdb").write_bytes(blank)
        with tidelog.open(tmp_path) as db:
            assert db.xlen("k") == 1
    (folder / "data.mdb").unlink()
    lmdb.open(str(folder)).close()
    with tidelog.open(tmp_path) as db:
        assert db.xlen("k") == 1
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        txn.put(b"z", struct.pack("<I", crc32c(b"z")))
    with pytest.raises(
        tidelog.StoreDamaged, match="the row that describes the checkpoint is missing"
    ):
        tidelog.open(tmp_path)


def test_the_file(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        db.xadd("k", {"a": "b"})
        db.snapshot()
        folder = tmp_path / "s/checkpoint"
        assert {path.name for path in folder.iterdir()} == {"data.mdb", "lock.mdb", "checked"}
        before = (folder / "data.mdb").read_bytes()
        db.xadd("k", {"a": "c"})
        assert (folder / "data.mdb").read_bytes() == before, "written by checkpoints alone"
    for path in (tmp_path / "s").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as txn:
        assert env.stat()["psize"] == mmap.PAGESIZE
        assert not any(env.open_db(None, txn=txn).flags().values())
    (folder / "lock.mdb").unlink()
    with tidelog.open(tmp_path / "s", read_only=True) as db:
        assert db.xlen("k") == 2
    assert not (folder / "lock.mdb").exists(), "a reader creates nothing"
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("k") == 2
    assert (folder / "lock.mdb").exists()


def test_newer_formats_are_refused(tmp_path: Path) -> None:
    with tidelog.open(tmp_path, fsync="no") as db:
        db.xadd("k", {"a": "b"})
        made = db.snapshot()
    with lmdb.open(str(tmp_path / "checkpoint")) as env, env.begin(write=True) as txn:
        payload = msgpack.packb(msgpack.unpackb((txn.get(b"!") or b"")[:-4]) | {"more": 1})
        txn.put(b"!", payload + struct.pack("<I", crc32c(b"!" + payload)))
    with tidelog.open(tmp_path) as db:
        assert db.xlen("k") == 1, "fields may be added"
    with lmdb.open(str(tmp_path / "checkpoint")) as env, env.begin(write=True) as txn:
        payload = payload.replace(b"\xa6format\x01", b"\xa6format\x02")
        txn.put(b"!", payload + struct.pack("<I", crc32c(b"!" + payload)))
    before = (tmp_path / "checkpoint/data.mdb").read_bytes()
    for read_only in (False, True):
        with pytest.raises(tidelog.NewerFormat, match="format version 2"):
            tidelog.open(tmp_path, read_only=read_only)
    assert (tmp_path / "checkpoint/data.mdb").read_bytes() == before

    path = made.path / "manifest.json"
    facts = json.loads(path.read_bytes()) | {"format": 2}
    path.write_text(json.dumps(facts))
    with pytest.raises(tidelog.TidelogError, match="format version 2"):
        tidelog.open(made.path, read_only=True)
