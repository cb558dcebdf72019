"""Forgetting: what a forget is aimed at, what is erased with it, and how a large one does not block other
writes.

A user with little to forget is served by one transaction. Of a user with much, one short transaction places
an order: the generation rises, what the order covers is hidden from then on, and it is erased in portions,
between which others write. Whoever opens the file goes on with what a crash broke off.
"""
