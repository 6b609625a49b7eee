"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C tests would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
