"""The append-only file: frames in segments, group commit, recovery, and one verdict per frame."""
