"""The commands of streams: XADD, XDEL, XTRIM, XRANGE, XREAD, XSETID and their relatives."""
