"""As stream_driver.py, without a JVM: plans, stores and reads batches in the order in which Spark does.

    python stream_follower.py STORE CHECKPOINT OUT

Spark stores the end of a batch before it reads it, and that the batch is done afterwards. It commits a batch to the
source when the next one is planned.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

from tidelog.spark.source.log import stream


def store(path: Path, value: Any) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(value))
    beside.rename(path)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    fields = row["fields"] or ()
    numbers = [int(field["value"]) for field in fields if field["name"] == b"n"]
    return {"lsn": row["lsn"], "event": row["event"], "detail": row["detail"], "n": numbers}


if __name__ == "__main__":
    path, checkpoint, out = map(Path, sys.argv[1:])
    checkpoint.mkdir(exist_ok=True)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    options = {"path": str(path), "table": "events", "failOnDataLoss": "false"}
    options |= {"maxOffsetsPerTrigger": "400", "targetPartitionBytes": "10000"}
    reader = stream.reader(options)
    print("begun", flush=True)
    while True:
        last = ended.is_set()
        number = len(list(checkpoint.glob("*.done")))
        if number:
            start = json.loads((checkpoint / f"{number - 1}.end").read_text())
        else:
            start = reader.initialOffset()
        planned = checkpoint / f"{number}.end"
        if not planned.exists():
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                if last:
                    break
                ended.wait(0.01)
                continue
            store(planned, end)
            if number:
                reader.commit(start)
        rows: list[dict[str, Any]] = []
        for part in reader.partitions(start, json.loads(planned.read_text())):
            worker = pickle.loads(pickle.dumps(reader))
            for batch in worker.read(pickle.loads(pickle.dumps(part))):
                rows += map(plain, batch.to_pylist())
        store(out / f"{number}.json", rows)
        store(checkpoint / f"{number}.done", None)
        print("batch", number, flush=True)
    print("stopped", flush=True)
