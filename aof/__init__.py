"""The append-only file: frames in segments, group commit and recovery."""
