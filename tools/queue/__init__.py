"""`tidelog queue`: the durable queues of a store.

Commands that only read a queue read the log as all tools do, so the writer may be running. The commands that change a
queue (`put`, `cancel`, `move`, `pause`, `resume`, `dead redrive`, `dead purge`, `forget`, `purge`, `rm`) or a schedule
open the store for writing, or go through the process that serves it; if another process has it open, the error says
what to do.
"""
