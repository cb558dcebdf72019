"""HTTP in: routes, identity, the two intercepted routes, the memory API. Only here is starlette known."""
