"""The version of tidelog. A test compares it with that in pyproject.toml."""

__version__ = "0.2"
