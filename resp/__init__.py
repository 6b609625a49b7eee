"""RESP, as a client speaks it: commands as bytes, and replies out of bytes. No I/O, and nothing else of tidelog."""
