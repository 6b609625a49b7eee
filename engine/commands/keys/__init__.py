"""The commands of keys and strings, and those of the whole server that need only the state."""
