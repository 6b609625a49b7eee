"""An object for processes of the bench: it says which tidelog it has, and keeps a diary."""

from __future__ import annotations

import time

import tidelog


class Probe:
    def __init__(self, fail: bool = False) -> None:
        if fail:
            raise ValueError("told to fail")
        print("a library that prints")
        self.diary: list[str] = []
        self.held = b""

    def version(self) -> list[str]:
        return [tidelog.__version__, str(tidelog.__file__)]

    def before_work(self, count: int, at_once: int) -> None:
        self.diary.append(f"before {count} {at_once}")
        time.sleep(0.05)

    def work(self, count: int, at_once: int) -> None:
        self.diary.append(f"work {count} {at_once}")

    def after_work(self, count: int, at_once: int) -> None:
        self.diary.append(f"after {count} {at_once}")
        time.sleep(0.05)

    def told(self) -> list[str]:
        return self.diary

    def hold(self, nbytes: int) -> None:
        self.held = b"x" * nbytes

    def fail(self) -> None:
        raise LookupError("told to fail")

    def close(self) -> None: ...
