"""The writing process of test_sigkill: adds, reads and acknowledges until it is killed.

Started as `python kill_child.py DIRECTORY POLICY`. Each promise it was given is told to the parent as one
line on standard output *after* the call returned, in one write(2), so what the parent has read was promised.

    a T N    thread T: XADD of number N to stream w:T returned
    d T ID   thread T: XREADGROUP gave it ID
    k T ID   thread T: XACK of ID returned
"""

import os
import sys
import threading

import tidelog

THREADS = 3


def work(db: "tidelog.Store", thread: int) -> None:
    stream, group = f"w:{thread}", "g"
    if not db.exists(stream):
        db.xgroup_create(stream, group, id="0", mkstream=True)
    last = db.xrevrange(stream, count=1)
    number = int(last[0][1][b"n"]) + 1 if last else 0
    while True:
        for _ in range(3):
            db.xadd(stream, {"n": number, "pad": "x" * (number * 37 % 300)})
            os.write(1, b"a %d %d\n" % (thread, number))
            number += 1
        reply = db.xreadgroup(group, "c", {stream: ">"}, count=2)
        for _stream, entries in reply:
            for entry_id, _fields in entries:
                os.write(1, b"d %d %s\n" % (thread, entry_id))
            first = entries[0][0]
            db.xack(stream, group, first)
            os.write(1, b"k %d %s\n" % (thread, first))


def main() -> None:
    directory, policy = sys.argv[1:]
    db = tidelog.open(directory, fsync=policy, segment_bytes=1 << 20)
    threads = [threading.Thread(target=work, args=(db, t), daemon=True) for t in range(THREADS)]
    for thread in threads:
        thread.start()
    os.write(1, b"ready\n")
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
