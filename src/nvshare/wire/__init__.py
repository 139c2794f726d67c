"""Bytes to messages and back, for every protocol version. Pure: no I/O, no clock, standard library only."""
