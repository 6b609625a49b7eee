"""CONTRIBUTING.md, the workflow, the forms and the hooks name what exists: targets, folders, programs, pages."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
PROGRAMS = Path(sys.executable).parent
WORKFLOW = ROOT / ".github/workflows/ci.yml"
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
# A pull request of this repository is read by people alone: no schema.
SCHEMAS = [(WORKFLOW, "github-workflows"), *((form, "github-issue-forms") for form in FORMS)]


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def target(command: str) -> str:
    """The target of a call of make that names one."""
    words = shlex.split(command)
    assert words[0] == "make", command
    return words[1]


def runs() -> Iterator[str]:
    """Each command of the workflow, with the values of its matrix."""
    for job in read(WORKFLOW)["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                matrix = job["strategy"]["matrix"]
                found = re.search(r"\${{ matrix\.(\w+) }}", step["run"])
                values = matrix[found[1]] if found else [""]
                yield from (step["run"].replace(found[0] if found else "", v) for v in values)


def test_the_page_names_targets_of_the_makefile() -> None:
    commands = re.findall(r"`(make [a-z-]+)|^(make [a-z-]+)", PAGE, re.M)
    named = {target(one or other) for one, other in commands}
    assert {"test", "check", "generate", "options", "pictures", "unsteady"} <= named
    assert named <= TARGETS


def test_the_page_says_what_each_folder_of_tests_is_for() -> None:
    described = set(re.findall(r"^\| `tests/(\w+)` \| \w.+ \|$", PAGE, re.M))
    folders = {
        test.parent.relative_to(ROOT / "tests").parts for test in ROOT.glob("tests/*/**/*.py")
    }
    assert {parts[0] for parts in folders} <= described


@pytest.mark.parametrize("name", ("CONTRIBUTING.md", "SECURITY.md", "README.md"))
def test_the_links_of_a_page_at_the_root_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text())
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_the_programs_that_the_page_calls_exist() -> None:
    calls = set(re.findall(r"\.venv/bin/(\S+)", PAGE)) - {"pre-commit"}
    assert calls and all(shutil.which(call, path=PROGRAMS) for call in calls)
    files = set(re.findall(r"(?:tests|tools|store|server)/[\w/]+\.py\b", PAGE))
    assert files and [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(("file", "schema"), SCHEMAS, ids=lambda value: str(value).split("/")[-1])
def test_a_file_is_as_its_published_schema_says(file: Path, schema: str) -> None:
    check = str(PROGRAMS / "check-jsonschema")
    words = ["--builtin-schema", f"vendor.{schema}", str(file)]
    done = subprocess.run([check, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_only_calls_make() -> None:
    called = [target(command) for command in runs()]
    assert {"venv", "test", "check", "docs", "demo"} <= set(called) <= TARGETS


def test_the_workflow_tries_each_python_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    tried = read(WORKFLOW)["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert declared and set(declared) <= set(tried)


def test_the_hooks_call_what_exists() -> None:
    repositories = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [each["repo"] for each in repositories] == ["local"]  # so nothing is fetched
    entries = [hook["entry"] for hook in repositories[0]["hooks"]]
    assert entries
    for entry in entries:
        program, *words = shlex.split(entry)
        if program == "make":
            assert target(entry) in TARGETS
        else:
            assert program.startswith(".venv/bin/")
            assert shutil.which(Path(program).name, path=PROGRAMS), entry
        assert all((ROOT / word).exists() for word in words if word.endswith(".py")), entry
