"""The server's own commands. Importing this registers them in `server.table`."""

from tidelog.server.commands import (  # noqa: F401
    auth,
    client,
    config,
    debug,
    info,
    introspect,
    persistence,
    pubsub,
    scripts,
    slowlog,
    transactions,
    wait,
)
