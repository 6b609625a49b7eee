"""The error of everything that runs in Spark, in a form that survives the way from a worker to the user.

Spark passes on the text of an error and not its class. So the text begins with a stable code, which programs may test
for, and contains all that a person needs: the place and the remedy.
"""

from __future__ import annotations

from typing import Final

CODE_PREFIX: Final = "TIDELOG_"


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
