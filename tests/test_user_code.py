"""Code of users passes pyright, too: the test of typed use, strictly, and the examples of the guides.

mypy checks the whole repository and so does not see how the other checker reads the public types. Wrong code must be
found, or the check proves nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TYPED = ROOT / "tests/api/test_typed_use.py"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md")))
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
# Examples of some pages build on those before, or are files of their own.
PARTS = ("reportUndefinedVariable", "reportMissingImports")
REDIS = ("reportIndexIssue",)  # redis-py gives one type to the replies of RESP2 and RESP3
# Examples show one call after the other, and know that the job is there.
THERE = ("MemberAccess", "Subscript", "Operand", "ContextManager", "Iterable")
WRONG = """
import tidelog

with tidelog.open("data") as db:
    text: str = db.get("k") or ""
    db.at("fsynced", replica=2)
"""


def errors(place: Path, strict: bool) -> list[str]:
    """The errors of pyright in all files of a directory."""
    config: dict[str, Any] = {
        "include": [str(place)],
        "extraPaths": [str(ROOT / "src"), str(ROOT)],
        "typeCheckingMode": "strict" if strict else "standard",
        "pythonVersion": "3.11",
    }
    if not strict:
        config |= dict.fromkeys(
            (*PARTS, *REDIS, *(f"reportOptional{name}" for name in THERE)), "none"
        )
    (place / "pyrightconfig.json").write_text(json.dumps(config))
    words = ["-m", "basedpyright", "-p", str(place), "--pythonpath", sys.executable, "--outputjson"]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=250)
    report = json.loads(ran.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(place.glob("*.py")))
    return [
        f"{Path(found['file']).name}:{found['range']['start']['line'] + 1}: {found['message']}"
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    ]


def test_typed_use_is_strictly_typed(tmp_path: Path) -> None:
    shutil.copy(TYPED, tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    found = errors(tmp_path, strict=True)
    lines = [error.partition(": ")[0] for error in found]
    assert lines == ["wrong.py:5", "wrong.py:6"], "\n".join(found)


def test_the_examples_of_the_guides(tmp_path: Path) -> None:
    for page in PAGES:
        text = page.read_text()
        for example in EXAMPLE.finditer(text):
            line = text[: example.start()].count("\n") + 1
            name = f"{page.stem.replace('-', '_')}_{line}.py"
            (tmp_path / name).write_text(example[1])
    found = errors(tmp_path, strict=False)
    assert not found, "\n".join(found)
