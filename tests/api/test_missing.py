"""A method that redis-py has and tidelog has not: one sentence says so, and code that probes for names still works."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import redis
from tests import inside

import tidelog
from tidelog.api.aio import AsyncStore
from tidelog.api.missing import INSTEAD
from tidelog.api.pipeline import Pipeline


@pytest.fixture
def faces(tmp_path: Path) -> Any:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        yield [db, AsyncStore(inside.core(db), decode=False), db.pipeline()]


def test_every_name_of_redis_pys_is_a_method_or_is_answered(faces: Any) -> None:
    for face in faces:
        for name in dir(redis.Redis):
            if name.startswith("_") or hasattr(type(face), name) or name in vars(face):
                continue
            with pytest.raises(AttributeError) as missing:
                getattr(face, name)
            text = str(missing.value)
            assert text.startswith(f"tidelog's {type(face).__name__} has no {name!r}: ")
            assert "\n" not in text and missing.value.name == name and missing.value.obj is face


def test_what_is_said_to_do_instead_is_there(faces: Any) -> None:
    db, _, _ = faces
    for name, advice in INSTEAD.items():
        assert not hasattr(tidelog.Store, name), f"{name} is there now"
        assert hasattr(redis.Redis, name) or name in ("psubscribe", "subscribe")
        for part in ("checkpoint()", "snapshot()", "db.queue", "tidelog.serve"):
            if part in advice:
                owner = tidelog if part.startswith("tidelog.") else db
                assert callable(getattr(owner, part.rpartition(".")[2].removesuffix("()")))


def test_what_probes_an_object_goes_on_as_before(faces: Any) -> None:
    for face in faces:
        assert not hasattr(face, "hset") and not hasattr(face, "__array__")
        assert getattr(face, "hset", 7) == 7
        with pytest.raises(TypeError):
            pickle.dumps(face)
        with pytest.raises(TypeError):
            copy.copy(face)
        with pytest.raises(TypeError):
            copy.deepcopy(face)
        assert dict(inspect.getmembers(face)) and not inspect.isawaitable(face)
        assert not inspect.iscoroutinefunction(face)
        with pytest.raises(AttributeError, match="object has no attribute '_nothing'"):
            face._nothing
        with pytest.raises(AttributeError):  # an object that was never initialised
            inside.core(object.__new__(type(face)))
        assert "hset" not in dir(face)
        fake = mock.create_autospec(face, instance=True)
        assert fake.xlen is not None
        with pytest.raises(AttributeError):
            fake.hset


def test_a_face_that_is_asked_for_what_it_has_pays_nothing() -> None:
    """A class with `__getattr__` makes every attribute of its objects slower to read."""
    for kind in (tidelog.Store, AsyncStore, Pipeline):
        assert kind.__getattribute__ is object.__getattribute__
        assert not hasattr(kind, "__getattr__")
