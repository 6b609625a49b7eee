"""Scripts of the words of QUEUE: what one client sends over one connection, and what the server replies.

Each script is a text, a command a line, in two lives of a store. `@a` stands for the ID of the job whose value is `a`,
as the last reply that named it said. Some lines are no commands:

    time SECONDS               the clock moves
    hang up                    the connection ends, and another one begins
    reopen                     the server ends, and the second life begins
    blocked SECONDS COMMAND    the command has to wait, and gets its reply when the clock has moved so far. No job may
                               be held then: its lease would be renewed at the same time, in either order
"""

from __future__ import annotations

from typing import Any, Final

from tests.guard.commands import line
from tests.guard.world import World, clients
from tests.server.wire import Client, connect
from tests.until import until

import tidelog

SCRIPTS: Final[dict[str, str]] = {
    "put-2": """
        QUEUE PUT mails a
        QUEUE PUT mails b HEADERS 2 trace t1 to ann
        QUEUE PUT mails c DEDUP x
        QUEUE PUT mails d DEDUP x
        QUEUE PUT mails e DELAY 5000 KEY k
        QUEUE PUT mails f AT 1700000009000 TTL 1000
        QUEUE PUT mails g PRIORITY 4
        QUEUE PUT mails h PRIORITY 10
        QUEUE PUT mails i ONCE lane 1
        QUEUE PUT mails i ONCE lane 1
        QUEUE PUT mails j PRIORITY 4 ONCE lane 2
        QUEUE PUT mails j PRIORITY 4 ONCE lane 2
        QUEUE PUT mails k ONCE lane 1
        QUEUE PUT mails l DELAY 1000 ONCE lane 3
        QUEUE PUT mails l DELAY 1000 ONCE lane 3
        QUEUE PUT mails m DEDUP x ONCE lane 4
        QUEUE PUT mails n NONE
        QUEUE PUT small a MAXDEPTH 1
        QUEUE PUT small b MAXDEPTH 1
        blocked 2 QUEUE PUT small b BLOCK 1500 MAXDEPTH 1
        reopen
        QUEUE PUT mails j PRIORITY 4 ONCE lane 4
        QUEUE PUT mails k ONCE lane 2
        QUEUE PUT mails o DEDUP x
        time 10
        QUEUE TAKE mails anna COUNT 20
        QUEUE TAKE mails anna COUNT 20
        time 3700
        QUEUE PUT mails p ONCE lane 1
    """,
    "putmany": """
        QUEUE PUTMANY mails 3 a b c
        QUEUE PUTMANY mails 2 d e PRIORITY 3 KEY k
        QUEUE PUTMANY mails 2 f g DELAY 2000 TTL 9000
        QUEUE PUTMANY mails 2 h i AT 1700000003000
        QUEUE PUTMANY mails 2 j k ONCE lane 1
        QUEUE PUTMANY mails 2 j k ONCE lane 1
        QUEUE PUTMANY mails 2 j k DELAY 1000 ONCE lane 2
        QUEUE PUTMANY mails 2 j k DELAY 1000 ONCE lane 2
        QUEUE PUTMANY mails 0
        QUEUE PUTMANY mails 3 a
        QUEUE PUTMANY small 3 a b c MAXDEPTH 2
        QUEUE PUTMANY small 3 a b c MAXDEPTH 2
        blocked 2 QUEUE PUTMANY small 3 a b c MAXDEPTH 2 BLOCK 1000
        reopen
        QUEUE PUTMANY mails 2 j k DELAY 1000 ONCE lane 2
        time 4
        QUEUE TAKE mails anna COUNT 5
        QUEUE TAKE mails anna COUNT 50
    """,
    "take-2": """
        QUEUE TAKE mails anna
        blocked 1 QUEUE TAKE mails dora BLOCK 1000
        QUEUE PUT mails later DELAY 3000
        blocked 4 QUEUE TAKE mails dora BLOCK 0
        QUEUE DONE mails dora @later 1
        QUEUE PUTMANY mails 9 a b c d e f g h i
        QUEUE TAKE mails anna
        QUEUE TAKE mails anna COUNT 2 HEARTBEAT 2000
        QUEUE TAKE mails ben COUNT 2 LIMIT 3000 RETRYAFTER 2000
        time 2.5
        QUEUE TAKE mails carl RETRYAFTER 2000
        time 3
        QUEUE TAKE mails carl COUNT 9 RETRYAFTER 2000
        QUEUE TAKE mails dora COUNT 0
        QUEUE TAKE mails dora BLOCK -1
        hang up
        QUEUE TAKE mails carl HISTORY
        QUEUE PUT mails urgent PRIORITY 5
        reopen
        QUEUE TAKE mails carl COUNT 20 HISTORY
        QUEUE TAKE mails carl COUNT 20
        time 31
        QUEUE TAKE mails ben COUNT 20
    """,
    "done": """
        QUEUE PUTMANY mails 6 a b c d e f
        QUEUE PUTMANY mails 2 p q PRIORITY 2
        QUEUE TAKE mails anna COUNT 2
        QUEUE TAKE mails anna COUNT 4
        QUEUE DONE mails anna @p 1 @a 1 @b 2
        QUEUE DONE mails ben @q 1
        QUEUE DONE mails anna @b 1 RESULT text RESULTTTL 5000
        QUEUE DONE mails anna @c 1 RESULT text
        QUEUE DONE mails anna @d 1 @q 1 RESULT text
        QUEUE DONE mails anna @d 1 ONCE lane 1
        QUEUE DONE mails anna @d 1 ONCE lane 1
        QUEUE DONE mails anna @d 1
        QUEUE DONE mails anna @q 1 KEEP 5
        QUEUE DONE mails anna
        QUEUE TAKE mails anna COUNT 4
        reopen
        QUEUE DONE mails anna @e 1
        QUEUE DONE mails anna @d 1 ONCE lane 1
        QUEUE STATS mails
        QUEUE RESULT mails @b
    """,
    "doneand": """
        QUEUE PUTMANY mails 4 a b c d
        QUEUE TAKE mails anna COUNT 3
        QUEUE DONEAND mails anna @a 1 2 2 mails next 6 bills sum DELAY 1000 PRIORITY 3
        QUEUE DONEAND mails anna @a 1 1 2 mails again
        QUEUE DONEAND mails anna @b 1 0
        QUEUE DONEAND mails anna @c 1 1 4 small x MAXDEPTH 1
        QUEUE DONEAND mails anna @c 1 1 9 mails x
        QUEUE TAKE mails anna COUNT 9
        QUEUE DONEAND mails anna @d 1 2 4 small x MAXDEPTH 1 4 small y MAXDEPTH 1
        reopen
        QUEUE DONEAND mails anna @d 1 2 4 mails x DEDUP z 4 mails y DEDUP z
        time 2
        QUEUE TAKE bills ben
        QUEUE TAKE mails ben COUNT 9
    """,
    "retry": """
        QUEUE PUTMANY mails 4 a b c d
        QUEUE TAKE mails anna COUNT 3
        QUEUE RETRY mails anna @a 1 broken DELAY 0 TRACE line
        QUEUE RETRY mails anna @b 1 broken MAXDELIVERIES 1
        QUEUE RETRY mails anna @c 1 broken RETRYAFTER 1000
        QUEUE RETRY mails anna @c 1 broken
        QUEUE RETRY mails ben @d 1 broken
        QUEUE TAKE mails anna
        reopen
        QUEUE RETRY mails anna @a 2 broken DELAY 2000
        time 3
        QUEUE TAKE mails anna COUNT 9
        QUEUE FAILURES mails
        QUEUE DEAD mails LIST
    """,
    "fail": """
        QUEUE PUTMANY mails 3 a b c
        QUEUE TAKE mails anna COUNT 2
        QUEUE FAIL mails anna @a 1 broken TRACE line
        QUEUE FAIL mails anna @a 1 broken
        QUEUE FAIL mails ben @b 1 broken
        reopen
        QUEUE FAIL mails anna @b 1 broken CODEC json GROUP workers
        QUEUE DEAD mails LIST
        QUEUE FAILURES mails
    """,
    "release-2": """
        QUEUE PUTMANY mails 3 a b c
        QUEUE TAKE mails anna COUNT 2
        QUEUE RELEASE mails anna @a 1
        QUEUE RELEASE mails anna @a 1
        QUEUE RELEASE mails ben @b 1
        QUEUE TAKE mails anna COUNT 1
        QUEUE RELEASE mails anna @a 1 ONCE lane 1
        QUEUE RELEASE mails anna @a 1 ONCE lane 1
        QUEUE RELEASE mails ben @a 1 ONCE lane 2
        QUEUE TAKE mails ben
        QUEUE RELEASE mails anna @a 1 ONCE lane 1
        QUEUE RELEASE mails ben @a 1 ONCE lane 2
        QUEUE RELEASE mails ben @a 1 ONCE lane 3
        QUEUE TAKE mails ben COUNT 2
        reopen
        QUEUE RELEASE mails anna @b 1
        QUEUE TAKE mails ben COUNT 9
        QUEUE STATS mails
    """,
    "extend-3": """
        QUEUE PUTMANY mails 3 a b c
        QUEUE TAKE mails anna COUNT 2 LIMIT 1000 RETRYAFTER 1000
        QUEUE EXTEND mails anna @a 1 60000
        QUEUE EXTEND mails ben @b 1 60000
        QUEUE EXTEND mails anna @b 1 0
        time 5
        QUEUE TAKE mails ben COUNT 9 RETRYAFTER 1000
        hang up
        reopen
        time 30
        QUEUE TAKE mails ben COUNT 9 RETRYAFTER 1000
        QUEUE EXTEND mails anna @a 1 1000
        time 31
        QUEUE TAKE mails ben COUNT 9 RETRYAFTER 1000
    """,
    "renew-2": """
        QUEUE PUTMANY mails 4 a b c d
        QUEUE TAKE mails anna COUNT 3 HEARTBEAT 2000 RETRYAFTER 3000
        time 1.5
        QUEUE RENEW mails anna @a 1 @b 2 @d 1 RETRYAFTER 3000
        time 1.5
        QUEUE RENEW mails anna @a 1 HEARTBEAT 60000 RETRYAFTER 3000
        time 4
        QUEUE TAKE mails ben COUNT 9 RETRYAFTER 3000
        QUEUE RENEW mails anna
        reopen
        QUEUE RENEW mails anna @a 1 HEARTBEAT 1000 RETRYAFTER 3000
        time 2
        QUEUE RENEW mails anna @a 1
        time 4
        QUEUE TAKE mails ben COUNT 9 HISTORY RETRYAFTER 3000
    """,
    "drop-2": """
        QUEUE PUTMANY mails 3 a b c
        QUEUE TAKE mails anna COUNT 2 RETRYAFTER 2000
        QUEUE DROP mails anna @a 1 @c 1 RETRYAFTER 2000
        QUEUE DROP mails anna @a 1
        QUEUE TAKE mails ben
        time 3
        QUEUE TAKE mails ben COUNT 9 RETRYAFTER 2000
        reopen
        QUEUE DROP mails anna @b 1
        time 3
        QUEUE TAKE mails ben COUNT 9 RETRYAFTER 2000
    """,
    "subscribe": """
        QUEUE SUBSCRIBE mails GROUP audit
        QUEUE SUBSCRIBE mails GROUP audit
        QUEUE PUT mails a
        QUEUE PUT mails p PRIORITY 3
        QUEUE SUBSCRIBE mails GROUP late
        QUEUE TAKE mails anna COUNT 9
        QUEUE LIST
        reopen
        QUEUE SUBSCRIBE mails GROUP last
        QUEUE TAKE mails otto GROUP last
        QUEUE DONE mails otto @p 1 GROUP last
        QUEUE STATS mails GROUP audit
        SET text 1
        QUEUE SUBSCRIBE text
    """,
    "result": """
        QUEUE PUTMANY mails 3 a b c
        QUEUE TAKE mails anna COUNT 2
        QUEUE RESULT mails @a
        blocked 1 QUEUE RESULT mails @a BLOCK 1000
        QUEUE DONE mails anna @a 1 RESULT done
        QUEUE RESULT mails @a BLOCK 0
        QUEUE FAIL mails anna @b 1 broken
        QUEUE RESULT mails @b
        QUEUE RESULT mails 5-5
        QUEUE RESULT mails x
        reopen
        QUEUE RESULT mails @a
        QUEUE TAKE mails anna
        QUEUE DONE mails anna @c 1
        QUEUE RESULT mails @c BLOCK 1000
        time 90000
        QUEUE RESULT mails @a
    """,
    "len": """
        QUEUE LEN mails
        QUEUE PUTMANY mails 3 a b c
        QUEUE PUT mails p PRIORITY 3
        QUEUE PUT mails d DELAY 1000
        QUEUE LEN mails
        QUEUE TAKE mails anna COUNT 9
        QUEUE LEN mails GROUP audit
        reopen
        time 2
        QUEUE LEN mails
        QUEUE DONE mails anna @p 1
        QUEUE LEN mails
    """,
    "stats": """
        QUEUE STATS mails
        QUEUE PUTMANY mails 3 a b c
        QUEUE PUT mails p PRIORITY 3
        QUEUE PUT mails d DELAY 1000
        QUEUE TAKE mails anna COUNT 2
        QUEUE STATS mails
        time 10
        QUEUE DONE mails anna @p 1 KEEP 3
        QUEUE STATS mails KEEP 3
        reopen
        QUEUE STATS mails
    """,
    "peek": """
        QUEUE PEEK mails
        QUEUE PUTMANY mails 3 a b c
        QUEUE PUT mails p PRIORITY 3 HEADERS 1 x y
        QUEUE PUT mails d DELAY 1000
        QUEUE PEEK mails COUNT 2
        QUEUE PEEK mails SCHEDULED
        QUEUE PEEK mails COUNT 0
        reopen
        time 2
        QUEUE PEEK mails
        QUEUE PEEK mails COUNT 5 SCHEDULED
    """,
    "failures": """
        QUEUE PUTMANY mails 2 a b
        QUEUE TAKE mails anna COUNT 2
        QUEUE RETRY mails anna @a 1 one TRACE line DELAY 0
        QUEUE RETRY mails anna @b 1 two DELAY 0 MAXFAILURES 1
        QUEUE FAILURES mails
        QUEUE FAILURES mails JOB @b COUNT 1
        QUEUE FAILURES mails JOB x
        reopen
        QUEUE FAILURES mails COUNT 1
    """,
    "dead": """
        QUEUE PUTMANY mails 5 a b c d e
        QUEUE TAKE mails anna COUNT 5
        QUEUE FAIL mails anna @a 1 one
        QUEUE FAIL mails anna @b 1 two
        QUEUE FAIL mails anna @c 1 three
        QUEUE FAIL mails anna @d 1 four
        QUEUE DEAD mails COUNT
        QUEUE DEAD mails LIST - 2
        QUEUE DEAD mails LIST
        QUEUE DEAD mails REDRIVE @a @a 5-5
        QUEUE DEAD mails PURGE @b 5-5
        QUEUE DEAD mails PURGE
        QUEUE DEAD mails NONE
        reopen
        QUEUE DEAD mails LIST @d 9
        QUEUE DEAD mails REDRIVE @c @d
        QUEUE TAKE mails ben COUNT 9
        QUEUE DEAD mails COUNT
    """,
    "purge": """
        QUEUE PURGE mails
        QUEUE PUTMANY mails 3 a b c
        QUEUE PUT mails p PRIORITY 3
        QUEUE PUT mails d DELAY 1000
        QUEUE TAKE mails anna COUNT 1
        QUEUE PURGE mails
        QUEUE PURGE mails
        reopen
        QUEUE PURGE mails
        QUEUE PURGE mails
        QUEUE STATS mails
    """,
    "cancel-2": """
        QUEUE PUT mails a DELAY 1000
        QUEUE PUT mails b DELAY 1000
        QUEUE PUT mails c DELAY 1000
        QUEUE CANCEL mails @a
        QUEUE CANCEL mails @a
        QUEUE CANCEL mails @b ONCE lane 1
        QUEUE CANCEL mails @b ONCE lane 1
        QUEUE CANCEL mails x
        reopen
        QUEUE CANCEL mails @b ONCE lane 1
        time 2
        QUEUE TAKE mails anna COUNT 9
        QUEUE CANCEL mails @c
        QUEUE JOB mails @c
        QUEUE PUT mails d PRIORITY 3
        QUEUE SUBSCRIBE mails GROUP audit
        QUEUE CANCEL mails @d ONLY audit
        QUEUE TAKE mails anna
        QUEUE CANCEL mails @d ONLY workers ONCE lane 2
        QUEUE CANCEL mails @d ONLY workers ONCE lane 2
        QUEUE CANCEL mails @d ONLY
        QUEUE FIND mails STATE cancelled
        QUEUE FIND mails STATE cancelled GROUP audit
    """,
    "progress": """
        QUEUE PUTMANY mails 2 a b
        QUEUE TAKE mails anna COUNT 2
        QUEUE PROGRESS mails anna @a 1 0.25
        QUEUE PROGRESS mails anna @a 1 0.5 TEXT page␣2␣of␣4
        QUEUE JOB mails @a
        QUEUE FIND mails STATE running
        QUEUE PROGRESS mails anna @b 1 1.5
        QUEUE PROGRESS mails anna @b 1 half
        QUEUE PROGRESS mails anna @b 1
        QUEUE PROGRESS mails ben @b 1 1
        QUEUE PROGRESS mails anna @b 1 1
        QUEUE DONE mails anna @b 1
        reopen
        QUEUE RENEW mails anna @a 1
        QUEUE JOB mails @a
        QUEUE DONE mails anna @a 1
        QUEUE JOB mails @a
    """,
    "cancelled-2": """
        QUEUE PUTMANY mails 3 a b c
        QUEUE TAKE mails anna COUNT 3
        QUEUE CANCEL mails @a
        QUEUE CANCELLED mails anna @a 1 @b 1 @c 1
        QUEUE RENEW mails anna @a 1 @b 1
        QUEUE DONE mails anna @a 1 @b 1
        QUEUE CANCEL mails @b
        QUEUE CANCELLED mails anna @b 1
        QUEUE CANCELLED mails anna
        QUEUE CANCELLED mails anna x 1
        reopen
        QUEUE CANCELLED mails anna @a 1 @b 1 @c 1
        QUEUE CANCEL mails @c
        QUEUE CANCELLED mails ben @c 1 GROUP audit
        QUEUE CANCELLED mails anna @c 1 @a 1
        QUEUE DROP mails anna @c 1
        QUEUE STATS mails
        QUEUE STATS mails MORE
    """,
    "move": """
        QUEUE PUT mails a DELAY 1000
        QUEUE PUT mails b DELAY 9000
        QUEUE MOVE mails @a DELAY 8000
        QUEUE MOVE mails @b AT 1700000002000 ONCE lane 1
        QUEUE MOVE mails @b AT 1700000002000 ONCE lane 1
        QUEUE MOVE mails @b
        QUEUE MOVE mails 5-5 DELAY 0
        time 3
        QUEUE TAKE mails anna COUNT 9
        reopen
        QUEUE MOVE mails @b AT 1700000002000 ONCE lane 1
        QUEUE MOVE mails @a DELAY 0
        QUEUE TAKE mails anna COUNT 9
    """,
    "schedule-2": """
        QUEUE SCHEDULE ADD poll mails a EVERY 5000 PRIORITY 2 CATCHUP ALL
        QUEUE SCHEDULE ADD hour mails b CRON 0,10,20,30,40,50␣*␣*␣*␣* TZ Asia/Tokyo
        QUEUE SCHEDULE ADD wrong mails c
        QUEUE SCHEDULE PAUSE hour
        QUEUE SCHEDULE PAUSE none
        time 11
        QUEUE TAKE mails anna COUNT 9
        QUEUE SCHEDULE RESUME hour ONCE lane 1
        QUEUE SCHEDULE REMOVE poll ONCE lane 1
        QUEUE SCHEDULE REMOVE poll ONCE lane 1
        QUEUE SCHEDULE REMOVE poll
        reopen
        QUEUE SCHEDULE REMOVE poll ONCE lane 1
        time 700
        QUEUE TAKE mails anna COUNT 9
        QUEUE SCHEDULE NONE poll
    """,
    "schedules": """
        QUEUE SCHEDULES
        QUEUE SCHEDULE ADD poll mails a EVERY 5000
        QUEUE SCHEDULE ADD hour mails b CRON 0␣*␣*␣*␣*
        QUEUE SCHEDULE PAUSE poll
        QUEUE SCHEDULES
        reopen
        QUEUE SCHEDULES
    """,
    "list": """
        QUEUE LIST
        QUEUE PUT mails a
        QUEUE PUT bills b PRIORITY 3
        QUEUE SUBSCRIBE mails GROUP audit
        QUEUE TAKE mails anna
        QUEUE LIST
        SELECT 1
        QUEUE PUT others a
        QUEUE LIST
        reopen
        QUEUE LIST
    """,
    "confirm": """
        QUEUE PUTMANY mails 4 a b c d MAXDELIVERIES 1
        QUEUE TAKE mails anna COUNT 2 CONFIRM t MAXDELIVERIES 1
        QUEUE TAKE mails anna CONFIRM t MAXDELIVERIES 1
        QUEUE CONFIRM mails anna @a 1
        QUEUE CONFIRM mails ben @a 1
        QUEUE CONFIRM mails anna @a 2
        QUEUE TAKE mails anna COUNT 2 CONFIRM t MAXDELIVERIES 1
        QUEUE DONE mails anna @b 1 MAXDELIVERIES 1
        QUEUE CONFIRM mails anna
        reopen
        time 60
        QUEUE TAKE mails ben COUNT 9 CONFIRM t MAXDELIVERIES 1
        QUEUE CONFIRM mails ben @c 2
        QUEUE CONFIRM none anna 1-1 1
    """,
    "unblock": """
        QUEUE UNBLOCK mails t
        QUEUE TAKE mails anna BLOCK 0 CONFIRM t
        QUEUE UNBLOCK mails t
        QUEUE PUT mails a
        QUEUE TAKE mails anna BLOCK 0 CONFIRM t
        QUEUE UNBLOCK mails
        reopen
        QUEUE UNBLOCK mails t GROUP audit
    """,
    "forget": """
        QUEUE PUT mails a DEDUP x
        QUEUE PUT mails b DEDUP y MODE until-done DELAY 1000
        QUEUE PUT mails c DEDUP y MODE UNTIL-DONE
        QUEUE PUT mails d DEDUP z MODE REPLACE
        QUEUE PUT mails e DEDUP z MODE REPLACE ONCE lane 1
        QUEUE PUT mails e DEDUP z MODE REPLACE ONCE lane 1
        QUEUE PUT mails f DEDUP w MODE WINDOW
        QUEUE PUT mails g DEDUP w MODE NONE
        QUEUE PUT mails h MODE REPLACE
        QUEUE FORGET mails x ONCE lane 2
        QUEUE FORGET mails x ONCE lane 2
        QUEUE FORGET mails x
        QUEUE FORGET mails v
        reopen
        QUEUE PUT mails i DEDUP x
        QUEUE PUT mails j DEDUP y MODE UNTIL-DONE
        time 2
        QUEUE TAKE mails anna COUNT 9
        QUEUE DONEAND mails anna @e 1 1 6 mails k DEDUP z MODE REPLACE
        QUEUE PUT mails l DEDUP z MODE UNTIL-DONE
        QUEUE PEEK mails
        QUEUE FORGET mails z
        QUEUE FORGET none z
        QUEUE FORGET mails
    """,
    "pause": """
        QUEUE PUT mails a
        QUEUE PAUSE mails ONCE lane 1
        QUEUE PAUSE mails ONCE lane 1
        QUEUE PAUSE mails
        QUEUE TAKE mails anna
        reopen
        QUEUE TAKE mails anna GROUP audit
        XADD logs 1-1 a b
        QUEUE PAUSE logs
        QUEUE PAUSE none
        XADD bills:paused * a b
        QUEUE PAUSE bills
        QUEUE PAUSE bills now
    """,
    "resume": """
        QUEUE PUT mails a
        QUEUE RESUME mails
        QUEUE PAUSE mails
        QUEUE RESUME mails ONCE lane 2
        QUEUE RESUME mails ONCE lane 2
        QUEUE RESUME mails
        QUEUE TAKE mails anna
        XADD bills:paused * a b
        QUEUE RESUME bills
        QUEUE RESUME none
    """,
    "remove": """
        QUEUE REMOVE mails
        QUEUE PUT mails a
        QUEUE REMOVE mails
        QUEUE TAKE mails anna
        QUEUE REMOVE mails
        QUEUE FAIL mails anna @a 1 no
        QUEUE REMOVE mails
        QUEUE DEAD mails LIST
        QUEUE DEAD mails PURGE @a
        QUEUE SCHEDULE ADD hour mails tick EVERY 3600000
        QUEUE REMOVE mails
        QUEUE SCHEDULE REMOVE hour
        QUEUE DEAD mails LIST
        QUEUE REMOVE mails ONCE lane 1
        QUEUE REMOVE mails ONCE lane 1
        XADD logs 1-1 a b
        QUEUE REMOVE logs
        SET text x
        QUEUE REMOVE text
        QUEUE REMOVE mails now
    """,
    "paused": """
        QUEUE PAUSED mails
        QUEUE PAUSE mails
        QUEUE PAUSED mails
        SET mails:paused x
        QUEUE PAUSED mails
        XADD bills:paused * a b
        QUEUE PAUSED bills
        QUEUE PAUSED mails GROUP audit
    """,
    "find-3": """
        QUEUE FIND mails
        QUEUE PUT mails a HEADERS 1 n t KEY k
        QUEUE PUT mails b DELAY 2000 PRIORITY 3 KEY k
        QUEUE PUT mails c
        time 1
        QUEUE PUT mails d KEY l
        QUEUE FIND mails KEY k
        QUEUE FIND mails HEADER n t
        QUEUE FIND mails STATE delayed
        QUEUE FIND mails SINCE 1700000001000
        QUEUE FIND mails COUNT 1
        QUEUE FIND mails COUNT 2 AFTER 1700000000000-0-0
        QUEUE TAKE mails anna COUNT 2
        QUEUE RETRY mails anna @a 1 unlucky DELAY 5000
        QUEUE FIND mails STATE running
        QUEUE FIND mails STATE paused
        QUEUE FIND mails STATE waiting GROUP audit
        reopen
        QUEUE FIND mails ERROR luck
        time 8
        QUEUE TAKE mails anna
        QUEUE TAKE mails anna
        QUEUE FAIL mails anna @a 2 bad
        QUEUE FIND mails STATE dead ERROR luck
        QUEUE FIND mails STATE gone
        QUEUE FIND mails AFTER x
        QUEUE FIND mails SINCE x
        QUEUE FIND mails COUNT 0
        QUEUE FIND mails HEADER n
        QUEUE FIND mails x
        QUEUE FIND
    """,
    "find-2": """
        QUEUE PUT mails a HEADERS 1 n Tea KEY k
        QUEUE PUT mails b DELAY 2000
        QUEUE FIND mails TEXT tEA
        QUEUE FIND mails TEXT K
        QUEUE FIND mails TEXT b STATE delayed
        QUEUE TAKE mails anna
        QUEUE FAIL mails anna @a 1 bad
        QUEUE FIND mails TEXT BAD
        QUEUE FIND mails TEXT none
        QUEUE FIND mails TEXT
    """,
    "workers-2": """
        QUEUE WORKERS mails
        QUEUE PUT mails a
        QUEUE PUT mails b PRIORITY 3
        QUEUE PUT mails c
        QUEUE TAKE mails anna COUNT 2
        time 2
        QUEUE TAKE mails ben
        QUEUE TAKE mails cleo
        QUEUE WORKERS mails
        QUEUE DONE mails anna @b 1
        QUEUE WORKERS mails
        QUEUE WORKERS mails GROUP audit
        QUEUE PROGRESS mails ben @a 1 0.5 TEXT half
        QUEUE WORKERS mails
        reopen
        QUEUE WORKERS mails
        QUEUE WORKERS mails x
        QUEUE WORKERS
    """,
    "hangs": """
        QUEUE PUT mails a
        QUEUE HANGS mails anna r1 2 0
        QUEUE HANGS mails anna r2 1 3
        QUEUE HANGS mails ben r3 1 0 GROUP audit
        QUEUE WORKERS mails
        QUEUE STATS mails MORE
        QUEUE STATS mails
        QUEUE HANGS mails anna r1 0 0
        QUEUE WORKERS mails
        time 40
        QUEUE WORKERS mails
        QUEUE HANGS mails anna r1 -1 0
        QUEUE HANGS mails anna r1 x 0
        QUEUE HANGS mails anna r1 1
    """,
    "job": """
        QUEUE PUT mails a HEADERS 1 n t KEY k
        QUEUE PUT mails b DELAY 2000 PRIORITY 3
        QUEUE PUT mails c
        QUEUE JOB mails @a
        QUEUE JOB mails @b
        QUEUE TAKE mails anna COUNT 2
        QUEUE JOB mails @a
        QUEUE DONE mails anna @a 1 RESULT r
        QUEUE RETRY mails anna @c 1 no DELAY 5000
        QUEUE JOB mails @a
        QUEUE JOB mails @c
        time 3
        QUEUE JOB mails @b
        reopen
        QUEUE TAKE mails anna
        QUEUE JOB mails @b
        time 6
        QUEUE TAKE mails anna
        QUEUE FAIL mails anna @c 2 bad
        QUEUE JOB mails @c
        QUEUE JOB mails @c GROUP audit
        QUEUE JOB mails 1-1
        QUEUE JOB none 1-1
        QUEUE JOB mails x
        QUEUE JOB mails
    """,
    "help-9": """
        QUEUE HELP
        QUEUE NONE
        reopen
        QUEUE PUT
    """,
    # The options of a queue, which each command may name.
    "options": """
        QUEUE PUTMANY mails 6 a b c d e f KEY k MAXDEPTH 4
        QUEUE TAKE mails anna CONCURRENCY 1
        QUEUE TAKE mails ben CONCURRENCY 1
        QUEUE TAKE mails ben CONCURRENCYPERKEY 1
        QUEUE TAKE mails ben RATE 2/m
        QUEUE TAKE mails carl RATE 2/m
        QUEUE TAKE mails carl COUNT 9 RATE 2/m
        QUEUE DONE mails ben @b 1 KEEPMS 5000
        QUEUE DONE mails carl @c 1 KEEP 1 KEEPMS 1000
        QUEUE RETRY mails anna @a 1 broken RETRYAFTER 3000 MAXDELIVERIES 3 MAXFAILURES 2 CODEC msgpack
        QUEUE LEN mails RATE 1
        QUEUE LEN mails CODEC
        QUEUE LEN mails KEEPMS x
        QUEUE LEN mails GROUP audit
        reopen
        QUEUE STATS mails KEEP 1
        time 61
        QUEUE TAKE mails anna COUNT 9 RATE 2/m CONCURRENCY 4 CONCURRENCYPERKEY 4
    """,
    # The retry policies of jobs and queues, and the lease.
    "retry-policies": """
        QUEUE PUT mails a RETRY max=2
        QUEUE PUTMANY mails 2 b c PRIORITY 2 RETRY base=3 ONCE lane 1
        QUEUE PUT mails d RETRY
        QUEUE PUT mails d RETRY max=0
        QUEUE PUTMANY mails 1 d RETRY never=Nothing
        QUEUE PUT mails d DELAY 1000 RETRY never=OSError
        QUEUE TAKE mails anna COUNT 3 LEASE 4000
        QUEUE TAKE mails anna COUNT 3 LEASE 4000
        QUEUE RETRY mails anna @b 1 no
        QUEUE RETRY mails anna @c 1 no MAXDELIVERIES 1
        QUEUE RETRY mails anna @a 1 no
        reopen
        time 5
        QUEUE TAKE mails ben COUNT 9 LEASE 4000 RETRYPOLICY max=1
        QUEUE FAILURES mails
        QUEUE DEAD mails LIST
        QUEUE LEN mails LEASE 0
        QUEUE LEN mails RETRYPOLICY max
        QUEUE LEN mails RETRYPOLICY
        time 40
        QUEUE TAKE mails ben COUNT 9
        QUEUE RETRY mails ben @a 2 no
        QUEUE DEAD mails LIST
        QUEUE PEEK mails
    """,
    # The limits of time of jobs.
    "time-limits": """
        QUEUE PUT mails a TIMELIMIT 2500
        QUEUE PUTMANY mails 2 b c PRIORITY 2 TIMELIMIT 1 ONCE lane 1
        QUEUE PUT mails d TIMELIMIT
        QUEUE PUT mails d TIMELIMIT 0
        QUEUE PUTMANY mails 1 d TIMELIMIT never
        QUEUE PUT mails d DELAY 1000 TIMELIMIT 4000 RETRY max=1
        QUEUE TAKE mails anna COUNT 3
        QUEUE FAIL mails anna @a 1 no
        QUEUE DEAD mails REDRIVE
        time 2
        QUEUE TAKE mails ben COUNT 9
    """,
    # Writes of the engine that a client of a shared store numbers, beside those of the queue, which have ONCE.
    "once-2": """
        TIDELOG ONCE lane 1 XADD mails * value a
        TIDELOG ONCE lane 1 XADD mails * value a
        QUEUE TAKE mails anna
        QUEUE PUT mails b ONCE lane 2
        TIDELOG ONCE lane 2 DEL mails
        TIDELOG ONCE lane 1 DEL mails
        TIDELOG ONCE lane 3 QUEUE PUT mails c
        TIDELOG ONCE lane 3 INCR mails
        TIDELOG ONCE lane 4 DEL mails
        QUEUE LEN mails
        reopen
        TIDELOG ONCE lane 4 DEL mails
        QUEUE PUT mails d ONCE lane 5
        time 3700
        QUEUE PUT mails d ONCE lane 5
        QUEUE LEN mails
    """,
}


class Talk:
    """One connection to the server of the world's store, and the IDs of jobs by their values."""

    def __init__(
        self, world: World, db: tidelog.Store, serving: Any, ids: dict[str, bytes]
    ) -> None:
        self.world, self.db, self._serving, self.ids = world, db, serving, ids
        self._link: Client = connect(serving.port)

    def ask(self, words: list[str], seconds: float = 0.0) -> None:
        """Send a command; if it has to wait, move the clock once it does."""
        args = [
            self.ids.get(w, w.encode()) if w[0] == "@" else w.replace("␣", " ").encode()
            for w in words
        ]
        if seconds:
            self._link.begin(*args)
            until(lambda: clients(self._serving)[1], f"it does not wait: {words}")
            self.pass_time(seconds)
            form = self._link.receive()
        else:
            form = self._link.call(*args)
        self.world.told(line(args), form)
        if words[:2] in (["QUEUE", "PUT"], ["TIDELOG", "ONCE"]) and isinstance(form, bytes):
            self.ids["@" + words[-1 if words[0] == "TIDELOG" else 3]] = form
        elif words[:2] in (["QUEUE", "TAKE"], ["QUEUE", "DEAD"]) and isinstance(form, list):
            self.ids.update((f"@{_value(job[-1])}", job[0]) for job in form)

    def pass_time(self, seconds: float) -> None:
        """Move the clock. Everything that has expired goes at once."""
        self.world.clock.advance(seconds)
        self.db.ping()

    def hang_up(self) -> None:
        """End the connection, and wait until the server knows."""
        self._link.close()
        until(lambda: not clients(self._serving)[0], "the server keeps the connection")

    def again(self) -> None:
        """Begin another connection."""
        self.hang_up()
        self._link = connect(self._serving.port)


def _value(row: list[Any]) -> str:
    found: bytes = row[row.index(b"value") + 1] if b"value" in row else b"none"
    return found.decode()


def talk(world: World, text: str, fsync: str) -> None:
    """Run a script, and fold its log at the end."""
    ids: dict[str, bytes] = {}
    lives = [life.strip().split("\n") for life in text.split("reopen\n")]
    for number, life in enumerate(lives, 1):
        with world.open(fsync=fsync) as db, tidelog.serve(db, port=0, hz=1) as serving:
            link = Talk(world, db, serving, ids)
            for words in map(str.split, life):
                if words[0] == "time":
                    link.pass_time(float(words[1]))
                elif words == ["hang", "up"]:
                    link.again()
                elif words[0] == "blocked":
                    link.ask(words[2:], float(words[1]))
                else:
                    link.ask(words)
            link.hang_up()
            if number < len(lives):
                world.copy()
            else:
                world.told("checkpoint", db.checkpoint())
            world.look(db)
