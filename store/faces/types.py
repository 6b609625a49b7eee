"""Types of arguments and replies, with redis-py's names."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

KeyT = bytes | str | memoryview
"""The name of a key. A str is its UTF-8."""
PatternT = KeyT
"""A glob pattern: `*`, `?`, `[a-c]`, `[^x]`, and a backslash before a character that stands for itself."""
GroupT = KeyT
"""The name of a consumer group."""
ConsumerT = KeyT
"""The name of a consumer."""
EncodableT = bytes | bytearray | memoryview | str | int | float
"""A value. A str is stored as UTF-8, a number as its `repr`."""
StreamIdT = int | bytes | str | memoryview
"""The ID of an entry: `ms-seq`, or only ms, as described in spec 3."""
ExpiryT = int | timedelta
"""A duration, in the unit that the method names."""
AbsExpiryT = int | datetime
"""A Unix time, in the unit that the method names."""

Text = bytes | str
"""Text in a reply: bytes, or str with `decode_responses=True`."""
StreamEntry = tuple[Text, dict[Text, Text]]
"""An entry: `(id, {field: value})`."""
# an item may also be (None, None) or a longer tuple; the methods' docstrings say when
StreamEntries = list[Any]
"""Entries, as the method describes them."""
