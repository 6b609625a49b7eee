"""Types of arguments and replies, with redis-py's names."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

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
"""A text: bytes, or str."""
if TYPE_CHECKING:
    # A checker knows typing_extensions without its being installed. With the default, `Store` alone means
    # `Store[bytes | str]`, which both `Store[bytes]` and `Store[str]` are.
    from typing_extensions import TypeVar

    TextT = TypeVar("TextT", bound=Text, covariant=True, default=Text)
else:
    from typing import TypeVar

    TextT = TypeVar("TextT", covariant=True)
"""Text in the replies of a store: bytes, or str with `decode_responses=True`."""
# an item may also be (None, None) or a longer tuple; the methods' docstrings say when
StreamEntries = list[Any]
"""Entries `(id, {field: value})`, as the method describes them."""
