"""Types of arguments and replies, with redis-py's names."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

KeyT = bytes | str | memoryview
PatternT = KeyT
GroupT = KeyT
ConsumerT = KeyT
EncodableT = bytes | bytearray | memoryview | str | int | float
StreamIdT = int | bytes | str | memoryview
ExpiryT = int | timedelta
AbsExpiryT = int | datetime

Text = bytes | str  # str with decode_responses=True
StreamEntry = tuple[Text, dict[Text, Text]]
StreamEntries = list[Any]  # of StreamEntry; (None, None) and longer tuples occur, see the methods
