"""The commands of consumer groups: XGROUP, XREADGROUP, XACK, XCLAIM, XAUTOCLAIM, XNACK, XPENDING and XINFO."""
