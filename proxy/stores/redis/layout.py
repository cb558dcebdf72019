"""What is kept where: the tables of a user's unit, their rows, and what all users share.

Rows are JSON objects. Times are Unix seconds. A `seq` is the user's own counter (Unit.next): it orders what
came in. A session is named in keys by `sid(project, name)`: names are the clients', and may be anything.

A user's tables                     row by name
  owner (not a table)               the user, `revision`, `generation`, `version`, `last`, and the counters
                                    `memories` and `content_bytes` that the quota asks for
  memories                          MemoryRow by memory id: the truth about what is remembered
  events                            list of EventRow by memory id, oldest first
  said                              id of the current memory by `said_key`: one statement is stored once
  words                             of the memories current: counts by `project type term`, for BM25
  vectors   (bytes)                 float32 by memory id, until the index has it
  unindexed                         by memory id: its row and the index have yet to be made to agree
  sessions                          SessionRow by sid
  exchanges:<sid>                   ExchangeRow by seq
  keys:<sid>                        seq by the exchange's key
  where                             [sid, seq] by exchange id
  shown:<memory id>                 1 by `sid seq`: the answers that were given with it in view
  made                              sid by response id: the session that a response was made in
  jobs                              JobRow by job id
  anchors:<sid>                     AnchorRow by seq
  states                            StateRow by sid
  held                              HeldRow by held id
  receipts                          ReceiptRow by seq
  stored                            StoredRow by response id: what is known of a response kept
  bodies    (bytes)                 by `response id r` and `response id i`: the response, its input items
  conversations                     ConversationRow by id
  items:<conversation id>           ItemRow by seq

What all users share (Redis.key), changed by Unit.share in the same step
  ids:<tenant>                      hash: uid by memory id; no id names the memories of two users of a tenant
  users                             hash: JSON [tenant, user] by uid: everybody who has anything
  due:<lane>                        sorted set of uids that have a job of the lane due, by who was served last
  later                             sorted set of `uid job` by when the job is due
  leased                            sorted set of `uid job` by when the lease ends
  waiting                           hash: SessionState as JSON by `uid sid`: sessions with unread exchanges
                                    and no job
  open                              hash: instance by `uid exchange id`: exchanges that are being answered
  jobs:<state>                      sorted set of `uid job` by creation, for counting and listing
  unsummarised                      sorted set of `uid sid` by when the session was last used
  expiring                          sorted set of `uid memory id` by expires_at
  expiring-responses                sorted set of `uid response id` by expires_at
  unindexed                         sorted set of uids by when they last had something to be indexed
  api-keys                          hash: key by digest
  model                             the embedding model whose vectors the index holds
"""

import hashlib
from typing import NotRequired, TypedDict

from proxy import terms


def sid(project: str | None, name: str) -> str:
    """Return what stands for a session in keys."""
    text = f"{'' if project is None else '1' + project}\0{name}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def digest(content: str) -> str:
    """Return what two wordings of the same statement have in common."""
    return hashlib.blake2b(storable(terms.normalise(content)).encode(), digest_size=16).hexdigest()


def said_key(project: str | None, type: str, content: str) -> str:
    """Return what two current memories of a user cannot share."""
    return f"{project or ''}\0{type}\0{digest(content)}"


def storable(text: str) -> str:
    """Return the text with lone surrogates replaced: JSON can carry them, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class EvidenceRow(TypedDict):
    session_id: str
    exchange_id: str
    span: str


class MemoryRow(TypedDict):
    """A Memory (see domain), without its scope's tenant and user."""

    seq: int
    project: str | None
    type: str
    content: str
    source: str
    created_at: float
    updated_at: float
    valid_from: float
    valid_to: float | None
    superseded_by: str | None
    expires_at: float | None
    archived: bool
    importance: float
    weight: float
    confidence: float
    tags: list[str]
    evidence: list[EvidenceRow]
    access_count: int
    last_accessed: float | None
    written: int  # version of the last change of content, type or project: what the index has to agree with
    has_vector: bool


class EventRow(TypedDict):
    at: float
    action: str
    by: str
    content: str


class SessionRow(TypedDict):
    """`seqs` are those of its exchanges, in order."""

    project: str | None
    name: str
    last_at: float
    seqs: list[int]
    ended: bool
    stateful: bool
    retold: bool
    unsummarised: int


class ExchangeRow(TypedDict):
    seq: int
    id: str
    key: str
    generation: int
    model: str
    said: str
    answer: str
    recalled: list[str]
    at: float
    open: bool  # being answered
    whole: bool
    explicit: bool
    personal: bool
    instance: str
    holders: int
    extraction: str  # "pending" | "done" | "dead"
    job: str | None  # the job that has read it


class JobRow(TypedDict):
    seq: int
    sid: str
    upto: int
    lane: int
    state: str  # "queued" | "running" | "waiting" | "dead"
    attempts: int
    due_at: float
    leased_until: float | None
    instance: str | None
    created_at: float
    reason: str
    closing: bool


class AnchorRow(TypedDict):
    seq: int
    exchange: int  # its seq
    exchange_id: str
    slot: str
    content: str
    holds: bool
    at: float


class StateRow(TypedDict):
    upto: int
    content: dict[str, str | list[str]]
    at: float
    marks: list[str]


class HeldRow(TypedDict):
    """A candidate in quarantine."""

    seq: int
    project: str | None
    type: str
    content: str
    reason: str
    source: str
    confidence: float
    importance: float
    tags: list[str]
    replaces: str | None
    observed_at: float
    expires_at: float | None
    session_id: str
    exchange_id: str
    span: str
    at: float


class ReceiptRow(TypedDict):
    seq: int
    id: str
    project: str | None
    type: str | None
    memory_id: str | None
    by: str
    at: float
    counts: dict[str, int]


class StoredRow(TypedDict):
    seq: int
    project: str | None
    session: str
    previous_id: str | None
    conversation_id: str | None
    created_at: float
    expires_at: float | None
    recalled: list[str]
    deleted: bool  # by its owner: kept so that nothing stores it again


class ConversationRow(TypedDict):
    seq: int
    project: str | None
    metadata: str  # JSON
    created_at: float


class ItemRow(TypedDict):
    seq: int
    id: str
    project: str | None
    session: str | None  # in which it was said; None: added by the client itself
    item: str  # JSON
    size: NotRequired[int]
