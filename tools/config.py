"""`tidelog config`: say how a store is served, in the file tidelog.toml of its directory, and check what is said."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from tidelog.aof import identity
from tidelog.aof.errors import Damage
from tidelog.disk.real import RealDisk
from tidelog.server.config.config import ConfigError, named
from tidelog.server.config.file import Malformed
from tidelog.server.config.kinds import Refused, Secret
from tidelog.server.config.options import FIXED, OPTIONS, USERS, Option
from tidelog.tools import console, exits
from tidelog.tools.failed import Unable, Wrong
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH

VERBS = ("get", "set", "unset", "edit")


def words_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of options for a shell, with `=` behind those that are to be set."""
    end = "=" if ctx.params.get("verb") == "set" else ""
    names = [name for name, option in OPTIONS.items() if option.when != FIXED]
    return [name + end for name in (*names, USERS) if name.startswith(incomplete)]


@tool_command(
    "tidelog config orders-data",
    "tidelog config orders-data set port=6379 requirepass=env:ORDERS_PASSWORD",
    "tidelog config orders-data get port",
    "tidelog config orders-data unset port",
    "tidelog config orders-data edit",
    codes=(exits.OK, exits.USAGE, exits.NOT_A_STORE, exits.SYSTEM),
    note="The file is tidelog.toml in the store's directory. `get` shows what the file says, or one value. `set` "
    "takes NAME=VALUE, `unset` takes names. `edit` opens the file in $VISUAL or $EDITOR. A password is given as "
    "NAME=env:VARIABLE or NAME=file:/PATH. The new content is checked, and takes effect at the next start of the "
    "server or owner.",
)
@click.argument("path", type=STORE_PATH)
@click.argument("verb", type=click.Choice(VERBS), default="get", required=False)
@click.argument("words", nargs=-1, metavar="[NAME | NAME=VALUE]...", shell_complete=words_of)
@json_option("Print one JSON object with what the file says.")
def command(path: Path, verb: str, words: Sequence[str], as_json: bool) -> int:
    # here: it loads what writes a store's files, and the help needs none of it
    from tidelog.server.config.stored import Stored, checked

    root = path.absolute()
    file = Stored(root)
    check(root, verb == "set")
    try:
        if verb == "get":
            if len(words) > 1:
                raise click.UsageError("get takes one name")
            data = file.text()
            found = {} if data is None else checked(file.path, data)[0]
            return show(found, words[0] if words else "", as_json)
        if verb == "edit":
            if words or as_json:
                raise click.UsageError("edit takes neither names nor --json")
            change: Callable[[bytes], str] = edited(file.text() or b"", file.path)
        elif not words:
            raise click.UsageError(f"{verb} needs a name")
        else:
            change = setting(values_of(words)) if verb == "set" else setting({}, words)
        file.update(change)
        if as_json:
            return show(checked(file.path, file.text() or b"")[0], "", True)
        return exits.OK
    except Malformed as error:
        raise Wrong(f"{file.path}{error}") from error
    except ConfigError as error:
        raise Wrong(str(error)) from error


def check(root: Path, make: bool) -> None:
    """Raise NotAStore unless a store is here, or may be made here. `make`: the directory may be missing."""
    disk = RealDisk()
    if identity.is_new(disk, root) and (make or disk.exists(root)):
        return
    with suppress(Damage):  # it may be served again once it is repaired
        identity.read(disk, root)


def show(found: dict[str, Any], name: str, as_json: bool) -> int:
    """Print all that the file says, or what it says of one option."""
    if name:
        option_of(name)
        if name not in found:
            raise ConfigError(f"the file does not say {name}")
        found = {name: found[name]}
    if as_json:
        console.json_object(found)
    elif name:
        for text in lines_of(name, found[name]):
            click.echo(text)
    else:
        rows = [(key, text) for key, value in found.items() for text in lines_of(key, value)]
        console.table(("OPTION", "VALUE"), rows)
    return exits.OK


def lines_of(name: str, value: Any) -> list[str]:
    """A value of the file as `set` takes it; users one by one."""
    if name == USERS:
        return list(value)
    option = OPTIONS[name]
    if isinstance(value, dict) and isinstance(option.kind, Secret):
        return [f"{form}:{place}" for form, place in value.items()]
    return [option.kind.show(option.kind.native(value))]


def option_of(name: str) -> Option | None:
    """The option of this name; None for the users. Raises ConfigError."""
    return None if name == USERS else named(name)


def values_of(words: Sequence[str]) -> dict[str, Any]:
    """The options of NAME=VALUE, as TOML. Raises ConfigError."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"{word}: must be NAME=VALUE")
        option = option_of(name)
        if option is None:
            values.setdefault(USERS, []).append(text)
        else:
            values[name] = value_of(option, text)
    return values


def value_of(option: Option, text: str) -> Any:
    """A value of the command line as TOML. Raises ConfigError."""
    if isinstance(option.kind, Secret):
        form, _, place = text.partition(":")
        return {form: place} if option.kind.names_a_place({form: place}) else text
    try:
        return option.kind.plain(option.kind.parse(text))
    except Refused:
        allowed = {"true or false": "yes or no"}.get(option.kind.allowed, option.kind.allowed)
        raise ConfigError(f"{option.name} must be {allowed}, not {text!r}") from None


def setting(values: dict[str, Any], gone: Sequence[str] = ()) -> Callable[[bytes], str]:
    """A change that sets options, and removes others. Raises ConfigError."""
    for name in gone:
        option_of(name)

    def change(data: bytes) -> str:
        document = parsed(data)
        for name, value in values.items():
            document[name] = value
        for name in gone:
            document.pop(name, None)
        return dumped(document)

    return change


def edited(before: bytes, path: Path) -> Callable[[bytes], str]:
    """A change to what the user makes of the file in an editor. Raises ConfigError."""
    text = click.edit(before.decode("utf-8", "surrogateescape"), extension=".toml")
    if text is None or not text.strip() and not before:
        raise ConfigError("nothing was changed")

    def change(data: bytes) -> str:
        if data != before:
            raise ConfigError(f"{path} was changed meanwhile by another process; edit it again")
        return text if text.endswith("\n") else text + "\n"

    return change


def parsed(data: bytes) -> Any:
    """The document, with its comments. Raises Malformed, Unable."""
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
    except ImportError as error:
        raise Unable(
            f"to change the file, run `pip install 'tidelog[server]'`, or use `edit` ({error})"
        ) from error
    try:
        tomllib.loads(data.decode())
        return tomlkit.parse(data)
    except (ValueError, TOMLKitError) as error:
        raise Malformed(f": {error}") from error


def dumped(document: Any) -> str:
    """The text of a document."""
    text: str = document.as_string()
    return text if not text or text.endswith("\n") else text + "\n"
