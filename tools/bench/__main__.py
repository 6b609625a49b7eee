"""`python -m tidelog.tools.bench`."""

from tidelog.tools.bench.command import main

main()
