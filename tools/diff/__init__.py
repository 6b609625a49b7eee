"""`tidelog diff`: two logs, or two states."""
