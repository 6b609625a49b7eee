"""House rules that no ready-made linter knows: who may touch files, and what no text may mention."""

import ast
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Everything a store reads or writes goes through disk/, so that the simulated disk sees it and can fail it.
# Tools may read the files a user names and run child processes; what they do to a store they do through it.
WITHOUT_FILES = ("engine", "aof", "snapshot", "store", "replication", "server", "spark")

FILE_MODULES = {"fcntl", "fileinput", "glob", "mmap", "shutil", "tempfile"}
OS_CALLS = set(
    """access chmod chown close copy_file_range dup fchmod fdatasync fdopen fstat fsync ftruncate
    link listdir lockf lseek lstat makedirs mkdir open posix_fadvise posix_fallocate pread preadv
    pwrite pwritev read readlink readv remove removedirs rename renames replace rmdir scandir
    sendfile stat statvfs symlink sync truncate unlink utime walk write writev""".split()
)
PATH_CALLS = set(
    """chmod exists hardlink_to is_dir is_file iterdir lchmod mkdir open read_bytes read_text rename
    rglob rmdir samefile stat symlink_to touch unlink write_bytes write_text""".split()
)


def file_access(source: str) -> Iterator[tuple[int, str]]:
    """(line, what) of everything in a module's source that reaches the file system by itself."""
    tree = ast.parse(source)
    paths = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "pathlib"
        for alias in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, a.name) for a in names if a.name in FILE_MODULES)
            case ast.ImportFrom(module=str(module)) if module in FILE_MODULES:
                yield node.lineno, module
            case ast.ImportFrom(module="os" | "io", names=names):
                taken = {a.name for a in names} & (OS_CALLS | {"open"})
                yield from ((node.lineno, f"os.{name}") for name in sorted(taken))
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr in OS_CALLS:
                yield node.lineno, f"os.{attr}"
            case ast.Call(func=ast.Name(id="open")):
                yield node.lineno, "open()"
            case ast.Attribute(value=ast.Name(id="io"), attr="open" | "FileIO"):
                yield node.lineno, "io.open"
            case ast.Call(func=ast.Attribute(attr=attr) as func) if paths and attr in PATH_CALLS:
                # A method of that name on another object is told apart by its receiver: a call on `disk`
                # or on one of our files is what the rule asks for.
                receiver = ast.unparse(func.value)
                if receiver.startswith("Path(") or re.search(
                    r"\b(path|directory|folder)\b", receiver
                ):
                    yield node.lineno, f"Path.{attr}"
            case _:
                pass


@pytest.mark.parametrize("folder", WITHOUT_FILES)
def test_only_disk_touches_files(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, what in file_access(path.read_text())
    ]
    assert not found, "these belong in disk/"


# fmt: off
@pytest.mark.parametrize("source", [
    "open('x')",
    "import os\nos.write(1, b'')",
    "import os\nwrite = os.write",
    "from os import fsync",
    "import io\nio.open('x')",
    "import mmap",
    "from tempfile import mkdtemp",
    "from pathlib import Path\nPath('x').read_text()",
    "from pathlib import Path\ndef f(path: Path) -> None:\n    path.unlink()",
])
# fmt: on
def test_the_rule_sees(source: str) -> None:
    assert list(file_access(source))


# fmt: off
@pytest.mark.parametrize("source", [
    "disk.open('x')",
    "import os\nos.getpid()",
    "from pathlib import Path\ndef f(disk, path: Path):\n    return disk.read(path / 'x')",
    "items.remove(1)",
])
# fmt: on
def test_the_rule_leaves_alone(source: str) -> None:
    assert not list(file_access(source))


def tracked_files() -> list[Path]:
    """What git knows, or every file of the code folders where this is no clone (an unpacked archive)."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        )
        names = [name for name in listed.stdout.split("\0") if name]
        return [p for p in (ROOT / name for name in names) if p.is_file() and not p.is_symlink()]
    return [p for p in ROOT.rglob("*.py") if ".venv" not in p.parts]


def test_no_text_names_a_place_on_one_machine() -> None:
    places = re.compile(rb"(?<![\w.~$}])/(?:work|tmp|home|root)/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1)
        if places.search(line)
    ]
    assert not found


FAST_PATHS = [
    (path.relative_to(ROOT), node.lineno, node)
    for folder in (*WITHOUT_FILES, "disk", "testing", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and node.func.id == "fast_path"
]


@pytest.mark.parametrize("call", [c for _, _, c in FAST_PATHS], ids=lambda call: str(call.lineno))
def test_a_fast_path_names_its_general_path_and_the_test_that_holds_it(call: ast.Call) -> None:
    said = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    module, _, name = said["of"].partition(":")
    found: object = import_module(f"tidelog.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    file, _, test = said["held_by"].partition("::")
    assert f"\ndef {test}(" in (ROOT / file).read_text()


def test_there_are_fast_paths() -> None:
    assert FAST_PATHS
