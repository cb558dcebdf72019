"""Text functions without I/O: words and sentences, relative dates."""
