"""`pyspark_tidelog`: Spark imports it with all other sources, so it always imports, and it loads little."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Stands for an environment in which a library is missing or broken.
BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ERROR(name)
sys.meta_path.insert(0, Block())
import pyspark_tidelog
"""


def run(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("error", ["ModuleNotFoundError", "ImportError", "RuntimeError"])
def test_it_is_empty_without_pyspark(error: str) -> None:
    source = f"BLOCKED = {{'pyspark'}}\nERROR = {error}\n{BLOCKED}"
    assert run(source + "print(hasattr(pyspark_tidelog, 'DefaultSource'))") == "False\n"


def test_it_imports_without_pyarrow_redis_and_tidelog() -> None:
    source = f"BLOCKED = {{'pyarrow', 'redis', 'tidelog'}}\nERROR = ImportError\n{BLOCKED}"
    assert run(source + "print(pyspark_tidelog.DefaultSource.name())") == "tidelog\n"


def test_it_loads_neither_pyarrow_nor_tidelog() -> None:
    source = (
        "import sys, pyspark.sql.datasource\nbefore = set(sys.modules)\nimport pyspark_tidelog\n"
    )
    assert run(source + "print(set(sys.modules) - before)") == "{'pyspark_tidelog'}\n"


def test_it_makes_the_source_itself() -> None:
    from pyspark_tidelog import DefaultSource
    from tidelog.spark.source.datasource import TidelogDataSource

    assert type(DefaultSource({"path": "x"})) is TidelogDataSource
    assert DefaultSource.name() == TidelogDataSource.name()
