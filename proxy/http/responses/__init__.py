"""The Responses API on any upstream: forwarded where it is spoken, else translated and kept here."""
