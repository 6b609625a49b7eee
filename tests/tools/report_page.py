"""A report as a test reads it: its titles, tables and charts."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree


class Page(HTMLParser):
    """The parts of a page. An element that is not closed in order, or a link to anything outside, is an error."""

    EMPTY = ("meta", "link", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.titles: list[str] = []
        self.captions: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.charts: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert not self.open
        for found in re.findall(r"<section>(.*?)</section>", text, re.S):
            title = unescape(re.findall(r"<h2>(.*?)</h2>", found)[0])
            for svg in re.findall(r"<svg.*?</svg>", found, re.S):
                ElementTree.fromstring(svg)
                self.charts[title] = svg

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.EMPTY:
            self.open.append(tag)
        assert tag not in ("script", "link", "img", "image", "iframe")
        for name, value in attrs:
            if name in ("src", "href", "xlink:href"):
                assert value is not None and value.startswith("#"), value
        if tag == "h2":
            self.titles.append("")
        elif tag == "figcaption":
            self.captions.append("")
        elif tag == "table":
            self.tables[self.titles[-1]] = []
        elif tag == "tr":
            self.tables[self.titles[-1]].append([])
        elif tag in ("td", "th"):
            self.tables[self.titles[-1]][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.titles[-1] += data
        elif self.open and self.open[-1] == "figcaption":
            self.captions[-1] += data
        elif self.open and self.open[-1] in ("td", "th"):
            self.tables[self.titles[-1]][-1][-1] += data
