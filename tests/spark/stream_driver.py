"""A driver that a test kills: it follows the log of a store, and writes the rows of each batch to a file.

    python stream_driver.py STORE CHECKPOINT OUT CONF(JSON)

It prints a line for each batch and each query that failed. A line on its standard input stops the query, and another
one begins where that one has ended. At the end of the input, the last query reads what is left.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from pyspark.errors import StreamingQueryException

    from tidelog.spark.session import session

    store, checkpoint, out, conf = sys.argv[1:]
    spark = session("local[2]", **json.loads(conf))
    stopped = threading.Semaphore(0)
    ended = threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            stopped.release()
        ended.set()
        stopped.release()

    def stop(query: Any) -> None:
        stopped.acquire()
        query.stop()

    def keep(frame: Any, number: int) -> None:
        rows = [
            {
                "lsn": row["lsn"],
                "event": row["event"],
                "detail": row["detail"],
                "n": [
                    int(field["value"]) for field in row["fields"] or () if field["name"] == b"n"
                ],
            }
            for row in frame.collect()
        ]
        beside = Path(out) / f"{number}.new"
        beside.write_text(json.dumps(rows))
        beside.rename(Path(out) / f"{number}.json")
        print("batch", number, flush=True)

    threading.Thread(target=listen, daemon=True).start()
    print("begun", flush=True)
    while True:
        last = ended.is_set()
        rows = spark.readStream.format("tidelog").options(
            path=store, table="events", failOnDataLoss="false", maxOffsetsPerTrigger="400",
            targetPartitionBytes="10000",
        )  # fmt: skip
        writer = rows.load().writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", checkpoint)
        query = (writer.trigger(availableNow=True) if last else writer).start()
        if not last:
            threading.Thread(target=stop, args=(query,), daemon=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print("failed", str(error).splitlines()[0], flush=True)
            stopped.release()
        else:
            print("stopped", flush=True)
            if last:
                break
