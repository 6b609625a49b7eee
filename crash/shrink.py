"""Shrinking: makes a finding smaller by delta debugging, first the steps of its workload, then the lost sectors.

A smaller workload is recorded and explored anew, with the same seed. It counts if a fault of the same kind is found. Of
the state, whatever can be as without a crash becomes so. The result is a finding of its own, as good as the first.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from tidelog.aof.identity import CHECKPOINT
from tidelog.crash import killed, logs, queues, rot, served, servers, workloads
from tidelog.crash.afterwards import AFTERWARDS
from tidelog.crash.calls import CALLS, Calling
from tidelog.crash.errors import CrashError
from tidelog.crash.explore import DOUBLE, Effort, Explorer, Finding, try_again
from tidelog.crash.full import FULL, Filling
from tidelog.crash.injected import ERRORS, OnDisk, Suffering, fault_of, find_again
from tidelog.crash.injector import KILLS
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Fault, Served
from tidelog.crash.served import STORE, Files, Memory, Stage
from tidelog.crash.states import cut_at
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import Mkdir, Promised, Trace, Tree, unpack
from tidelog.crash.traced import BY, Tracing

# Several findings, because the first one may be of another kind.
EFFORT: Final = Effort(drawn=12, exhaustive=64, double=0, killed=0, findings=20)

T = TypeVar("T")


def stage_for(trace: Trace, scratch: Path) -> Stage:
    """Where the disks of a trace are laid out: in memory, unless it has a checkpoint."""
    checkpoint = f"{STORE}/{CHECKPOINT}"
    made = any(isinstance(each, Mkdir) and each.name == CHECKPOINT for each in trace.operations)
    return Files(scratch) if made or checkpoint in trace.base else Memory()


def serve_for(finding: Finding) -> Callable[[Stage, Tree], Served]:
    """The function that opens a state of a finding and reads it."""
    others = {logs.LOG: logs.serve, queues.QUEUES: queues.serve}
    return others.get(finding.layer, served.serve)


def suffering(finding: Finding, scene: Scene, scratch: Path) -> Suffering:
    """A way to run a scene with the trouble of a finding."""
    trouble = finding.trouble
    assert trouble is not None
    if finding.layer == CALLS:
        about = unpack(finding.trace, "the trace of the finding").about
        return (Tracing if about["by"] == BY else Calling)(scene, trouble.below, scratch)
    if finding.layer == FULL:
        return Filling(scene, scratch)
    return OnDisk(scene, scratch, trouble.files)


def tried_again(finding: Finding, trace: Trace, scratch: Path) -> Fault | None:
    """The fault of a finding, tried again. `scratch` is an existing empty directory."""
    if finding.damage is not None:
        return rot.try_again(scratch, trace, finding)
    if finding.layer == servers.SERVERS:
        return servers.try_again(scratch, trace, finding)
    if finding.trouble is not None:
        if finding.trouble.how in KILLS:
            return killed.try_again(scratch, trace, finding)
        with closing(suffering(finding, Scene.of(trace.about), scratch)) as found:
            return fault_of(found.ask(finding.trouble))
    stage = stage_for(trace, scratch)
    try:
        return try_again(stage, trace, finding, serve_for(finding))[0]
    finally:
        stage.clear()


def shrink(finding: Finding, scratch: Path, seconds: float) -> Finding:
    """A smaller finding of the same kind; the same one if there is none. Ends after about `seconds`.

    scratch   an existing empty directory
    """
    end = time.monotonic() + seconds
    stopping = lambda: time.monotonic() >= end  # noqa: E731
    if finding.layer in (ERRORS, CALLS, FULL, killed.KILL):
        return _fewer_steps_run(finding, scratch, stopping)
    if finding.damage is not None or finding.trouble is not None:
        return finding  # one damage, or an error of a workload that has no steps
    trace = unpack(finding.trace, "the trace of the finding")
    stage = stage_for(trace, scratch)
    try:
        if finding.layer != DOUBLE and "steps" in trace.about:
            finding = _fewer_steps(finding, trace, stage, stopping)
        return _fewer_losses(finding, stage, stopping)
    finally:
        stage.clear()


def _fewer_steps(
    finding: Finding, trace: Trace, stage: Stage, stopping: Callable[[], bool]
) -> Finding:
    found = finding
    first = trace.operations[0]
    assert isinstance(first, Promised)
    before = trace.units[: first.issued]

    effort = EFFORT._replace(again=float(finding.words.startswith(AFTERWARDS)))

    def fails(steps: list[object]) -> bool:
        nonlocal found
        others = {logs.LOG: logs.record, queues.QUEUES: queues.record}
        record = others.get(finding.layer, workloads.record)
        try:
            smaller = record(
                stage,
                str(trace.about["policy"]),
                [list(each) for each in steps if isinstance(each, list)],
                trace.about,
                trace.base,
                before,
            )
        except CrashError:
            return False  # another fault, which needs no crash
        explorer = Explorer(
            stage, random.Random(1), effort, finding.layer, stopping, serve_for(finding)
        )
        explorer.explore(smaller)
        for each in explorer.report.findings:
            if each.kind == finding.kind:
                found = each
                return True
        return False

    minimise(trace.about["steps"], fails, stopping)
    return found


def _fewer_steps_run(finding: Finding, scratch: Path, stopping: Callable[[], bool]) -> Finding:
    """The same of a workload that is run anew for each error and each kill."""
    scene = Scene.of(unpack(finding.trace, "the trace of the finding").about)
    found = finding

    def again(smaller: Scene) -> Finding | None:
        if finding.layer == killed.KILL:
            return killed.find_again(smaller, found, scratch, stopping)
        with closing(suffering(found, smaller, scratch)) as each:
            return find_again(each, found, stopping)

    def fails(steps: list[tuple[int, Step]]) -> bool:
        nonlocal found
        first, second = ([step for life, step in steps if life == number] for number in (0, 1))
        smaller = again(scene._replace(lives=(first, second)))
        if smaller is None:
            return False
        found = smaller
        return True

    steps = [(life, step) for life, each in enumerate(scene.lives) for step in each]
    minimise(steps, fails, stopping)
    return found


def _fewer_losses(finding: Finding, stage: Stage, stopping: Callable[[], bool]) -> Finding:
    trace = unpack(finding.trace, "the trace of the finding")
    whole = cut_at(trace, finding.time).whole
    lost = [i for i, option in enumerate(finding.state) if option != whole[i]]

    def with_lost(places: Sequence[int]) -> Finding:
        kept = set(places)
        state = tuple(finding.state[i] if i in kept else now for i, now in enumerate(whole))
        return finding._replace(state=state)

    def fails(places: list[int]) -> bool:
        fault, _ = try_again(stage, trace, with_lost(places), serve_for(finding))
        return fault is not None and fault.kind.value == finding.kind

    smaller = with_lost(minimise(lost, fails, stopping))
    fault, _ = try_again(stage, trace, smaller, serve_for(finding))
    return finding if fault is None else smaller._replace(words=fault.words)


def minimise(
    items: Sequence[T], fails: Callable[[list[T]], bool], stopping: Callable[[], bool]
) -> list[T]:
    """A part of `items` that still fails, and of which no single item can be left out, unless the time ran out."""
    kept = list(items)
    size = len(kept)
    while size >= 1:
        at = 0
        while at < len(kept):
            if stopping():
                return kept
            less = kept[:at] + kept[at + size :]
            if fails(less):
                kept = less
            else:
                at += size
        size //= 2
    return kept
