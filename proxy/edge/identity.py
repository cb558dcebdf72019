"""Who is calling, and what that lets them touch.

Mode `open`: one tenant, and the user that the caller names is believed. It is for an application's own
backend and for local use; serving it beyond loopback takes an explicit `--allow-open`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.domain import Scope
from proxy.errors import Forbidden, InvalidRequest
from proxy.wire.extensions import checked_id, take_header_extensions

OPEN_TENANT = "default"


@dataclass(frozen=True, slots=True)
class Caller:
    """A credential's meaning. `user` is fixed by the credential, or None where the caller may name one."""

    tenant: str
    user: str | None = None
    named: str | None = None  # the user that the request's header names

    def narrow(self, user_id: str | None) -> str | None:
        """Return the user to look inside, None for all of the tenant. Another's user_id is Forbidden."""
        wanted = user_id or self.named
        if self.user and wanted and wanted != self.user:
            raise Forbidden("This credential belongs to another user.", param="user_id")
        return self.user or wanted

    def scope(self, user_id: str | None, project_id: str | None) -> Scope:
        """Return the scope that the request asks for; a user must be known."""
        user = self.narrow(checked_id(user_id, "user_id") if user_id is not None else None)
        if user is None:
            raise InvalidRequest("`user_id` is required.", param="user_id")
        return Scope(
            self.tenant, user, checked_id(project_id, "project_id") if project_id is not None else None
        )


def open_caller(headers: Iterable[tuple[bytes, bytes]]) -> Caller:
    """Return the caller of a request in mode `open`."""
    return Caller(OPEN_TENANT, named=take_header_extensions(headers).user_id)
