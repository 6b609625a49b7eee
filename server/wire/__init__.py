"""The Redis protocol: bytes to commands, replies to bytes. No I/O."""
