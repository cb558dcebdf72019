"""What the endpoints of stored objects share: identifying the caller, pagination, and OpenAI's shapes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from proxy.domain.errors import Forbidden, InvalidRequest, NotFound, ProxyError, StoreError
from proxy.http.asgi import OFF_LOOP, ASGIScope, error_of
from proxy.http.auth.identity import Caller
from proxy.http.responses.owners import Owner, owner_of
from proxy.wire import body as json_body
from proxy.wire.extensions import checked_id

Identify = Callable[[ASGIScope], Caller]

DEFAULT_LIMIT, MOST = 20, 100


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for."""

    limit: int
    after: str | None
    ascending: bool


def asker(request: Request, identify: Identify, named: str | None = None) -> Owner:
    """Return who asks. A user is named by the body (`named`), by `user_id` in the query or by the header.

    Raises Forbidden if one of them is not the credential's, and for a web page of another origin: what is
    kept here is what users said."""
    caller = identify(request.scope)
    if caller.foreign:
        raise Forbidden(
            "Web pages of this origin, and requests under this host name, may not use what is stored here"
            " (identity.allowed_origins, identity.allowed_hosts).",
            param="origin",
            code="origin_not_allowed",
        )
    in_query = _user_in_query(request)
    if in_query is not None:
        caller.narrow(in_query)
    user = caller.narrow(in_query) if named is None else caller.narrow(named, "memory_context.user_id")
    return owner_of(caller, request.scope["headers"], user)


def _user_in_query(request: Request) -> str | None:
    given = request.query_params.getlist("user_id")
    if len(given) > 1:
        raise InvalidRequest("`user_id` is given twice.", param="user_id")
    return checked_id(given[0], "user_id") if given else None


def page_of(params: Mapping[str, str]) -> Page:
    """Return `limit`, `after` and `order`; newest first by default. Raises InvalidRequest."""
    text, order = params.get("limit", str(DEFAULT_LIMIT)), params.get("order", "desc")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST):
        raise InvalidRequest(f"`limit` must be a whole number from 1 to {MOST}.", param="limit")
    if order not in ("asc", "desc"):
        raise InvalidRequest("`order` must be asc or desc.", param="order")
    return Page(int(text), params.get("after") or None, order == "asc")


def cut(items: Sequence[Any], page: Page) -> tuple[Sequence[Any], bool]:
    """Return the page of items given oldest first, and whether there are more. Raises InvalidRequest."""
    ordered = list(items) if page.ascending else list(reversed(items))
    if page.after is not None:
        place = next((i for i, item in enumerate(ordered) if item.get("id") == page.after), None)
        if place is None:
            raise unknown_after()
        ordered = ordered[place + 1 :]
    return ordered[: page.limit], len(ordered) > page.limit


def unknown_after() -> InvalidRequest:
    """Return what a cursor that names no item of the list is refused with."""
    return InvalidRequest("`after` is no item of this list.", param="after")


def listed(items: Sequence[Any], *, has_more: bool) -> dict[str, Any]:
    """Return OpenAI's list object."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def answer(value: Any, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(json_body.dump(value), status, media_type="application/json")


async def answer_large(value: Any, size: int) -> Response:
    """Return a JSON answer of about so many bytes, written off the event loop where that takes long."""
    body = await OFF_LOOP.run(size, json_body.dump_large, value)
    return Response(body, media_type="application/json")


async def refuse(request: Request, error: Exception) -> Response:
    """Answer one of our errors."""
    assert isinstance(error, ProxyError)
    status, body = error_of(error)
    return answer(body, status)


async def no_route(request: Request, error: Exception) -> Response:
    """Answer a path or method that there is not."""
    assert isinstance(error, HTTPException)
    _, body = error_of(
        NotFound(f"No such endpoint: {request.method} {request.url.path}.", code="unknown_url")
    )
    return Response(
        json_body.dump(body), error.status_code, headers=error.headers, media_type="application/json"
    )


REFUSALS = {ProxyError: refuse, StoreError: refuse, HTTPException: no_route}
