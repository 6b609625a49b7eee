"""Effects: their form, the functions that apply them, and what else follows from one: events, signals, commands."""
