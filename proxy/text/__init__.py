"""Text functions without I/O: terms, sentences, the memory block, reasoning marks."""
