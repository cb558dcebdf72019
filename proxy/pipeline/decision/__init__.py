"""Does this turn need memory, and how much does its form promise? Rules on the words alone."""
