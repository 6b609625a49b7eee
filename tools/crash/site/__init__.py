"""The directory that is put on PYTHONPATH, so that a child process plants a fault while it loads a module."""
