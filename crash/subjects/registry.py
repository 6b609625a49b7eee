"""The subjects by name."""

from __future__ import annotations

from typing import Final

from tidelog.crash.subjects import of_lmdb, of_redis, of_sqlite, of_tidelog
from tidelog.crash.subjects.subject import Subject

GROUPS: Final[dict[str, tuple[Subject, ...]]] = {
    "sqlite3": of_sqlite.SUBJECTS,
    "lmdb": of_lmdb.SUBJECTS,
    "redis-server": of_redis.SUBJECTS,
    "tidelog": of_tidelog.SUBJECTS,
}
SUBJECTS: Final = {subject.name: subject for group in GROUPS.values() for subject in group}
