"""The fixtures `tidelog_clock` and `tidelog_store` for test suites that switch the plugin off.

    pytest_plugins = ["tidelog.testing.fixtures"]

With the plugin (tidelog.testing.plugin), which pytest loads by itself, this line is not needed.
"""

from __future__ import annotations

from tidelog.testing.plugin import tidelog_clock, tidelog_store

__all__ = ["tidelog_clock", "tidelog_store"]
