"""HTTP in: routes, identity, the two intercepted routes, the memory API.

Only here, and in the demo's model, is starlette known.
"""
