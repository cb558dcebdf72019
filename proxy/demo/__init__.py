"""The scripted model and the tour of `memory-proxy demo`. A proxy with an upstream imports neither."""
