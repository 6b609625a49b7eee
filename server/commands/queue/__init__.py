"""QUEUE: the durable queue for clients in any language. Each subcommand runs the decision of the embedded queue.

A client that takes jobs names itself a worker. The jobs live while its connection does (server/jobs.py). It settles
each with the worker's name, the job's ID and its number of deliveries; together they fence late workers.

Values are bytes. The options of a queue are not stored, so each command may name them (jobs/option_words.py).
"""
