"""Users and what they may do: passwords, rules for commands, keys and channels, and the log of refusals."""
