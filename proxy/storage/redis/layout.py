"""The key layout: the tables of a user's unit, their rows, and what all users share.

Rows are JSON objects. Times are Unix seconds. A `seq` is the user's own counter (Unit.next): it orders what
came in. A session is named in keys by `sid(project, name)`: names are the clients', and may be anything.

A user's tables                     row by name
  owner (not a table)               the user, `revision`, `generation`, `version`, `last`, the counters
                                    `memories` and `content_bytes` that the quota asks for, `documents` and
                                    their `passages`, `library`: changes of them so far, `of:<n>`: memories
                                    of the model of generation n, `in:<n>`: those of them that the index
                                    holds, `session`: the seq of the last one begun, and `home`: how often
                                    all tables but `receipts` and `forgets` were left behind
  memories                          MemoryRow by memory id: the truth about what is remembered
  events                            list of EventRow by memory id, oldest first
  said                              id of the current memory by `said_key`: one statement is stored once
  words                             by term: how many memories of which groups hold it, for BM25 (words.py)
  groups                            by `type project`: [its number, memories in it, their length in terms]
  lapsing                           by day: expires_at by memory id, and the `days` there are
  order                             by seq // 256: memory id by seq, for lists and pages (order.py)
  weakest (a sorted set)            memory ids in the order in which they make room (weakest.py)
  successions                       ids of those whose `superseded_by` it is, by memory id
  cited                             ids of those that name it as what they come from, by exchange id,
                                    and by the `summary_key` and `summaries_key` of a session that they sum up
  vectors   (bytes)                 float32 by memory id, until the index has it
  unindexed                         when it is due by memory id: the index has yet to hold what its row says
  obsolete                          when it is due by memory id: the index may still hold a point of it
  sessions                          SessionRow by sid
  exchanges:<sid>                   ExchangeRow by seq
  keys:<sid>                        seq by the exchange's key
  where                             [sid, seq] by exchange id
  shown:<memory or document id>     1 by `sid seq`: the answers that were given with it in view
  made                              `sid exchange id` by response id: what a response was made in, by an
                                    earlier version the sid alone
  unread                            list of UnreadRow by sid, oldest first: what is answered and not extracted
  jobs                              JobRow by job id: queued, running, or waiting for a credential
  dead                              JobRow by job id: dead letters
  anchors:<sid>                     AnchorRow by seq
  anchored                          sid by exchange id: exchanges that anchors were said in
  states                            StateRow by sid
  held                              HeldRow by held id
  receipts                          ReceiptRow by receipt id
  forgets                           ForgetRow by the id of the receipt to come: what is under way in portions
  stored                            StoredRow by response id: what is known of a response kept
  next                              ids of the responses that continue it, by response id
  bodies    (bytes)                 by `response id r` and `response id i`: the response, its input items
  conversations                     ConversationRow by id
  items:<conversation id>           ItemRow by item id
  documents                         DocumentRow by document id
  titles                            document id by `title_key`
  passages:<document id>            PassageRow by the passage's number
  passage-terms:<document id>   (bytes) by number: its section, and the hashes of its terms
  passage-vectors:<document id> (bytes) by number: the vector's generation, and the vector
  moved                             MovedRow under "from": where the user's data were moved from

The unit of nobody, layout.NOBODY
  api-keys                          KeyRow by digest

What all users share (Redis.key), changed by Unit.share in the same step
  ids:<tenant>                      hash: uid by memory id; no id names the memories of two users of a tenant
  documents:<tenant>                hash: uid by document id
  to-embed                          sorted set of `uid document id`, of all documents, by the oldest
                                    generation of their vectors: below the store's, they wait for new ones
  to-embed:<uid document id>        there while a process gives them vectors; expires
  users                             hash: JSON [tenant, user] by uid: everybody who has anything
  names                             sorted set of `tenant NUL user`, all with score 0: the same by name
  job-numbers                       how many jobs there ever were. A job's id is `uid.number`
  served                            how many claims there ever were: ranks of who was served
  due:<lane>                        sorted set of uids that have a job of the lane due and none running, by
                                    who was served last, and first by the job's number who never was
  claiming:<uid>                    there while a process is about to claim a job of the user; expires
  later                             sorted set of job ids by when the job is due
  running                           hash: JSON [when the lease ends, instance] by job id
  jobs:<state>                      sorted set of job ids by number, for counting and listing
  queued-since                      sorted set of ids of queued jobs by creation
  waiting                           hash: JSON (see waiting.py) by `uid sid`: sessions with unread exchanges
                                    and no job to come
  open                              hash: instance by `uid exchange id`: exchanges that are being answered
  sweeping                          token of the process that sweeps
  oldest                            sorted set of `uid sid` by when the session's oldest exchange was, or
                                    was last looked at: what retention removes
  unsummarised                      sorted set of `uid sid` by when the session was last used, 0 of one that
                                    has ended: to be summed up, and no closing job is queued
  expiring                          sorted set of `uid memory id` by expires_at
  used-conversations                sorted set of `uid conversation id` by when something was last added
  expiring-responses                sorted set of `uid response id` by when to see whether it can go
  unindexed                         sorted set of uids by when something of theirs is due to be indexed
  forgets                           sorted set of `uid receipt id` of forgets under way, by until when
                                    somebody is at it
  purge-due, purged                 set when something was forgotten, and when the append-only file was
                                    written anew for it: see purging.py
  receipts:<tenant>                 list of `uid receipt id`, the oldest first
  moved-jobs                        hash: JSON [the number below its first job's, how many] by directory
                                    that was moved from
  limit:<digest>                    when the subject of a rate limit is back at nothing; expires then
  models                            list of the embedding models as JSON [name, dimension]; the position is
                                    the generation of their vectors, the last one is the store's
  embedded                          set of the generations that there ever were vectors of
"""

import hashlib
from typing import Any, NotRequired, TypedDict

from proxy.domain.core import Scope, Source
from proxy.domain.oversight import JobState
from proxy.storage.texts import storable as storable
from proxy.text import terms

NOBODY = Scope("\x1f", "\x1f")
"""Whose is what belongs to no user: ids hold no control characters."""


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


def summary_key(project: str | None, session: str) -> str:
    """Return under what the summaries of a session are cited."""
    return f"summary\0{storable(project or '')}\0{storable(session)}"


def summaries_key(session: str) -> str:
    """Return under what the summaries are cited of all sessions of this name, whatever their projects."""
    return f"summaries\0{storable(session)}"


def title_key(project: str | None, name: str) -> str:
    """Return what two documents of a user cannot share."""
    return f"{storable(project or '')}\0{storable(name)}"


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
    source: Source
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
    terms: str  # of the content, in order, with spaces between them
    written: int  # version of the last Create, Edit, later end or new model: what the index has to hold
    vector: int | None  # version under which its vector came; None: it has none
    generation: int  # of the model that was at hand then; -1: none was


class EventRow(TypedDict):
    seq: int
    at: float
    action: str
    by: str
    content: str


class SessionRow(TypedDict):
    """`seqs` are those of its exchanges, in order, `open` those of them that are being answered; of two
    sessions, the one begun later has the higher `seq`. From the exchange `silent` on, no memory is made of
    answers (see in_view); a row of an earlier version does not say."""

    seq: int
    project: str | None
    name: str
    last_at: float
    seqs: list[int]
    open: list[int]
    ended: bool
    stateful: bool
    retold: bool
    unsummarised: int
    silent: NotRequired[int]


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
    holders: int  # requests with this key under way
    timezone: NotRequired[str]  # the user's when it was said; UTC before there was this field
    dated: NotRequired[float | None]  # when it was said, where that was before `at`


class UnreadRow(TypedDict):
    """An exchange that is answered and not extracted."""

    seq: int
    explicit: bool
    personal: bool
    job: str | None  # the job that reads it, or died of it
    dead: bool  # with its job
    at_work: NotRequired[bool]  # tools are, for the end of its answer


class JobRow(TypedDict):
    seq: int  # the number in its id
    sid: str
    upto: int
    lane: int
    state: JobState
    attempts: int
    due_at: float
    delayed: bool  # nobody has found it due yet
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
    source: Source
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
    project: str | None
    type: str | None
    memory_id: str | None
    by: str
    at: float
    counts: dict[str, int]


class ForgetRow(TypedDict):
    """A forget that goes in portions: of a project's or a type's memories, or of all in a home."""

    project: str | None
    type: str | None
    by: str
    at: float
    upto: int  # the last seq that it covers
    left: str | None  # the home that is to be cleared: nobody can see what is in it
    until: float  # when another process may go on with it
    counts: dict[str, int]  # of what is erased already; of a home: of what was in it, {} until it is counted


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
    size: NotRequired[int]  # bytes of its bodies; absent in rows of earlier versions


class ConversationRow(TypedDict):
    """`items` are the ids of its items, in order of arrival."""

    project: str | None
    metadata: str  # JSON
    created_at: float
    items: list[str]
    used_at: NotRequired[float | None]  # None: it does not expire; absent in rows of earlier versions
    size: NotRequired[int]  # bytes of its items; absent in rows of earlier versions


class ItemRow(TypedDict):
    project: str | None  # of who added it
    session: str | None  # in which it was said; None: added by the client itself
    item: str  # JSON


class DocumentRow(TypedDict):
    """A Document (see documents), without its scope's tenant and user. Its passages have the numbers from
    `first` on, which none of another version or document has."""

    seq: int  # of this version: what was written last has the highest
    project: str | None
    name: str
    version: int
    digest: str  # hexadecimal
    characters: int
    sections: int
    first: int
    generations: list[int]  # of each passage's vector; -1: none was made
    created_at: float
    updated_at: float


class PassageRow(TypedDict):
    """A Passage."""

    headings: list[str]
    section: int
    tile: str
    start: int
    lead: int


class KeyRow(TypedDict):
    """One of the proxy's own API keys."""

    seq: int
    id: str
    name: str
    tenant: str
    user: str | None
    rights: list[str]
    upstream_key: str | None  # base64 of what is sealed with the key
    created_at: float
    revoked_at: float | None


class MovedRow(TypedDict):
    """How far a user has come who is moved from a data directory: see stores/migrate."""

    source: str  # the directory
    fingerprint: str  # of what it has of the user
    generation: int  # the user's then: another one here tells that something was forgotten since
    jobs_after: int  # its jobs have these numbers, and theirs of the directory on top
    pieces: int  # that are here
    whole: bool
    found: dict[str, Any] | None  # what was counted here when both sides agreed
