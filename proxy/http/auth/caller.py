"""Who is calling, and what that lets them touch.

A credential decides the tenant, and often the user; what a request names can only narrow that. The entrance
(entrance.py) puts the caller into the ASGI scope of every request below /v1; whatever serves the request
reads it there with `caller_of`, and nothing else decides whose memories are touched.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.domain.core import Scope
from proxy.domain.errors import Forbidden, InvalidRequest
from proxy.domain.oversight import RIGHTS
from proxy.http.reply import ASGIScope
from proxy.wire.extensions import checked_id, take_header_extensions

OPEN_TENANT = "default"
USER_HEADER = "X-Memory-User-Id"
PROJECT_HEADER = "X-Memory-Project-Id"
_CALLER = "memory_proxy.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """A credential's meaning. `user` is fixed by the credential, or None where the caller may name one."""

    tenant: str
    user: str | None = None
    named: str | None = None  # the user that the request's header names
    project: str | None = None  # the project that the request's header names
    timezone: str | None = None  # that the request's header names
    rights: frozenset[str] = RIGHTS
    label: str = "open"  # who did it, in receipts: "open", "key:<id>", "jwt", "header"
    foreign: bool = False  # a web page of another origin asks: it gets no memory (see browsers.py)
    project_key: Callable[[str], str] = str  # what a project's id is stored as: a digest, if it is a secret

    def stored_project(self, project_id: str | None) -> str | None:
        """Return what the project is stored under."""
        return None if project_id is None else self.project_key(project_id)

    def require(self, right: str) -> None:
        """Raise Forbidden unless the credential carries the right (see oversight.RIGHTS)."""
        if right not in self.rights:
            raise Forbidden(f"This credential lacks the right `{right}`.", code="missing_right")

    def narrow(self, user_id: str | None, param: str = "user_id") -> str | None:
        """Return the user to look inside, None for all of the tenant. Where the credential fixes the user,
        naming another one is Forbidden, wherever the request names it: `param` is what the request calls
        the place of `user_id`. Ids are compared exactly."""
        if self.user is None:
            return self.named if user_id is None else user_id
        for wanted, place in ((user_id, param), (self.named, USER_HEADER)):
            if wanted is not None and wanted != self.user:
                raise Forbidden("This credential belongs to another user.", param=place)
        return self.user

    def scope(self, user_id: str | None, project_id: str | None) -> Scope:
        """Return the scope that the request asks for; a user must be known."""
        user = self.narrow(None if user_id is None else checked_id(user_id, "user_id"))
        if user is None:
            why, code = "`user_id` is required.", "missing_required_parameter"
            raise InvalidRequest(why, param="user_id", code=code)
        return Scope(self.tenant, user, self.project_of(project_id))

    def project_of(self, project_id: str | None) -> str | None:
        """Return the project that the request asks for, by `project_id` or by its header. Raises
        InvalidRequest where they differ: whichever won, more or something else could be meant."""
        project = None if project_id is None else self.project_key(checked_id(project_id, "project_id"))
        if project is None or self.project in (None, project):
            return project or self.project
        why = f"`project_id` and {PROJECT_HEADER} name two projects."
        raise InvalidRequest(why, param=PROJECT_HEADER, code="invalid_value")

    def sees(self, project: str | None) -> bool:
        """True unless what lies in the project is kept from a request whose header names another one. What
        is of no project belongs to each."""
        return self.project is None or project in (None, self.project)


OPEN = Caller(OPEN_TENANT)
"""Whoever calls in mode `open`: one tenant, and the user that the request names is believed."""


def admit(scope: ASGIScope, caller: Caller) -> None:
    """Note in the scope who calls. Only the entrance does."""
    scope[_CALLER] = caller


def admitted(scope: ASGIScope) -> Caller:
    """Return who calls, whomever the request names. Raises KeyError where nobody was admitted."""
    caller: Caller = scope[_CALLER]
    return caller


def caller_of(scope: ASGIScope, project_key: Callable[[str], str] = str) -> Caller:
    """Return who calls, with the user and the project that the request's headers name. `project_key`: see
    Caller.

    Raises Forbidden if the credential belongs to another, InvalidRequest for a malformed header; and
    KeyError where nobody was admitted: a route that the entrance does not guard must not answer.
    """
    caller = admitted(scope)
    said = take_header_extensions(scope["headers"])
    if said.user_id is not None:
        caller.narrow(said.user_id, USER_HEADER)
    caller = replace(caller, named=said.user_id, timezone=said.timezone, project_key=project_key)
    return replace(caller, project=caller.stored_project(said.project_id))
