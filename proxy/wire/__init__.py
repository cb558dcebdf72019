"""Codecs of both APIs: bytes and JSON to plain values and back. No I/O."""
