"""The stores of a fleet: everything that replicas share, in Redis (or Valkey).

Redis holds the truth: one user's data are the hashes of a unit (unit.py), and every change of them is one
script that finds the user's revision unmoved. Vectors are searched in an index that can be made anew from it:
in Redis itself (points.py), or in Qdrant.
"""
