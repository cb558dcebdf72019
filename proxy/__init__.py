"""memory-proxy: a streaming, OpenAI-compatible reverse proxy that gives an application a memory."""

__version__ = "0.1.0"
