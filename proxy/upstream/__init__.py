"""The way to the model: relayed requests of clients, and our own calls."""
