"""The decision whether a turn needs memory, and how much its wording promises. Rules on the words alone."""
