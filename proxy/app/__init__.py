"""Wiring of one process: stores, models and clients meet the parts that use them, and their lifetimes."""
