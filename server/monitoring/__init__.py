"""What a server tells about itself: INFO, CLIENT LIST, slow commands, latencies, metrics, log lines."""
