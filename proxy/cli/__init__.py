"""The commands beside `serve`: each in a module of its own, what several have in common in `shared`."""
