"""Words that the glossary reserves name one thing: only the classes, aliases and modules of its table carry them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
GLOSSARY = PAGE[PAGE.index("\n## Glossary\n") :]
HEAD = "| word in names | classes and aliases | modules |\n|---|---|---|\n"
# forms of words of the table
FORMS = {"holds": "hold", "holding": "hold", "holders": "holder"}
EACH = "each"  # instead of names: all classes of a folder

# a word, the file, the name of a class or an alias; "" for the module itself
Carrier = tuple[str, str, str]


def reserved() -> tuple[dict[str, str], set[Carrier]]:
    """Word -> the word of its row; and the carriers that the table names."""
    words: dict[str, str] = {}
    carriers: set[Carrier] = set()
    for row in GLOSSARY[GLOSSARY.index(HEAD) + len(HEAD) :].splitlines():
        if not row.startswith("| "):
            break
        forms, classes, modules = (cell.strip() for cell in row.strip("|").split("|"))
        first, *others = forms.split(", ")
        words |= dict.fromkeys((first, *others), first)
        for part in filter(None, classes.split("; ")):
            files, _, names = part.partition(": ")
            for file in re.findall(r"`([^`]+)`", files):
                for name in re.findall(r"`([^`]+)`", names) or [EACH]:
                    carriers.add((first, file, name))
        carriers |= {(first, file, "") for file in re.findall(r"`([^`]+)`", modules)}
    return words, carriers


def of_name(name: str) -> Iterator[str]:
    """The words of a name in lower case, a plural also as the singular."""
    for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name):
        lower = word.lower()
        yield FORMS.get(lower, lower)
        if lower.endswith("s"):
            yield lower[:-1]


def named(source: str) -> list[str]:
    """The classes of a module, also those in others and in functions, and its aliases of types."""
    classes = re.findall(r"^[ \t]*class (\w+)[(:\[]", source, re.M)
    return classes + re.findall(r"^(_?[A-Z]+[a-z]\w*)(?:: [^=\n]+)? = ", source, re.M)


def carriers(sources: Mapping[str, str], words: Mapping[str, str]) -> set[Carrier]:
    """The names of modules, and in them of classes and aliases, that have a reserved word."""
    found: set[Carrier] = set()
    for file, source in sources.items():
        stem = re.sub(r"(/__init__)?\.py$", "", file).rpartition("/")[2]
        # Of a module the whole name counts: `in_place` is no place.
        for word in {stem, stem.removesuffix("s"), FORMS.get(stem, stem)} & words.keys():
            found.add((words[word], file, ""))
        for name in named(source):
            found |= {(words[word], file, name) for word in of_name(name) if word in words}
    return found


def told(found: set[Carrier], allowed: set[Carrier]) -> list[str]:
    """A sentence for each name that has a word which is not its own."""
    folders = {(word, file) for word, file, name in allowed if name == EACH}
    return [
        f"{file}: {f'the name {name}' if name else 'the name of the module'} has the word {word!r}, which the glossary"
        " of docs/ARCHITECTURE.md reserves. Choose a word for what it is, or add it there if it is that very thing"
        for word, file, name in sorted(found - allowed)
        if not any(word == of and name and file.startswith(folder) for of, folder in folders)
    ]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    links = (path for path in (ROOT / "src/tidelog").iterdir() if path.is_symlink())
    files = (file for link in links for file in (ROOT / link.name).rglob("*.py"))
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def test_a_reserved_word_names_one_thing(sources: dict[str, str]) -> None:
    words, allowed = reserved()
    assert told(carriers(sources, words), allowed) == []


def test_the_table_names_what_exists(sources: dict[str, str]) -> None:
    words, allowed = reserved()
    assert {each for each in allowed if each[2] != EACH} <= carriers(sources, words)


def test_each_reserved_word_is_explained() -> None:
    words, _ = reserved()
    for word in {*words.values()}:
        assert re.search(rf"^\| {word} \| [A-Z]", GLOSSARY, re.M), word


@pytest.mark.parametrize(
    ("file", "source", "name"),
    [
        ("jobs/work/new.py", "class Held:\n    pass\n", "the name Held"),
        ("jobs/work/new.py", "class _Holding:\n    pass\n", "the name _Holding"),
        ("server/new.py", "def of() -> None:\n    class JobHolder: ...\n", "the name JobHolder"),
        ("tools/new.py", "Place = tuple[int, bytes]\n", "the name Place"),
        ("client/link.py", "class Lane:\n    pass\n", "the name Lane"),
        ("jobs/work/new.py", "class SharedThings:\n    pass\n", "the name SharedThings"),
        ("jobs/work/shared.py", "", "the name of the module"),
        ("server/places/__init__.py", "", "the name of the module"),
    ],
)
def test_another_thing_of_that_name_is_told(file: str, source: str, name: str) -> None:
    words, allowed = reserved()
    (sentence,) = told(carriers({file: source}, words), allowed)
    assert sentence.startswith(f"{file}: {name} has the word ")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("client/new.py", "class SharedThings:\n    pass\n"),
        (
            "jobs/new.py",
            "class Household:\n    pass\nclass Workplace:\n    pass\nclass Withheld:\n    pass\n",
        ),
        ("jobs/new.py", "HELD = b'queue:held'\nheld = 1\n"),
        ("tools/repair/in_place.py", ""),
    ],
)
def test_other_words_are_free(file: str, source: str) -> None:
    words, allowed = reserved()
    assert told(carriers({file: source}, words), allowed) == []


def test_the_rooms_of_the_queue_import_classes_by_their_names(sources: dict[str, str]) -> None:
    """An alias would be a second name for the same thing."""
    rooms = (
        "jobs/",
        "api/queue/",
        "client/",
        "server/jobs.py",
        "server/session.py",
        "server/commands/queue/",
    )
    aliases = [
        f"{file}: {each.name} as {each.asname}"
        for file, source in sources.items()
        if file.startswith(rooms) and " as " in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidelog.")
        for each in node.names
        if each.asname not in (None, each.name)
        and each.name[0].isupper()
        and not each.name.isupper()
    ]
    assert aliases == ["client/link.py: StoreLocked as Locked"]  # another class has that name
