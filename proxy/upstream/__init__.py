"""Everything that is sent to the model: clients' requests, whose answers are relayed, and our own calls."""
