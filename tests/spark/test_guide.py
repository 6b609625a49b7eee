"""The examples of the guide and of README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
GUIDE, README = ROOT / "docs/guides/spark.md", ROOT / "README.md"


def test_examples(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`session` in the guide returns the session that runs already."""
    # Spark's processes have the directory in which the session was started.
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))
    code = re.sub('"(orders|bills)-data"', rf'"{tmp_path}/\1-data"', code)
    names: dict[str, Any] = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    assert capsys.readouterr().out.split() == ["3", "31.5", "3", "3", "3", "3"]
    (snippet,) = re.findall(r"`(spark\.read\..*?)`", README.read_text(), re.S)
    frame = eval(snippet.replace('"stock-data"', f'"{tmp_path}/orders-data"'), {"spark": spark})
    assert frame.columns[:3] == ["db", "stream", "id"]  # a count would be one more query
