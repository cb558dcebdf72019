"""The command line. `main` has the parser; the other modules have the commands that work without a server."""
