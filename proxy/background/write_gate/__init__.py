"""From candidates to memories: what is new, what is known already, what takes the place of what."""
