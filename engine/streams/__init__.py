"""Streams: entries in nodes, nodes as blocks, blocks in pages, and the counters of a stream."""
