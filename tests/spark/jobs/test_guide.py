"""The examples of the guide on analyses run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[3] / "docs/guides/spark-analysis.md"


def test_examples(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`session` in the guide returns the session that runs already, with the directory in which that was started."""
    text = GUIDE.read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    names: dict[str, Any] = {}
    exec(compile(code.replace('"shop-data"', f'"{tmp_path}/shop-data"'), str(GUIDE), "exec"), names)
    told = re.findall(r"\bprint\(.*\) +# (.*)$", code, re.M)
    assert capsys.readouterr().out.splitlines() == "; ".join(told).split("; ")


def test_every_analysis_is_in_the_guide() -> None:
    text = GUIDE.read_text()
    for module in (Path(__file__).parents[3] / "spark/jobs").glob("*.py"):
        if module.stem in ("__init__", "measures"):
            continue
        for name in re.findall(r"^def ([a-z]\w+)\(", module.read_text(), re.M):
            assert f"{module.stem}.{name}`" in text or name == "streams_of"
