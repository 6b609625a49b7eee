"""Crash: a bench that records what a store does to its disk and tries the states that a power cut may leave."""
