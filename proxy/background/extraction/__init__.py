"""From exchanges to candidates: what was stated, and whose words it rests on."""
