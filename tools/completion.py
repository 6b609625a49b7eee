"""`tidelog completion`: print the script that lets a shell complete commands, options and names.

The script runs `tidelog` with COMPLETE in its environment; `answer` then prints the candidates. Names of queues, groups
and keys come from the store whose PATH is on the line.

The scripts are ours, not click's, because those take the words from the shell. bash parts words at each `:` and `=`,
which most keys contain, and no shell has put in the `~` and the variables yet. Ours give the line up to the cursor.
"""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
)

from tidelog.tools import exits
from tidelog.tools.heads import tool_command
from tidelog.tools.shell_words import Word, quoted, split

PROGRAM: Final = "tidelog"
COMPLETE: Final = "_TIDELOG_COMPLETE"  # the name that click gives
LINE: Final = "COMP_WORDS"  # the line up to the cursor
REPLACED: Final = "COMP_WORD"  # the part of the last word that bash replaces by the candidate
SHELLS: Final = ("bash", "zsh", "fish")

# Variables of the shell that the line names are exported for the answer only, in a process of its own.
BASH: Final = r"""
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            plain) COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done < <(
        line=${COMP_LINE:0:COMP_POINT} rest=$line
        while [[ $rest =~ \$\{?([A-Za-z_][A-Za-z0-9_]*)(.*) ]]; do
            rest=${BASH_REMATCH[2]}
            export "${BASH_REMATCH[1]}"
        done
        COMP_WORDS=$line COMP_WORD=$2 %(complete_var)s=bash_complete "${1/#\~/$HOME}" 2>/dev/null
    )
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
ZSH: Final = r"""
#compdef %(prog_name)s

%(complete_func)s() {
    local type value help
    local -a plain described
    while IFS= read -r type && IFS= read -r value && IFS= read -r help; do
        case $type in
            plain) if [[ $help == _ ]]; then plain+=("$value"); else described+=("$value:$help"); fi ;;
            dir) _path_files -/ ;;
            file) _path_files -f ;;
        esac
    done < <(
        line="${(j: :)words[1,CURRENT]}" rest=$line
        while [[ $rest =~ '\$\{?([A-Za-z_][A-Za-z0-9_]*)(.*)' ]]; do
            rest=$match[2]
            export "$match[1]"
        done
        COMP_WORDS=$line %(complete_var)s=zsh_complete ${~words[1]} 2>/dev/null
    )
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


def typed() -> list[Word]:
    """The words of the line that the shell asks about, without the program."""
    return split(os.environ.get(LINE, ""))[1:]


class Typed(ShellComplete):
    """Completion of the line as it is typed."""

    def get_completion_args(self) -> tuple[list[str], str]:
        *before, last = typed() or [Word("", "", "", "")]
        return [word.value for word in before], last.text


def _whole(value: str, incomplete: str) -> str:
    """The candidate for a whole word. click gives the value alone if the word is `--option=value`."""
    option, sign, _ = incomplete.partition("=")
    return f"{option}=" + value if sign and option.startswith("-") else value


class Bash(Typed, BashComplete):
    """Completion in bash, which replaces a part of the last word and takes a candidate as it is typed."""

    source_template = BASH

    def format_completion(self, item: CompletionItem) -> str:
        if item.type != "plain":
            return f"{item.type},"
        word, part = split(os.environ[LINE])[-1], os.environ[REPLACED]
        stays = split(word.typed.removesuffix(part))[-1]
        rest = _whole(str(item.value), word.text)[len(stays.text) :]
        return f"plain,{quoted(rest, stays.quote)}"


class Zsh(Typed, ZshComplete):
    """Completion in zsh, which replaces the whole word and puts in the quotes."""

    source_template = ZSH

    def format_completion(self, item: CompletionItem) -> str:
        item.value = _whole(str(item.value), split(os.environ[LINE])[-1].text)
        return super().format_completion(item)


class Fish(Typed, FishComplete):
    """Completion in fish, by click's script: it too gives the line up to the cursor, and fish puts in the quotes."""


for _shell in (Bash, Zsh, Fish):
    add_completion_class(_shell)


@tool_command(
    "tidelog completion bash",
    "tidelog completion zsh",
    "tidelog completion fish",
    codes=(exits.OK, exits.USAGE),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    return shell_complete(ctx.find_root().command, {}, PROGRAM, COMPLETE, f"{shell}_source")


def answer(cli: click.Command) -> int:
    """Print the candidates that the shell asks for. Returns the exit code."""
    return shell_complete(cli, {}, PROGRAM, COMPLETE, os.environ[COMPLETE])
