"""A log that is read from where a checkpoint ends: the same as a whole log, or refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.aof.world import ROOT, Life, Past, random_step
from tests.rounds import rest_slow

from tidelog.aof import durable, identity, segment
from tidelog.aof.errors import CorruptFrame, Damage, DoesNotFit, MissingSegment, NotAStore
from tidelog.aof.frame import Frame
from tidelog.aof.log import FSYNCED
from tidelog.aof.reading.reader import Epoch, Replay, Scan, segments
from tidelog.aof.reading.recovery import Recovered, read_all, read_beside, recover
from tidelog.aof.release import release
from tidelog.aof.start import Start, create_behind
from tidelog.crash.logs import UUID, data_only
from tidelog.disk.simulated import SimulatedDisk, Tree
from tidelog.engine.effects.effect import EPOCH, OPCODE, Effect

AOF = ROOT / identity.AOF
NOTHING = Start(0, 0, 0, 0, 0)


def starts_of(disk: SimulatedDisk) -> list[Start]:
    """A checkpoint at every frame end of a log, with the first at its very beginning."""
    found = [NOTHING]
    epochs: list[Epoch] = []
    for info in segments(disk, AOF, UUID):
        scan = Scan(disk, info)
        replay = Replay(lambda records: None)
        for fields in scan.tuples():
            replay.run(info.path, [fields])
            frame = Frame(*fields)
            epochs += replay.epochs
            replay.epochs.clear()
            header = info.header
            end = frame.offset + 48 + len(frame.body)
            lsn = frame.lsn + frame.count - 1
            found.append(
                Start(
                    *(lsn, frame.crc, header.first_lsn, end, header.incarnation),
                    epochs=tuple(epochs),
                    now=frame.now,
                )
            )
    return found


def a_log(seed: int, lives: int = 3, steps: int = 12) -> SimulatedDisk:
    """A few lives of one store; the last one was killed."""
    rng = random.Random(seed)
    disk, past = SimulatedDisk(seed), Past()
    for number in range(lives):
        life = Life(disk, past)
        life.add()
        for _ in range(steps):
            random_step(life, rng)
        if number + 1 < lives and rng.random() < 0.5:
            life.close()
        else:
            with life.log.lock:
                life.log.flush()
            if rng.random() < 0.5:
                life.wait(FSYNCED)
            disk.kill()
    return disk


Outcome = tuple[list[Effect], object]


def outcome(tree: Tree, start: Start | None) -> Outcome:
    """The records that recovery applies, its result or error, and the files that it leaves on the disk."""
    disk = SimulatedDisk.of(tree)
    records: list[Effect] = []
    try:
        recovered = recover(disk, ROOT, UUID, records.extend, start)
    except Damage as error:
        return [], (type(error), error.path, error.offset, error.reason)
    return records, (recovered._replace(records=0, read=()), disk.tree())


def test_every_frame_end_is_a_start() -> None:
    count = 0
    for seed in range(12):
        tree = a_log(seed).tree()
        records, whole = outcome(tree, None)
        for start in starts_of(SimulatedDisk.of(tree)):
            count += 1
            assert outcome(tree, start) == (records[start.lsn :], whole), start
    assert count > 200


def test_nothing_before_the_start_is_read() -> None:
    disk = a_log(5)
    tree = disk.tree()
    starts = starts_of(disk)
    for start in starts[1:]:
        disk = SimulatedDisk.of(tree)
        for info in segments(disk, AOF):
            if info.header.first_lsn < start.segment:
                disk.unlink(info.path)
        file = disk.open(AOF / segment.file_name(start.segment), write=True)
        # The last frame before the end of the log is looked for, and no other.
        before = starts[starts.index(start) - (start is starts[-1])]
        offset = before.offset if before.segment == start.segment else segment.HEADER_BYTES
        file.write(segment.HEADER_BYTES, bytes(offset - segment.HEADER_BYTES))
        records, _ = outcome(disk.tree(), start)
        assert len(records) == starts[-1].lsn - start.lsn


@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_damage_behind_the_start_has_the_same_verdict(seed: int) -> None:
    """Also torn tails, segments that are missing, and promises in DURABLE."""
    rng = random.Random(seed)
    tree = a_log(seed).tree()
    starts = starts_of(SimulatedDisk.of(tree))
    kinds = set()
    for _ in range(60):
        at = rng.randrange(len(starts) - 1)
        start, behind = starts[at], starts[rng.randrange(at + 1, len(starts))]
        disk = SimulatedDisk.of(tree)
        path = AOF / segment.file_name(behind.segment)
        file = disk.open(path, write=True)
        first = starts[starts.index(behind) - 1]
        begin = first.offset if first.segment == behind.segment else segment.HEADER_BYTES
        way = rng.random()
        if way < 0.5:
            offset = rng.randrange(begin, behind.offset)
            byte = file.pread(1, offset)[0]
            file.write(offset, bytes([byte ^ rng.randrange(1, 256)]))
        elif way < 0.7:
            file.truncate(rng.randrange(begin, behind.offset))
        elif way < 0.8 and behind.segment > start.lsn + 1:
            disk.unlink(path)
        else:
            file.write(begin, bytes(behind.offset - begin))
        if rng.random() < 0.3:
            disk.unlink(AOF / durable.NAME)
        image = disk.tree()
        records, whole = outcome(image, None)
        applied, found = outcome(image, start)
        kinds.add(whole[0] if isinstance(whole, tuple) and isinstance(whole[0], type) else None)
        if whole[0] is MissingSegment and found[0] is DoesNotFit:  # type: ignore[index]
            continue  # the segment in which the checkpoint says that its end lies
        assert (applied, found) == (records[start.lsn :], whole)
    assert {None, CorruptFrame} <= kinds


def test_position_of_the_log() -> None:
    """At every moment `position` is a place that recovery can start from, and `since` counts from it."""
    rng = random.Random(3)
    disk, past = SimulatedDisk(3), Past()
    taken: list[Start] = []
    for _ in range(4):
        life = Life(disk, past)
        log = life.log
        for _ in range(14):
            with log.lock:
                position = log.position()
            start = Start(*position, epochs=tuple(life.recovered.epochs))
            taken.append(start)
            assert position.lsn == log.written_lsn == log.next_lsn - 1
            log.sync_through(position.lsn)
            assert log.synced_lsn == position.lsn
            records: list[Effect] = []
            recovered = recover(
                SimulatedDisk.of(disk.killed().tree()), ROOT, UUID, records.extend, start
            )
            assert records == [] and recovered.last_lsn == position.lsn
            random_step(life, rng)
            with log.lock:
                nbytes, count = log.since(position)
                assert count == log.next_lsn - 1 - position.lsn
                assert (nbytes > 0) == (count > 0)
                bodies = nbytes
                log.flush()
                nbytes, _ = log.since(position)
                assert nbytes >= bodies
        life.close()
    records = []
    whole = recover(SimulatedDisk.of(disk.tree()), ROOT, UUID, records.extend)
    size = sum(end - segment.HEADER_BYTES for _, end in whole.read)
    again = Life(disk, past)
    for start in taken:
        found: list[Effect] = []
        recover(SimulatedDisk.of(disk.tree()), ROOT, UUID, found.extend, start)
        assert found == records[start.lsn :]
        nbytes, count = again.log.since(start)
        assert count == whole.last_lsn - start.lsn
        if start.lsn == 0:
            assert nbytes == size
        assert (nbytes > 0) == (count > 0) and nbytes <= size
    again.close()


# --- what is refused


CASE = 6  # a seed whose log has what the cases need


class Case:
    """A log of three lives, five segments at least, and a checkpoint in the middle of its second last segment."""

    def __init__(self) -> None:
        disk = SimulatedDisk.of(a_log(CASE).tree())
        disk.unlink(AOF / durable.NAME)
        self.disk = disk
        self.starts = starts_of(disk)
        self.infos = segments(disk, AOF)
        assert len(self.infos) >= 5
        held = self.infos[-2].header.first_lsn
        inside = [s for s in self.starts if s.segment == held]
        assert len(inside) >= 3
        self.start = inside[-2]
        self.before, self.behind = inside[-3], inside[-1]

    def remove(self, *numbers: int) -> None:
        for number in numbers:
            self.disk.unlink(self.infos[number].path)

    def write(self, number: int, offset: int, data: bytes) -> None:
        self.disk.open(self.infos[number].path, write=True).write(offset, data)

    def cut(self, number: int, offset: int) -> None:
        self.disk.open(self.infos[number].path, write=True).truncate(offset)

    def header_of(self, number: int, **fields: object) -> None:
        header = self.infos[number].header._replace(**fields)  # type: ignore[arg-type]
        self.write(number, 0, header.pack())


def nothing_left(case: Case) -> None:
    case.remove(*range(len(case.infos)))


def all_but_the_last(case: Case) -> None:
    case.remove(*range(len(case.infos) - 1))


def no_directory(case: Case) -> None:
    tree = {path: data for path, data in case.disk.tree().items() if not path.startswith(str(AOF))}
    case.disk = SimulatedDisk.of(tree)


def an_older_copy(case: Case) -> None:
    case.remove(-1)
    case.cut(-2, case.before.offset)


def an_older_copy_with_prepared_space(case: Case) -> None:
    case.remove(-1)
    case.cut(-2, case.before.offset)
    case.disk.open(case.infos[-2].path, write=True).fill(case.before.offset, 100_000)


def an_older_copy_without_the_segment(case: Case) -> None:
    case.remove(-1, -2)


def damage_before(case: Case) -> None:
    case.remove(-1)
    case.write(-2, case.before.offset, b"x" * (case.behind.offset - case.before.offset))


def other_checksum(case: Case) -> None:
    case.start = case.start._replace(crc=case.start.crc ^ 1)


def other_checksum_at_a_segments_end(case: Case) -> None:
    last = max(s.lsn for s in case.starts if s.segment == case.start.segment)
    (case.start,) = [s for s in case.starts if s.lsn == last]
    other_checksum(case)


def other_offset(case: Case) -> None:
    case.start = case.start._replace(offset=case.start.offset + 1)


def other_life(case: Case) -> None:
    case.start = case.start._replace(incarnation=4711)


OLDER = "the log ends with LSN {before}, but the checkpoint holds records through LSN {p}: aof/ is an older copy"
GAP = "the log begins with LSN {last}, but the checkpoint ends with LSN {p}: LSN {next} to"

# fmt: off
REFUSED: dict[str, tuple[Callable[[Case], object], type[Damage], str]] = {
    "empty aof": (nothing_left, DoesNotFit, "no segments, but the checkpoint holds records through LSN {p}"),
    "no aof": (no_directory, DoesNotFit, "the directory of the segments is missing"),
    "gap behind": (all_but_the_last, DoesNotFit, GAP),
    "its segment missing": (lambda case: case.remove(-2), DoesNotFit, "ends with LSN {p}, and the segment that"),
    "older copy": (an_older_copy, DoesNotFit, OLDER),
    "older copy, zeros": (an_older_copy_with_prepared_space, DoesNotFit, OLDER),
    "older copy, shorter": (an_older_copy_without_the_segment, DoesNotFit, "aof/ is an older copy"),
    "damage before": (damage_before, CorruptFrame, "checkpoint proves that records through LSN {p} existed"),
    "other checksum": (other_checksum, DoesNotFit, "different histories"),
    "other checksum, end": (other_checksum_at_a_segments_end, DoesNotFit, "in this log, but"),
    "other offset": (other_offset, DoesNotFit, "different histories"),
    "other life": (other_life, DoesNotFit, "the checkpoint has 0000000000001267: they are from different histories"),
}
# fmt: on


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_belong_together_is_refused(name: str) -> None:
    change, kind, text = REFUSED[name]
    case = Case()
    change(case)
    tree = case.disk.tree()
    start = case.start
    with pytest.raises(kind) as caught:
        recover(case.disk, ROOT, UUID, lambda records: pytest.fail("applied"), start)
    told = str(caught.value)
    fields = {"p": start.lsn, "next": start.lsn + 1, "before": case.before.lsn}
    assert text.format(**fields, last=case.infos[-1].header.first_lsn) in told
    assert str(AOF) in told and ", byte " in told and "\n" not in told
    advice = "tidelog repair" if kind is CorruptFrame else "tidelog snapshot restore"
    assert advice in told
    assert case.disk.tree() == tree
    with pytest.raises(kind):
        read_all(
            case.disk, AOF, UUID, lambda records: pytest.fail("applied"), start=start, live=True
        )


def test_a_log_without_its_beginning_and_without_a_checkpoint_is_refused() -> None:
    case = Case()
    case.remove(0)
    with pytest.raises(MissingSegment) as caught:
        recover(case.disk, ROOT, UUID, lambda records: pytest.fail("applied"))
    for text in (
        "/db/checkpoint/data.mdb",
        f"(LSN 1 expected, {case.infos[1].header.first_lsn} found)",
        "tidelog snapshot restore",
        "tidelog repair /db/aof",
    ):
        assert text in str(caught.value)


def test_the_last_frame_itself_may_be_damaged_where_the_next_proves_it() -> None:
    case = Case()
    case.write(-2, case.before.offset, b"x" * 20)
    records: list[Effect] = []
    recover(case.disk, ROOT, UUID, records.extend, case.start)
    assert len(records) == case.starts[-1].lsn - case.start.lsn


def test_a_large_last_frame_is_found_from_its_end() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add(3, 100_000)
    with life.log.lock:
        start = Start(*life.log.position())
    disk.kill()
    assert recover(disk, ROOT, UUID, lambda records: pytest.fail("applied"), start).last_lsn == 4


# --- release and the beginning of a restored log, with power lost at every operation


class AtEveryOperation:
    """Looks at what a power cut or a kill would leave before and after each operation of a disk."""

    def __init__(self, disk: SimulatedDisk, check: Callable[[SimulatedDisk], object]) -> None:
        self.disk, self.check = disk, check
        self.rng = random.Random(1)
        self.images = 0
        disk.before = lambda operation, path: self.look()

    def look(self) -> None:
        for image in [self.disk.killed(), *(self.disk.power_loss(self.rng) for _ in range(6))]:
            self.images += 1
            self.check(image)


def test_power_loss_while_segments_are_released() -> None:
    disk = SimulatedDisk.of(a_log(CASE).tree())
    records, _ = outcome(disk.tree(), None)
    names = [info.path.name for info in segments(disk, AOF)]
    start = starts_of(disk)[-4]
    whole = read_state(disk, start)

    def check(image: SimulatedDisk) -> None:
        left = [name for name in image.listdir(AOF) if segment.first_lsn_of(name) is not None]
        assert left == names[len(names) - len(left) :], "a gap"
        assert read_state(image, start) == whole

    watch = AtEveryOperation(disk, check)
    gone = release(disk, AOF, start.lsn, 0)
    watch.look()
    assert [path.name for path in gone] == [
        name for name in names if name < f"{start.segment:020d}"
    ]
    assert len(gone) >= 3 and watch.images > 30
    assert release(disk, AOF, start.lsn, 0) == []


def read_state(disk: SimulatedDisk, start: Start) -> tuple[list[Effect], Recovered]:
    disk = SimulatedDisk.of(disk.tree())
    records: list[Effect] = []
    recovered = recover(disk, ROOT, UUID, records.extend, start)
    return records, recovered


def test_what_is_released_and_what_stays() -> None:
    tree = a_log(CASE).tree()
    starts = starts_of(SimulatedDisk.of(tree))
    for start in starts:
        disk = SimulatedDisk.of(tree)
        infos = segments(disk, AOF)
        gone = release(disk, AOF, start.lsn, 0)
        assert gone == [i.path for i in infos if i.end is not None and i.end.lsn <= start.lsn]
        read_state(disk, start)
    sizes = [SimulatedDisk.of(tree).open(info.path).size() for info in infos]
    for keep in (1, sizes[-1], sizes[-1] + 1, sum(sizes[2:]), sum(sizes)):
        disk = SimulatedDisk.of(tree)
        gone = release(disk, AOF, starts[-1].lsn, keep)
        left = len(infos) - len(gone)
        assert left == len(infos) or sum(sizes[-left:]) >= keep
        assert left == 1 or sum(sizes[-left + 1 :]) < keep


def test_a_life_goes_on_after_a_release() -> None:
    rng = random.Random(2)
    disk, past = SimulatedDisk(2), Past()
    life = Life(disk, past)
    for turn in range(10):
        for _ in range(6):
            random_step(life, rng)
        with life.log.lock:
            start = Start(*life.log.position(), epochs=(Epoch(1, 1, 1),))
        life.log.sync_through(start.lsn)
        before = life.log.since(start)
        release(disk, AOF, start.lsn, 8000)
        assert life.log.since(start) == before == (0, 0)
    assert segments(disk, AOF)[0].header.first_lsn > 1
    life.add(2)
    records: list[Effect] = []
    recovered = recover(disk.killed(), ROOT, UUID, records.extend, start)
    assert data_only(records) == past.units[-1]
    assert recovered.epochs == [Epoch(1, 1, 1)] and recovered.last_lsn == start.lsn + 2


RESTORED = Start(1000, 0xABCD, 17, 4711, 99, epochs=(Epoch(1, 98, 1), Epoch(2, 99, 500)), now=5)


def test_power_loss_while_a_restored_log_is_begun() -> None:
    disk = SimulatedDisk()
    disk.mkdir(ROOT)
    disk.sync_directory(ROOT.parent)
    checkpoint = ROOT / "checkpoint"
    disk.mkdir(checkpoint)
    disk.sync_directory(ROOT)
    ready: list[bool] = []

    def check(image: SimulatedDisk) -> None:
        """No store at all, or one that is whole; never one that may be begun anew."""
        assert not identity.is_new(image, ROOT)
        try:
            assert identity.read(image, ROOT) == UUID
        except (Damage, NotAStore):
            assert not done
            ready.append(False)
            return
        ready.append(True)
        recovered = recover(image, ROOT, UUID, lambda records: pytest.fail("applied"), RESTORED)
        assert (recovered.last_lsn, recovered.crc, recovered.now) == (1000, 0xABCD, 5)
        assert recovered.epochs == list(RESTORED.epochs)
        with pytest.raises(MissingSegment):
            recover(image, ROOT, UUID, lambda records: None)

    done = False
    watch = AtEveryOperation(disk, check)
    create_behind(disk, ROOT, UUID, RESTORED, 1_700_000_000_000)
    done = True
    watch.look()
    assert ready.count(True) > 3 and ready.count(False) > 30


def test_lives_after_a_restore() -> None:
    disk, past = SimulatedDisk(), Past()
    disk.mkdir(ROOT)
    create_behind(disk, ROOT, UUID, RESTORED, 1_700_000_000_000)
    start = RESTORED
    rng = random.Random(6)
    records: list[Effect] = []
    for turn in range(3):
        life = Life(disk, past, start=start)
        assert life.log.epoch == 3 + turn
        for _ in range(5):
            random_step(life, rng)
        life.wait(FSYNCED)
        disk = disk.power_loss(rng)
        records.clear()
        recovered = recover(SimulatedDisk.of(disk.tree()), ROOT, UUID, records.extend, start)
        epochs = [record for record in records if record[0] & OPCODE == EPOCH]
        assert len(epochs) == turn + 1 and len(recovered.epochs) == turn + 3
        assert recovered.last_lsn == 1000 + len(records)
    assert [info.header.first_lsn for info in segments(disk, AOF)][0] == 1001


# --- beside a writer


class Beside:
    """A reader's disk on which, at the n-th opening of a segment, the writer makes a checkpoint and releases."""

    def __init__(self, at: int) -> None:
        self.disk = SimulatedDisk.of(a_log(CASE).tree())
        self.starts = starts_of(self.disk)
        self.newest = self.starts[3]
        self.left = at
        self.begun: list[Start] = []
        self.records: list[Effect] = []
        self.disk.before = self.operation

    def operation(self, operation: str, path: Path) -> None:
        if operation == "open" and path.suffix == segment.SUFFIX:
            self.left -= 1
            if self.left == 0:
                self.disk.before = None
                self.newest = self.starts[-2]
                assert len(release(self.disk, AOF, self.newest.lsn, 0)) >= 3

    def begin(self) -> tuple[Start, Callable[[list[Effect]], object]]:
        self.begun.append(self.newest)
        self.records.clear()
        return self.newest, self.records.extend


def test_a_reader_begins_again_when_segments_vanish() -> None:
    again = 0
    for at in range(1, 20):
        beside = Beside(at)
        scan, replay = read_beside(beside.disk, AOF, UUID, beside.begin)
        again += len(beside.begun) > 1
        assert scan is not None and scan.lsn - 1 == beside.starts[-1].lsn
        assert len(beside.records) == beside.starts[-1].lsn - beside.begun[-1].lsn == replay.records
    assert again > 5


def test_a_reader_does_not_begin_again_for_damage() -> None:
    beside = Beside(0)
    for info in segments(beside.disk, AOF)[:-1]:
        beside.disk.unlink(info.path)
    with pytest.raises(DoesNotFit):
        read_beside(beside.disk, AOF, UUID, beside.begin)
    assert len(beside.begun) == 2


def test_the_list_of_segments_is_read_again_when_one_of_them_vanished() -> None:
    disk = SimulatedDisk.of(a_log(CASE).tree())
    paths = [info.path for info in segments(disk, AOF)]

    def before(operation: str, path: Path) -> None:
        if operation == "open":
            disk.before = None
            disk.unlink(path)

    disk.before = before
    assert [info.path for info in segments(disk, AOF)] == paths[1:]
