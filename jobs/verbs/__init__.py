"""The verbs of a queue, a file for each: request, decision, words and reply, and what the tables of commands tell.

verb.py says what a verb is, ending.py what those about a delivery are, found.py finds all of them.
"""
