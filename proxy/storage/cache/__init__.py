"""What replicas share that may be lost at any time."""
