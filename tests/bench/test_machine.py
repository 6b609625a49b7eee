"""The head of the report: the interpreter, and how it was built."""

import platform
import sysconfig
from pathlib import Path

import pytest
from bench import machine


@pytest.mark.parametrize(
    ("arguments", "flag", "built"),
    [
        ("'--enable-optimizations' '--with-lto'", "-fprofile-use -fprofile-correction", "yes"),
        ("'--enable-shared' '--prefix=/usr'", "", "yes"),  # Debian's
        ("'--enable-shared'", "-fprofile-use -fprofile-correction", "no"),
        (None, None, "unknown"),
    ],
)
def test_a_build_with_pgo_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, arguments: str | None, flag: str | None, built: str
) -> None:
    found = {"CONFIG_ARGS": arguments, "PGO_PROF_USE_FLAG": flag}
    monkeypatch.setattr(sysconfig, "get_config_var", found.get)
    assert machine.optimised() == built
    expected = {"yes": "built with PGO", "no": "built without PGO", "unknown": "PGO unknown"}
    assert machine.interpreter().endswith(f"{platform.python_version()}, {expected[built]}")


def test_the_facts(tmp_path: Path) -> None:
    facts = machine.describe(tmp_path)
    assert facts["python"] == machine.interpreter()
    assert facts["file system"] not in ("", "unknown")
