"""Reasoning that the client stores for us, in `encrypted_content`.

Clients that keep no state at the server (`store: false`) ask for it, drop the plain thoughts and send this
back; models that think between their tool calls need them then, and some servers refuse to go on without.
It is packed, not secret: the same thoughts stand in clear beside it.
"""

import base64
import binascii

_MARK = "mp1."  # tells ours from what another server sealed, which nobody here could read


def seal(thoughts: str) -> str:
    """Return the thoughts as one opaque word."""
    return _MARK + base64.urlsafe_b64encode(thoughts.encode("utf-8", "replace")).decode("ascii")


def unseal(sealed: object) -> str:
    """Return the thoughts; "" for what we did not seal."""
    if not isinstance(sealed, str) or not sealed.startswith(_MARK):
        return ""
    try:
        return base64.urlsafe_b64decode(sealed.removeprefix(_MARK)).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
