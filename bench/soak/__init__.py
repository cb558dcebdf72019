"""An hour under load: does anything grow, and is everything as promised? `scripts/soak --help`."""
