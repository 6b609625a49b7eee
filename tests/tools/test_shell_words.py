"""Words of a command line: as the shell gives them, and as they are typed again."""

from __future__ import annotations

import subprocess

import pytest

from tidelog.tools.shell_words import quoted, split


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/anna")
    monkeypatch.setenv("place", "/data/a b")
    monkeypatch.delenv("none", raising=False)


LINES = (
    "a b",
    "a  'b c' d",
    '"~" ~ ~/x x~ "~/x"',
    "$place/x ${place} '$place' \"$place\"y",
    r'a\ b "a\b" "a\"b" ' + r"'a\' \$place",
    'x$none"" --key=mails:d',
    "a\"b c\"'d e'f",
    r"\~/x ''",
)


@pytest.mark.parametrize("line", LINES)
def test_words_are_those_that_a_shell_gives(line: str) -> None:
    script = f'IFS=; printf "%s\\0" {line}'  # IFS: bash would part the value of $place
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert [word.value for word in split(line)] == done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    ("line", "text", "quote"),
    [
        ("a b", "b", ""),
        ("a ", "", ""),
        ("", "", ""),
        ("a 'b c", "b c", "'"),
        ('a "b $HOME', "b $HOME", '"'),
        ("a b\\", "b\\", ""),
        ("a ~/x$HOME", "~/x$HOME", ""),
    ],
)
def test_the_word_at_the_cursor(line: str, text: str, quote: str) -> None:
    word = split(line)[-1]
    assert (word.text, word.quote) == (text, quote)


@pytest.mark.parametrize("quote", ["", "'", '"'])
@pytest.mark.parametrize(
    "text", ["a:b=c", "a b", "it's", '"$HOME`x`\\', "~/x", "a*?[!]{};&|<>()#é\t"]
)
def test_what_is_typed_gives_the_text(text: str, quote: str) -> None:
    typed = f"{quote}{quoted(text, quote)}{quote}"
    done = subprocess.run(
        ["bash", "-c", f'printf "%s" {typed}'], capture_output=True, text=True, check=True
    )
    assert done.stdout == text
    assert [word.text for word in split(typed)] == [text]
