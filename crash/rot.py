"""Rot: damages the files of a recorded store, and sees what the store makes of it.

Damage may cost data, but never silently: every answer is right, or a clear error of tidelog. The store must delete
nothing else, and the process must neither die nor hang. A forked process opens the stores, since LMDB reads its file
through a mapping.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import AofError
from tidelog.crash.damage import CHECKPOINT_DIRECTORY, Damage, Damages, damaged_in
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Finding, Report
from tidelog.crash.forked import Died, Forked
from tidelog.crash.model import DATABASES, Contents, place
from tidelog.crash.oracle import Fault, Kind, Oracle, difference
from tidelog.crash.removed import deletion
from tidelog.crash.served import STORE, Still, content_of, keys_of, open_on
from tidelog.crash.states import cut_at, fingerprint
from tidelog.crash.trace import Promised, Trace, Tree, lay, pack, tree_of
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore
from tidelog.store.errors import TidelogError

ROT: Final = "rot"
SNAPSHOTS: Final = f"{STORE}/snapshots"
RESTORED: Final = "restored"
# A store makes data.mdb as long as its damaged meta page says, with a hole of many gigabytes. No file of these lives is
# longer than this.
FILE_BYTES_MAX: Final = 64 << 20


class Answers(NamedTuple):
    """The answers of a damaged store, or of a snapshot of it.

    contents   the keys that were read
    told       key -> error of a read; None for errors of the whole store. Each is a clear error of tidelog
    unclear    an error that is not tidelog's, or ""
    deleted    what was removed beside the damage, or ""
    """

    contents: Contents
    told: dict[bytes | None, str]
    unclear: str
    deleted: str


class Question(NamedTuple):
    """An image, and the name of the snapshot of it that is to be restored; "" to open the store itself."""

    image: Tree
    snapshot: str


class Examiner:
    """Examines damaged images below `scratch`, in a forked process."""

    def __init__(self, scratch: Path) -> None:
        self._disk = RealDisk()
        self._place = scratch / ROT
        self._disk.mkdir(self._place)
        self._forked: Forked[tuple[int, Question], Answers] = Forked(self._examine)
        self._asked = 0

    def ask(self, question: Question) -> Answers | Died:
        self._asked += 1
        return self._forked.ask((self._asked, question))

    def close(self) -> None:
        self._forked.close()
        recipe.remove_tree(self._disk, self._place)

    def _examine(self, numbered: tuple[int, Question]) -> Answers:
        number, question = numbered
        # A process that died left its directory behind, so each question has one of its own.
        root = self._place / str(number)
        self._disk.mkdir(root)
        lay(self._disk, root, question.image)
        answers = examine(RealDisk(), root, question)
        recipe.remove_tree(self._disk, root)
        return answers


def examine(disk: Disk, root: Path, question: Question) -> Answers:
    """Open a store, or restore one from its snapshot, and read all of it."""
    contents: Contents = {}
    told: dict[bytes | None, str] = {}
    unclear = ""
    opened = False

    def say(key: bytes | None, error: Exception) -> None:
        nonlocal unclear
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, (TidelogError, AofError)) and str(error):
            told[key] = text
        else:
            unclear = unclear or text

    try:
        if question.snapshot:
            disk.mkdir(root / RESTORED)
            restore(disk, root / SNAPSHOTS / question.snapshot, root / RESTORED / STORE)
            root = root / RESTORED
        with open_on(disk, root, "no", Still()) as db:
            opened = True
            for number in range(DATABASES):
                view = db.db(number)
                for key in keys_of(view):
                    name = place(number, key)
                    try:
                        contents[name] = content_of(view, key)
                    except Exception as error:
                        say(name, error)
    except Exception as error:
        say(None, error)
    deleted = ""
    if not question.snapshot:
        deleted = deletion(question.image, tree_of(disk, root, FILE_BYTES_MAX), opened)
    return Answers(contents, told, unclear, deleted)


def judge(
    oracle: Oracle, promised: Promised, answers: Answers | Died, units: int | None
) -> Fault | None:
    """The fault of a damaged store that answered this. `units`: those of a snapshot; None for the store itself."""
    if isinstance(answers, Died):
        return Fault(Kind.DIED, answers.words)
    if answers.unclear:
        return Fault(Kind.DIED, f"an error that is not tidelog's: {answers.unclear}")
    if answers.deleted:
        return Fault(Kind.LOST, answers.deleted)
    if None in answers.told and not answers.contents:
        return None
    least, most = (promised.fsynced, promised.issued) if units is None else (units, units)
    possible = [oracle.after(count) for count in range(most, least - 1, -1)]
    for expected in possible:
        if _agrees(answers, expected):
            return None
    found = {**possible[0], **answers.contents}
    for key in possible[0].keys() - answers.contents.keys() - answers.told.keys():
        if None not in answers.told:
            found.pop(key)
    return Fault(
        Kind.WRONG,
        f"other data without an error; beside those after {most} units: {difference(found, possible[0])}",
    )


def _agrees(answers: Answers, expected: Contents) -> bool:
    read, told = answers.contents, answers.told
    if any(key not in expected or expected[key] != value for key, value in read.items()):
        return False
    missing = expected.keys() - read.keys()
    return None in told or missing == told.keys()


class Effort(NamedTuple):
    """How many damages to try of one image."""

    drawn: int = 310


class Rotter:
    """Damages the images of traces, and collects counts and findings."""

    def __init__(
        self,
        scratch: Path,
        rng: random.Random,
        effort: Effort = Effort(),
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.report = Report()
        self._examiner = Examiner(scratch)
        self._rng = rng
        self._effort = effort
        self._stopping = stopping

    def close(self) -> None:
        self._examiner.close()

    def rot(self, trace: Trace, time: int) -> None:
        """Damage what is there after `time` operations of a trace."""
        counts = self.report.of(ROT)
        oracle = Oracle(trace.units)
        cut = cut_at(trace, time)
        image = cut.image(cut.whole)
        if not any(image.values()):
            raise BenchError(
                f"a life left no file that can be damaged (seed {trace.about['seed']})"
            )
        damages = Damages(trace, image, time)
        counts.there += damages.there
        seen: set[bytes] = set()
        for _ in range(self._effort.drawn):
            if self._stopping():
                return
            damage, rotten = damages.draw(self._rng)
            counts.tried += 1
            name = fingerprint(rotten)
            if name in seen:
                continue
            seen.add(name)
            counts.distinct += 1
            counts.rows += damage.path.startswith((CHECKPOINT_DIRECTORY, SNAPSHOTS))
            fault, told = examined(self._examiner, trace, oracle, cut.promised, damage, rotten)
            counts.told += told
            if fault is not None:
                counts.count(fault.kind)
                self.report.findings.append(
                    Finding(
                        layer=ROT,
                        trace=pack(trace),
                        time=time,
                        state=cut.whole,
                        power=False,
                        kind=fault.kind.value,
                        words=fault.words,
                        damage=damage,
                    )
                )
                return


def examined(
    examiner: Examiner,
    trace: Trace,
    oracle: Oracle,
    promised: Promised,
    damage: Damage,
    image: Tree,
) -> tuple[Fault | None, bool]:
    """The fault that a damage brings, and whether the store told of the damage by an error."""
    units: dict[str, int] = trace.about.get("snapshots", {})
    hurt = [
        name
        for name in units
        for path in {damage.path, damage.other}
        if path.startswith(f"{SNAPSHOTS}/{name}/") or path == f"{SNAPSHOTS}/{name}"
    ]
    told = False
    for snapshot in (*hurt, ""):
        answers = examiner.ask(Question(image, snapshot))
        fault = judge(oracle, promised, answers, units[snapshot] if snapshot else None)
        if fault is not None:
            return fault, told
        told = told or isinstance(answers, Answers) and bool(answers.told)
    return None, told


def try_again(scratch: Path, trace: Trace, finding: Finding) -> Fault | None:
    """The fault of one damage again."""
    assert finding.damage is not None
    examiner = Examiner(scratch)
    try:
        promised = cut_at(trace, finding.time).promised
        image = damaged_in(trace, finding.time, finding.damage)
        fault, _ = examined(examiner, trace, Oracle(trace.units), promised, finding.damage, image)
    finally:
        examiner.close()
    return fault
