"""The figures of a server about itself: INFO, CLIENT LIST, slow commands, latencies, metrics, log lines."""
