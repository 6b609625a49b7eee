"""How workers get jobs and end them: fetching, settling, leases, retention, and draining before a close."""
