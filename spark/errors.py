"""The error of everything that runs in Spark, in a form that survives the way from a worker to the user.

Spark passes on the text of an error and not its class. So the text begins with a stable code, which programs may test
for, and contains all that a person needs: the place and the remedy.
"""

from __future__ import annotations

import re
from typing import Final

CODE_PREFIX: Final = "TIDELOG_"
SPARK_FAILED: Final = "TIDELOG_SPARK"
REASON_CHARS_MAX: Final = 300
_CODED: Final = re.compile(r"\[(TIDELOG_[A-Z_]+)\] ([^\n]*)")
# Py4J puts the failed call first and the Java exception on a line of its own, after a colon.
_JAVA: Final = re.compile(r"^: (.+)", re.MULTILINE)


class TidelogSparkError(Exception):
    """An error with a stable code. Its text is `[TIDELOG_CODE] message`.

    Attributes:
        code: Begins with "TIDELOG_". Programs may test for it.
        message: One sentence: the fault, the place, the remedy.
    """

    def __init__(self, code: str, message: str) -> None:
        assert code.startswith(CODE_PREFIX)
        # Exception keeps both arguments, so that pickle can create the error again.
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


def from_spark(text: str) -> TidelogSparkError:
    """The error in a text of Spark: the last one with our code, or else Spark's own reason."""
    coded = _CODED.findall(text)
    if coded:
        return TidelogSparkError(*coded[-1])
    return TidelogSparkError(SPARK_FAILED, f"Spark failed: {reason(text)}")


def reason(text: str) -> str:
    """The line of a text of Spark that says why."""
    java = _JAVA.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = java[1] if java else lines[0] if lines else "no reason given"
    return found[:REASON_CHARS_MAX]
