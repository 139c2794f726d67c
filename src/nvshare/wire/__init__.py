"""Bytes to messages and back, for every protocol version. No I/O, no clock, nothing but the standard library."""
