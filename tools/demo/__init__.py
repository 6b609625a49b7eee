"""`tidelog demo`: the queue under SIGKILL, and the proof from its files."""
