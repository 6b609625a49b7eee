"""An export in Spark whose driver or worker is killed, and that is run again, is exactly right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.conftest import TEST_CONF
from tests.spark.exports.test_killed import checksum, snapshots, until
from tests.spark.processes import workers

__all__ = ["snapshots"]

SCRIPT = """
import sys
sys.path[:0] = {path!r}
if __name__ == "__main__":
    import tidelog.spark
    from tidelog.spark.session import session
    spark = session("local[2]", **{conf!r})
    print("begun", flush=True)
    tidelog.spark.export(spark, sys.argv[1], sys.argv[2], tables=("entries", "groups"),
                         options={{"targetPartitionBytes": "20000"}})
    print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kills",
    [(("driver", 3), ("worker", 8)), (("driver", 15), ("worker", 25), ("driver", 40))],
    ids=["early", "late"],
)
def test_killed_and_run_again(
    tmp_path: Path, snapshots: tuple[Path, Path], kills: tuple[tuple[str, int], ...]
) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(path=sys.path, conf=TEST_CONF))
    to = tmp_path / "to"

    def start(folder: Path) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, script, snapshots[1], folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None and child.stdout.readline() == "begun\n"
        return child

    calm = start(tmp_path / "calm")
    out, err = calm.communicate()
    assert out == "done\n", err
    for kill, tasks in kills:
        child = start(to)
        until(child, to, tasks)
        if kill == "driver":
            child.send_signal(signal.SIGKILL)
            child.communicate()
        else:
            for pid in workers(child.pid):
                os.kill(pid, signal.SIGKILL)
            out, err = child.communicate()
            assert "TIDELOG_TASK" in err or out == "done\n", err
    last = start(to)
    out, err = last.communicate()
    assert out == "done\n", err
    assert checksum(to) == checksum(tmp_path / "calm")
