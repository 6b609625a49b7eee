"""The writer on real files: what it writes, when it rolls and syncs, and what it exposes."""

import os
import stat
import threading
from pathlib import Path

import msgpack
import pytest
from tests.aof.opened import Opened
from tests.aof.world import Life, Past, read_back, unit

from tidelog.aof import durable, frame, segment
from tidelog.aof.errors import LogClosed, LogPoisoned, StoreLocked, UnitTooLarge
from tidelog.aof.log import FSYNCED, WRITTEN, Log
from tidelog.aof.reading.reader import Epoch, Replay, Scan, records_of, segments
from tidelog.aof.reading.verdicts import Verdict
from tidelog.crash.logs import UUID, body_of, data_only
from tidelog.disk.real import RealDisk, RealFile
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.crc32c import crc32c_of
from tidelog.engine.effects.effect import END, EPOCH, Effect


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "db"


PATIENCE_S = 60.0


def test_a_life_that_writes_nothing_leaves_no_segment(root: Path) -> None:
    opened = Opened(root)
    opened.close()
    assert opened.names() == [] and not opened.began


def test_a_life_begins_with_its_epoch(root: Path) -> None:
    for number in (1, 2, 3):
        opened = Opened(root)
        assert [epoch.number for epoch in opened.recovered.epochs] == list(range(1, number))
        assert opened.add() == 2 * number
        assert opened.began == [(EPOCH | END, number, opened.log.incarnation)]
        opened.close()
        last = segments(opened.disk, root / "aof", UUID)[-1]
        scan = Scan(opened.disk, last)
        frames = list(scan.frames())
        assert scan.offset == scan.size and scan.verdict is Verdict.END
        assert frames[0].lsn == last.header.first_lsn == 2 * number - 1
        assert records_of(last.path, frames[0]) == opened.began
        assert last.header.incarnation == opened.log.incarnation


def test_a_life_that_died_at_its_first_write_is_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segment has a name and no frame: the next life takes the name over."""
    opened = Opened(root)
    opened.add()
    opened.close()
    opened = Opened(root)

    def die(self: Log, *frame: object) -> int:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Log, "_write", die)
        opened.add()
    opened.log.abandon()
    opened.held.close()
    assert len(opened.names()) == 2
    opened = Opened(root)
    assert opened.add() == 4
    assert len(opened.names()) == 2
    opened.close()
    opened = Opened(root)
    assert [epoch.lsn for epoch in opened.recovered.epochs] == [1, 3]
    opened.close()


def test_the_bytes_of_the_first_frame(root: Path) -> None:
    opened = Opened(root)
    opened.add()
    now = opened.log.last_now
    data = (root / "aof" / f"{1:020d}.aof").read_bytes()
    body: bytes = msgpack.packb((EPOCH | END, 1, opened.log.incarnation))
    assert data[80:].startswith(frame.pack(1, 1, now, 0, 0, body, crc32c_of(UUID)))
    assert len(data) == 80 + (256 << 10) and not data[-1000:].strip(b"\0")
    opened.close()


def test_permissions(root: Path) -> None:
    opened = Opened(root)
    opened.add()
    opened.log.wait(2, FSYNCED)
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    opened.close()


def test_segments_roll_and_read_back(root: Path) -> None:
    opened = Opened(root, segment_bytes=20_000, chunk_bytes_min=4096, chunk_bytes_max=8192)
    want: list[Effect] = []
    for number in range(1, 400):
        opened.add(1 + number % 3, number % 400, flush=number % 5 > 0)
        want += unit(number, 1 + number % 3, number % 400)
    opened.add(1, 50_000)  # larger than a segment: it gets one of its own
    want += unit(400, 1, 50_000)
    opened.add()
    want += unit(401, 1, 10)
    opened.close()
    assert len(opened.names()) > 5
    for name in opened.names():
        size = (root / "aof" / name).stat().st_size
        assert size <= 20_000 or size > 50_000
    assert read_back(opened.disk, root) == want


def test_a_unit_larger_than_the_largest_frame_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "BODY_BYTES_MAX", 5000)
    opened = Opened(root)
    lsn = opened.add()
    with pytest.raises(UnitTooLarge, match="5000"):
        opened.add(1, 6000)
    for _ in range(10):
        opened.add(1, 1000, flush=False)  # gathered, they are more than one frame may hold
    assert opened.add() == lsn + 11
    opened.close()
    assert len(read_back(opened.disk, root)) == 12


def test_gathered_units_share_a_frame(root: Path) -> None:
    opened = Opened(root)
    for _ in range(5):
        lsn = opened.add(2, flush=False)
    assert opened.log.written_lsn == 1 < lsn
    assert opened.log.exposed()[0] > 0
    opened.log.wait(lsn, WRITTEN)
    assert opened.log.written_lsn == lsn == 11
    (info,) = segments(opened.disk, root / "aof", UUID)
    frames = list(Scan(opened.disk, info, live=True).frames())
    assert [(f.lsn, f.count) for f in frames] == [(1, 1), (2, 10)]
    opened.close()


def test_what_is_added_never_grows_less(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without the lock, while another thread flushes, would take units that are in no file yet for written."""
    opened = Opened(root)
    lsn = opened.add(2, flush=False)
    seen: list[tuple[int, int]] = []

    def crc(body: bytes) -> int:
        seen.append((opened.log.written_lsn, opened.log.next_lsn - 1))
        return crc32c_of(body)

    monkeypatch.setattr("tidelog.aof.log.crc32c_of", crc)
    opened.log.wait(lsn, WRITTEN)
    assert seen == [(1, lsn)]
    opened.close()


def test_waiting_for_the_disk_moves_durable(root: Path) -> None:
    opened = Opened(root, policy="always")
    lsn = opened.add()
    assert opened.log.synced_lsn == 0
    opened.log.wait(lsn, FSYNCED)
    assert opened.log.synced_lsn == lsn
    promise = durable.Promise(opened.log.incarnation, lsn)
    assert promise in durable.read(opened.disk, root / "aof", UUID)
    assert opened.log.exposed() == (0, 0.0)
    opened.add()
    nbytes, age = opened.log.exposed()
    assert nbytes == 48 + len(body_of(unit(2, 1, 10))) and age >= 0.0
    opened.close()


def test_everysec_syncs_by_itself(root: Path) -> None:
    opened = Opened(root, policy="everysec")
    lsn = opened.add()
    synced = threading.Event()
    # Not a request for a sync: the callback comes with the round that the policy's thread asks for.
    opened.log._commit._subscribers.append((lsn, lambda error: synced.set()))
    assert synced.wait(PATIENCE_S)
    assert opened.log.synced_lsn == lsn
    opened.close()


def test_the_policy_switches_at_run_time(root: Path) -> None:
    opened = Opened(root, policy="no")
    lsn = opened.add()
    synced = threading.Event()
    opened.log._commit._subscribers.append((lsn, lambda error: synced.set()))
    opened.log.policy = "always"  # stricter: what is exposed goes to the disk now
    assert synced.wait(PATIENCE_S)
    opened.log.policy = "everysec"
    opened.log.policy = "no"
    assert opened.log.policy == "no"
    with pytest.raises(ValueError, match="sometimes"):
        opened.log.policy = "sometimes"  # type: ignore[assignment]
    opened.close()
    with pytest.raises(LogClosed):
        opened.add()
    opened.log.close()


def test_parked_replies_wait_for_the_disk(root: Path) -> None:
    opened = Opened(root)
    lsn = opened.add()
    opened.log.wait(lsn, WRITTEN)
    assert opened.log.synced_lsn < lsn
    opened.log.parked = True
    opened.log.wait(lsn, WRITTEN)
    assert opened.log.synced_lsn == lsn and not opened.log.parked
    opened.close()


def test_threads_at_both_levels_while_segments_roll(root: Path) -> None:
    opened = Opened(root, segment_bytes=30_000, chunk_bytes_min=4096, chunk_bytes_max=4096)
    errors: list[BaseException] = []

    def work(level: int) -> None:
        try:
            for i in range(150):
                log = opened.log
                body = body_of(unit(i, 2, 30))
                with log.lock:
                    log.reserve(len(body))
                    lsn = log.add(body, 2, log.last_now, not log.syncing)
                log.wait(lsn, level)
                assert (log.written_lsn if level == WRITTEN else log.synced_lsn) >= lsn
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(1 + i % 2,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not errors and not any(thread.is_alive() for thread in threads)
    opened.close()
    assert len(read_back(opened.disk, root)) == 8 * 150 * 2


def test_an_append_that_breaks_off_puts_the_log_in_doubt(root: Path) -> None:
    opened = Opened(root)
    good = opened.add()
    append = opened.log._append

    def broken(offset: int, data: bytes) -> None:
        append(offset, data[:17])
        raise KeyboardInterrupt

    opened.log._append = broken
    with pytest.raises(KeyboardInterrupt):
        opened.add()
    assert opened.log.in_doubt
    with pytest.raises(LogPoisoned, match="recover the log before writing again"):
        opened.add()
    opened.log.wait(good, FSYNCED)  # what the file had before is as good as ever
    with pytest.raises(LogPoisoned):
        opened.log.close()
    opened.held.close()
    again = Opened(root)
    assert data_only(again.applied) == unit(1, 1, 10)
    assert again.recovered.quarantined is not None
    assert again.recovered.quarantined.stat().st_size == 17
    again.close()


def test_a_second_writer_is_told_the_pid(root: Path) -> None:
    opened = Opened(root)
    with pytest.raises(StoreLocked, match="process 4711"):
        Opened(root)
    opened.close()
    Opened(root).close()


def test_reading_beside_a_writer(root: Path) -> None:
    """A live reader sees a prefix of whole units at any moment, and creates nothing."""
    opened = Opened(root, segment_bytes=60_000, chunk_bytes_min=4096, chunk_bytes_max=8192)
    stop = threading.Event()
    opened.add()

    def write() -> None:
        while not stop.is_set() and opened.number < 20_000:
            opened.add(1, 50)

    thread = threading.Thread(target=write)
    thread.start()
    disk = RealDisk()
    for _ in range(25):
        promises = durable.read(disk, root / "aof", UUID)
        lsn = 0
        for info in segments(disk, root / "aof", UUID):
            scan = Scan(disk, info, promises, live=True)
            for one in scan.frames():
                assert one.lsn == lsn + 1
                lsn = one.lsn + one.count - 1
            assert scan.verdict is Verdict.END, scan.reason
        assert lsn >= 2
    stop.set()
    thread.join()
    opened.close()


def test_records_that_do_not_decode_are_named(root: Path) -> None:
    opened = Opened(root)
    opened.add()
    with opened.log.lock:
        opened.log.reserve(3)
        opened.log.add(b"\x93\x01\x02", 1, opened.log.last_now)
    opened.close()
    with pytest.raises(Exception, match=r"byte 204: the checksums match.*LSN 3 expected"):
        read_back(opened.disk, root)


def test_replay_gets_whole_frames_in_order() -> None:
    batches: list[list[Effect]] = []
    replay = Replay(batches.append)
    bodies = [body_of(unit(i, 3, 100)) for i in range(500)]
    frames = [(0, 1 + 3 * i, 3, 7, 0, 0, body) for i, body in enumerate(bodies)]
    epoch: bytes = msgpack.packb((EPOCH | END, 4, 99))
    frames.append((0, 1501, 1, 8, 0, 0, epoch))
    replay.run(Path("x"), frames)
    assert len(batches) > 3 and replay.records == 1501
    assert all(batch[-1][0] & END for batch in batches)
    assert data_only([r for batch in batches for r in batch]) == [
        r for i in range(500) for r in unit(i, 3, 100)
    ]
    assert replay.epochs == [Epoch(4, 99, 1501)]


def test_a_forked_child_lets_go(root: Path) -> None:
    opened = Opened(root)
    lsn = opened.add()
    pid = os.fork()
    if pid == 0:
        opened.log.abandon()
        opened.held.close()
        try:
            opened.add()
        except LogClosed:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with pytest.raises(StoreLocked):
        Opened(root)
    assert opened.add() == lsn + 1
    opened.close()
    assert len(read_back(opened.disk, root)) == 2


def test_where_mapping_is_unsafe_appends_are_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFile, "map", lambda self, length: None)
    opened = Opened(root)
    for _ in range(300):
        opened.add(1, 1000)
    opened.log.wait(301, FSYNCED)
    opened.close()
    assert len(read_back(opened.disk, root)) == 300


def test_a_segment_has_its_header_before_it_has_its_name() -> None:
    disk = SimulatedDisk()
    headers: list[bytes] = []

    def look(operation: str, path: Path) -> None:
        if operation == "rename" and path.suffix == ".aof":
            headers.append(disk.open(path.with_name(segment.SPARE)).pread(8, 0))

    disk.before = look
    life = Life(disk, Past())
    for _ in range(20):
        life.add(1, 700)
    life.close()
    assert len(headers) > 2
    assert all(header == segment.MAGIC for header in headers), headers


def test_a_unit_that_grows_past_a_new_segment_ends_the_last_one_with_frames(root: Path) -> None:
    """A transaction reserves room command by command: one segment may end for it, and the next, before it is added."""
    opened = Opened(root, segment_bytes=6000)
    opened.add(records=2)
    body = body_of(unit(2, 1, 9000))
    with opened.log.lock:
        for nbytes in (4000, 5900, 7000, len(body)):
            opened.log.reserve(nbytes)
        opened.log.add(body, 1, opened.log.last_now)
    opened.add()
    opened.close()
    assert len(opened.names()) == 3
    assert len(read_back(RealDisk(), root)) == 4


def test_a_log_that_was_retired_in_order_has_not_failed(root: Path) -> None:
    opened = Opened(root)
    last = opened.add()
    with opened.log.lock:
        opened.log.hand_over(opened.log.last_now)
    assert opened.log.failure is None and isinstance(opened.log.ending, LogClosed)
    opened.log.wait(last, FSYNCED)
    with pytest.raises(LogPoisoned, match="the log was retired"):
        opened.log.wait(last + 1, FSYNCED)
    opened.held.close()
