"""`tidelog crash`: the crash bench."""
