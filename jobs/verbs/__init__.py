"""The verbs of a queue, a file for each: request, decision, words and reply, and what the tables of commands tell.

verb.py says what a verb is, ending.py what those about a delivery are, named.py those about
several. found.py finds all of them.
"""
