"""Implementations of the ports: where memories live, and the local models."""
