"""The evaluation: invented users and messages, through the HTTP API of a real proxy (see README.md)."""
