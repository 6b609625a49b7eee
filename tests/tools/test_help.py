"""The help of every command: what it does, a sentence for each option, exit codes, and examples."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from tests.tools.conftest import Run

from tidelog.tools import cli, exits
from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples


def tree(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Every command below this one, and itself."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from tree(f"{name} {each}".strip(), found)


COMMANDS = dict(tree("", cli.cli))
LEAVES = [name for name, command in COMMANDS.items() if not isinstance(command, click.Group)]

# fmt: off
WITHOUT_JSON = {
    "aof plot":      "it writes a picture",
    "completion":    "it prints a script",
    "console":       "it shows a page",
    "crash plug":    "it speaks to the person who pulls the plug; its exit code says whether writes are missing",
    "crash witness": "it prints a line for each run; its notes are the data",
    "demo":          "it is a show for people",
    "report":        "it writes a page",
    "serve":         "it prints nothing; its logs have log-format",
    "worker":        "it prints nothing; its logs have --log-format",
}
# fmt: on


def test_the_tree_is_whole() -> None:
    assert len(LEAVES) > 40
    assert {"aof plot", "top", "diff", "queue dead redrive", "crash replay"} <= {*COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_a_sentence(name: str) -> None:
    command = COMMANDS[name]
    first = (command.help or "").strip().partition("\n\n")[0]
    assert first[:1].isupper() and first.endswith("."), first
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            text = (option.help or "").strip()
            assert text[:1].isupper() and text.endswith((".", ".)")), (option.opts, text)


def test_the_help_of_a_command_is_its_line_in_the_table() -> None:
    for name, command in COMMANDS.items():
        for each, (_, line) in command.table.items() if isinstance(command, LazyGroup) else ():
            assert COMMANDS[f"{name} {each}".strip()].help == line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_of_itself(name: str) -> None:
    end = COMMANDS[name].epilog or ""
    lines = end.partition("Examples:\n")[2].splitlines()
    assert lines
    assert all(line.startswith(f"  tidelog {name}".rstrip()) for line in lines), lines


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_tells_its_exit_codes(name: str) -> None:
    end = " ".join((COMMANDS[name].epilog or "").split())
    assert f"Exit codes: {exits.OK} success, " in end
    assert f"{exits.USAGE} {exits.WORDS[exits.USAGE]}" in end


def test_every_command_that_prints_data_has_json() -> None:
    without = {
        name
        for name in LEAVES
        if not any("--json" in param.opts for param in COMMANDS[name].params)
    }
    assert without == {*WITHOUT_JSON}


def test_every_name_of_the_store_is_completed() -> None:
    """Queues, groups, consumers and keys, wherever the line has the PATH of the store that holds them."""
    named = {"--key", "--group", "--consumer", "--queue", "key", "name"}
    without = {
        (name, param.opts[0])
        for name, command in COMMANDS.items()
        for param in command.params
        if named & {*param.opts} and param._custom_shell_complete is None
    }
    # Their keys are in the source, which is no store.
    assert without == {("import", "--key")}


def test_the_codes_come_before_the_examples(run: Run) -> None:
    out = run("diff", "--help").out
    assert "9 a difference." in " ".join(out.split())
    assert 0 < out.index("Exit codes:") < out.index("Examples:\n")
    assert examples("a", codes=()) == "\b\nExamples:\n  a"
