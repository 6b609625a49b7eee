"""Run: the tasks of an export, in processes of this machine or in Spark's workers.

A task returns its files, or the error that it met; in Spark, it raises one that may heal. Only text and numbers cross
the border: in Spark, no row passes through the JVM.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.errors import TidelogSparkError, from_spark, reason
from tidelog.spark.exports.seal import ExportFile
from tidelog.spark.exports.target import IO
from tidelog.spark.exports.task import Task, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Advance = Callable[[int], object]
Runner = Callable[[Sequence[Task], Advance], list[list[ExportFile]]]

POLL_S: Final = 0.2
_TASK_FAILED: Final = "TIDELOG_TASK"


def in_processes(workers: int | None = None) -> Runner:
    """Runs tasks in processes of this machine, as many as it has processors; a single task runs in this one."""

    def run_all(tasks: Sequence[Task], advance: Advance) -> list[list[ExportFile]]:
        if len(tasks) < 2:
            return [_advanced(run(task), advance) for task in tasks]
        count = min(workers or len(os.sched_getaffinity(0)), len(tasks))
        with ProcessPoolExecutor(
            count, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent
        ) as pool:
            futures = [pool.submit(run, task) for task in tasks]
            for future in futures:
                future.add_done_callback(lambda done: advance(1))
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                failed = next((each for each in futures if each.done() and each.exception()), None)
                if failed is not None:
                    failed.result()
                return [future.result() for future in futures]
            except BrokenProcessPool:
                raise TidelogSparkError(
                    _TASK_FAILED,
                    "a process of the export was killed, perhaps for lack of memory. Run the same command again: it "
                    "goes on with the files that are missing",
                ) from None
            finally:
                pool.shutdown(cancel_futures=True)

    return run_all


def _end_with_parent() -> None:
    """End this process when its parent has ended: a killed export must not leave processes that write."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="tidelog-parent", daemon=True).start()


def in_spark(spark: SparkSession) -> Runner:
    """Runs tasks in the workers of a Spark session. Spark tries a task again if its worker was lost, or if it met
    an error of reading or writing."""

    def run_all(tasks: Sequence[Task], advance: Advance) -> list[list[ExportFile]]:
        if not tasks:
            return []
        context = spark.sparkContext
        group = f"tidelog-export-{tasks[0].plan[:12]}"
        context.setJobGroup(group, "tidelog export")
        with _watched(context, group, len(tasks), advance):
            try:
                rdd = context.parallelize(list(tasks), len(tasks))
                found: list[Any] = rdd.map(_told).collect()
            except Exception as error:
                raise _failed(error) from None
        for each in found:
            if isinstance(each, TidelogSparkError):
                raise each
        return found

    return run_all


def _told(task: Task) -> list[ExportFile] | TidelogSparkError:
    """Run a task and return its error: an exception would arrive wrapped in the traceback of Spark's worker.

    An error of reading or writing is raised, so that Spark tries the task again: it may heal.
    """
    try:
        return run(task)
    except TidelogSparkError as error:
        if error.code == IO:
            raise
        return error


def _failed(error: Exception) -> TidelogSparkError:
    told = from_spark(str(error))
    if told.code == IO:
        return told
    return TidelogSparkError(
        _TASK_FAILED,
        f"Spark could not run the export ({reason(str(error))}). Run the same command again: it goes on with the files "
        "that are missing",
    )


class _watched:
    """Calls `advance` while Spark works on a job group."""

    def __init__(self, context: Any, group: str, total: int, advance: Advance) -> None:
        self._context, self._group, self._total, self._advance = context, group, total, advance
        self._done = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tidelog-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if kind is None:
            self._advance(self._total - self._done)

    def _watch(self) -> None:
        tracker = self._context.statusTracker()
        while not self._ended.wait(POLL_S):
            done = sum(self._completed(tracker))
            self._advance(done - self._done)
            self._done = done

    def _completed(self, tracker: Any) -> Iterator[int]:
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                told = tracker.getStageInfo(stage)
                if told is not None:
                    yield told.numCompletedTasks


def _advanced(found: list[ExportFile], advance: Advance) -> list[ExportFile]:
    advance(1)
    return found
