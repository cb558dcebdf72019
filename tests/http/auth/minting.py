"""Keys for tests: in the store, as `memory-proxy keys create` would make them."""

from proxy.domain.ports import Key
from proxy.http.auth import keys


async def mint(store, *, tenant="default", user=None, rights="chat,memory", upstream_key=None):
    """Return a new key, and its id."""
    secret, id_ = keys.new_key(), keys.new_id()
    made = Key(
        id=id_, name="test", tenant=tenant, user=user, rights=frozenset(rights.split(",")),
        upstream_key=None if upstream_key is None else keys.seal(secret, upstream_key), created_at=1.0,
    )  # fmt: skip
    await store.add(made, keys.digest_of(secret))
    return secret, id_
