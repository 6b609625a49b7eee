"""Hook of mkdocs: turns references in the text of pages and docstrings into links.

    spec 5.1          leads to that section of docs/reference/streams.md
    `Queue.put`       leads to that object of the API reference; on pages of the API reference, `Queue` does too

So docstrings stay readable in an editor. A citation of a section that does not exist is a warning, and `make docs`
fails.
"""

from __future__ import annotations

import logging
import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

STREAMS = "reference/streams.md"
API = "reference/api"

# A logger below `mkdocs`, because mkdocs counts only the warnings of its own loggers.
_log = logging.getLogger("mkdocs.hooks.site_links")
_NUMBER = r"\d+(?:\.\d+)*"
_HEADING = re.compile(rf"^#+ (({_NUMBER})\.? .*)$", re.MULTILINE)
_CITED = re.compile(rf"\bspec ({_NUMBER})")
_DIRECTIVE = re.compile(r"^::: (tidelog\.(?:\w+\.)*(\w+))$", re.MULTILINE)
_CODE = re.compile(r"<code>(?:tidelog\.)?([A-Za-z]\w*)(\.\w+)?</code>")
# Do not change the text in these elements: it is code, or it is already a link.
_OPAQUE = re.compile(r"(<pre.*?</pre>|<a .*?</a>|<autoref.*?</autoref>|<h\d.*?</h\d>)", re.DOTALL)


@cache
def anchors(docs: Path) -> dict[str, str]:
    """Number of a section -> its anchor, which is made as GitHub makes it."""
    found = _HEADING.findall((docs / STREAMS).read_text())
    return {
        number: re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading, number in found
    }


@cache
def objects(docs: Path) -> dict[str, str]:
    """Name of an object of the API reference -> its full name."""
    # Leave out tidelog.testing, which shares names with tidelog.queue and tidelog.store.
    return {
        name: full
        for page in sorted((docs / API).glob("*.md"))
        for full, name in _DIRECTIVE.findall(page.read_text())
        if not full.startswith("tidelog.testing.")
    }


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs with the HTML of each page."""
    docs = Path(config["docs_dir"])
    source = page.file.src_uri
    sections = anchors(docs)
    if source == STREAMS:
        for anchor in sections.values():
            if f'id="{anchor}"' not in html:
                _log.warning("%s: the site has another anchor than #%s", STREAMS, anchor)
    place = posixpath.relpath(files.src_uris[STREAMS].url, posixpath.dirname(page.url) or ".")

    def to_section(cited: re.Match[str]) -> str:
        if cited[1] not in sections:
            _log.warning("%s: %s is not a section of %s", source, cited[0], STREAMS)
            return cited[0]
        return f'<a href="{place}#{sections[cited[1]]}">{cited[0]}</a>'

    def to_object(code: re.Match[str]) -> str:
        full = objects(docs).get(code[1])
        if full is None or not (code[2] or source.startswith(API)):
            return code[0]
        # Make the link `optional`, because an attribute that a docstring lists has no anchor of its own.
        return f'<autoref optional identifier="{full}{code[2] or ""}">{code[0]}</autoref>'

    parts = _OPAQUE.split(html)
    for at in range(0, len(parts), 2):
        if source != STREAMS:
            parts[at] = _CITED.sub(to_section, parts[at])
        parts[at] = _CODE.sub(to_object, parts[at])
        # For code in a table, GitHub needs a backslash before `|` and hides it. mkdocs would show it, so remove it.
        parts[at] = parts[at].replace("\\|", "|")
    return "".join(parts)
