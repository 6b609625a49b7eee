"""Errors of the crash bench. A finding is no error: it is a result (crash/explore.py)."""

from __future__ import annotations


class CrashError(Exception):
    """The base of the errors below."""


class BadTrace(CrashError):
    """A file is not a whole trace of this version. The text says which file, what is wrong, and what to do."""


class BadFinding(CrashError):
    """A directory does not hold a finding that can be replayed."""


class WrongId(Exception):
    """The store gave an entry or a job an ID that is not greater than all earlier ones of its stream or queue."""


class BenchError(CrashError):
    """The bench itself, or a workload without any crash, does not do what it must. Nothing was proven."""


class Mismatch(BenchError):
    """A store is wrong without any crash: a finding, although no crash proves anything then."""
