"""Replication: a leader ships the frames of its log over a link, and a follower appends and applies them.

Rules for what may live here:

* Only `link` knows sockets and the clock. Every other module takes bytes and returns bytes, and gets the time as an
  argument, so its tests open no socket and never sleep.
* Nothing that comes from the other side is trusted: a message is checked before it is used, and a frame is checked
  as recovery checks it before it is appended.
"""
