"""House rules that no ready-made linter knows: which folders may touch files, and which words no text may have."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Everything a store reads or writes goes through disk/, so that the simulated disk sees it and can fail it.
# Tools may read the files a user names and run child processes; what they do to a store they do through it.
WITHOUT_FILES = (
    "resp",
    "engine",
    "aof",
    "snapshot",
    "store",
    "jobs",
    "api",
    "replication",
    "server",
    "crash",
    "spark",
    "functions",
)

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
    """The files that git tracks, or every file of the code folders where this is no clone (an unpacked archive)."""
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
    if "fast_path(" in (text := path.read_text())
    for node in ast.walk(ast.parse(text))
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


# Comments, docstrings, messages and pages are in plain English. A statement begins with its subject, so not with a
# relative clause; a question may, and so may the heading of a list, which ends with a colon.
FORBIDDEN_WORD = re.compile(r"\b(?:Who|Whoever|What|Whatever|Whichever)\b")
OPENER = re.compile(rf"(?:^|[.!?] )({FORBIDDEN_WORD.pattern}[^.!?:]*(?:$|[.!]))")
PHRASES = re.compile(
    r"\b(?:whoever|whomever|there is none (?:that|of which)|(?:is|are) not to [a-z]+|so far as|be it|"
    r"of (?:its|their) own accord|nobody who|so many|somebody who|it is said that|lest|thereof|whereof)\b",
    re.IGNORECASE,
)
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PLAIN_ENGLISH = (
    *(*WITHOUT_FILES, "disk", "figures", "client", "integrations", "testing", "tools", "bench", "tests"),
    *("docs", ".github", *PAGES),
)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every comment, string and paragraph of a file, each on one line."""
    source = path.read_text()
    if path.suffix == ".md":
        plain = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), source, flags=re.M | re.S)
        for block in re.finditer(r"(?:^(?![#|]).*\S.*\n?)+", plain, re.M):
            for item in re.split(r"\n\s*(?:[*-]|\d+\.) ", block[0]):
                yield plain[: block.start()].count("\n") + 1, " ".join(item.split())
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for paragraph in node.value.split("\n\n"):
                yield node.lineno, " ".join(paragraph.split())
    comment: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.lstrip().startswith("#")
            if comment and not (alone and token.start[0] == first + len(comment)):
                yield first, " ".join(comment)
                comment = []
            first = first if comment else token.start[0]
            comment.append(token.string.lstrip("# "))
    if comment:
        yield first, " ".join(comment)


def hard_to_read(path: Path) -> Iterator[tuple[int, str]]:
    """(line, part) of everything in a file that the rule forbids."""
    # To take a file apart is dear, and few files have a forbidden word anywhere. Here a text is found however it is
    # broken into lines and strings.
    source = re.sub(r"\b[bfru]{1,2}(?=[\"'])", "", path.read_text(), flags=re.IGNORECASE)
    words = re.sub(r"(?:[\s\"'#]|\\[nrt\n])+", " ", source)
    if not FORBIDDEN_WORD.search(words) and not PHRASES.search(words):
        return
    for line, text in prose(path):
        yield from ((line, match[1]) for match in OPENER.finditer(text))
        yield from ((line, match[0]) for match in PHRASES.finditer(text))


def test_texts_are_in_plain_english() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {part}"
        for path in tracked_files()
        if path.suffix in (".py", ".md") and path.relative_to(ROOT).parts[0] in PLAIN_ENGLISH
        if path != Path(__file__)  # it has the examples
        for line, part in hard_to_read(path)
    ]
    assert not found, "begin with the subject: subject, verb, object"


# fmt: off
@pytest.mark.parametrize(("name", "text"), [
    ("a.py", "# What is due goes first.\n"),
    ("a.py", "x = 1  # one\n# The lock is held. Whoever\n# waits is woken.\n"),
    ("a.py", "def f():\n    \"\"\"Serve waiters.\n\n    Who waits is served.\n    \"\"\"\n"),
    ("a.py", "raise ValueError(f'{x} is not to change')\n"),
    ("a.py", "say('as long as it runs, be it long or short')\n"),
    ("a.py", "say('as long as it runs, be '\n    f'it {long} or short')\n"),
    ("a.py", "say('as long as it runs, be\\nit long or short')\n"),
    ("a.md", "Some text.\n\n* An item.\n* What a client sends is\n  parsed.\n"),
    ("a.md", "The fastest, so far as we know.\n"),
    ("a.py", "x = 5  # after so many, it ends\n"),
])
# fmt: on
def test_plain_english_sees(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert list(hard_to_read(path))


# fmt: off
@pytest.mark.parametrize(("name", "text"), [
    ("a.py", "# What does a reader see? The prefix.\n"),
    ("a.py", "# The lock says what is held.\n"),
    ("a.md", "## What a reply means\n\nA reply means that the data is on disk.\n"),
    ("a.md", "What is better:\n\n* You do not write the loop.\n"),
    ("a.md", "```text\nWhat the command prints.\n```\n"),
])
# fmt: on
def test_plain_english_leaves_alone(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert not list(hard_to_read(path))


# The formatter breaks a line that is too long, and leaves its comment behind the closing bracket.
LEFT_BEHIND = re.compile(r"^\s*[])}]+(?: = \S+)?,?  # (?!fmt|noqa|type)", re.M)


def test_no_comment_is_left_behind_a_closing_bracket() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{source[: match.start()].count(chr(10)) + 2}"
        for path in tracked_files()
        if path.suffix == ".py"
        for source in (path.read_text(),)
        for match in LEFT_BEHIND.finditer(source)
    ]
    assert not found, "put the comment above the statement"
