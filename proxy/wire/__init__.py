"""What both APIs look like on the wire: bytes and JSON to plain values and back. No I/O."""
