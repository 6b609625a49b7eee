"""QUEUE HELP: the subcommands."""

from __future__ import annotations

from tidelog.jobs.verbs.verb import ANY_TIME, Facts, Verb


class Help(Verb):
    """The lines of QUEUE HELP."""

    __slots__ = ()

    name = b"HELP"
    facts = Facts(*(2, ANY_TIME, "", "0.1.0"), "Show the subcommands", ("HELP", "Print this help."))
    of_group = False
