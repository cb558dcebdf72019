"""Rows of documents and of their passages: how a document is written, replaces an older version, gets
vectors, and is erased. Runs inside a unit of work.
"""

import struct
from collections.abc import Collection, Mapping, Sequence
from uuid import uuid4

from proxy.domain.core import Scope
from proxy.domain.documents import INDEXING, READY, Document, Limits, NewDocument, Passage, searched_text
from proxy.storage import usage
from proxy.storage.exact.postings import pack
from proxy.storage.generations import NO_MODEL
from proxy.storage.in_view import DOCUMENT
from proxy.storage.redis.connection import Redis
from proxy.storage.redis.layout import DocumentRow, PassageRow, storable, title_key
from proxy.storage.redis.unit import Unit
from proxy.text import terms

TO_EMBED = "to-embed"
_SHOWN_EVERY = 256  # vectors of a document
_HEAD = struct.Struct("<i")  # of terms: their section; of a vector: its generation


# ---------------------------------------------------------------- values
def document_of(scope: Scope, document_id: str, row: DocumentRow, newest: int) -> Document:
    """Return the document of the scope's user that the row holds. `newest`: the generation of the store's
    model, -1 before there was one."""
    waits = min(row["generations"]) < newest
    return Document(
        id=document_id, scope=Scope(scope.tenant, scope.user, row["project"]), name=row["name"],
        version=row["version"], status=INDEXING if waits else READY, digest=bytes.fromhex(row["digest"]),
        characters=row["characters"], sections=row["sections"], passages=len(row["generations"]),
        created_at=row["created_at"], updated_at=row["updated_at"],
    )  # fmt: skip


def passage_of(row: PassageRow) -> Passage:
    """Return the passage that the row holds."""
    return Passage(
        headings=tuple(row["headings"]), section=row["section"], tile=row["tile"], start=row["start"],
        lead=row["lead"],
    )  # fmt: skip


def numbers_of(row: DocumentRow) -> range:
    """Return the numbers of the document's passages, in order."""
    return range(row["first"], row["first"] + len(row["generations"]))


def packed_terms(passage: Passage) -> bytes:
    """Return what the passage is found by, as its row holds it."""
    return with_section(passage.section, pack(terms.terms(searched_text(passage.headings, passage.text))))


def with_section(section: int, hashes: bytes) -> bytes:
    return _HEAD.pack(section) + hashes


def with_generation(generation: int, vector: bytes) -> bytes:
    return _HEAD.pack(generation) + vector


def unpacked(value: bytes) -> tuple[int, bytes]:
    """Return a section and its terms, or a generation and its vector."""
    (head,) = _HEAD.unpack_from(value)
    return head, value[_HEAD.size :]


# ---------------------------------------------------------------- rows
async def named(unit: Unit, project: str | None, name: str) -> tuple[str, DocumentRow] | None:
    """Return id and row of the document of this name in just this project, or of none."""
    document_id = await unit.table("titles").get(title_key(project, name))
    if document_id is None:
        return None
    return document_id, await unit.table("documents").get(document_id)


async def put(
    unit: Unit, new: NewDocument, words: Sequence[bytes], generation: int
) -> tuple[str, DocumentRow]:
    """Write a document, in the place of what has its name; return its id and row. `words`, one a passage, are
    as `packed_terms` gives them; `generation`: of the vectors that come with it."""
    old = await named(unit, new.scope.project, new.name)
    document_id, before = old or (f"{DOCUMENT}{uuid4().hex}", None)
    if before is not None:
        erase_passages(unit, document_id, before)
    seq, first = unit.next(), unit.number("last") + 1
    unit.set_number("last", unit.number("last") + len(new.passages))
    last = new.passages[-1]
    row: DocumentRow = {
        "seq": seq, "project": new.scope.project and storable(new.scope.project), "name": storable(new.name),
        "version": before["version"] + 1 if before else 1, "digest": new.digest.hex(),
        "characters": last.start + len(last.tile), "sections": len({p.section for p in new.passages}),
        "first": first, "generations": [NO_MODEL if new.vectors is None else generation] * len(new.passages),
        "created_at": before["created_at"] if before else new.at, "updated_at": new.at,
    }  # fmt: skip
    made: Sequence[bytes | None] = new.vectors or (None,) * len(new.passages)
    for number, passage, hashes, vector in zip(numbers_of(row), new.passages, words, made, strict=True):
        put_passage(unit, document_id, number, row_of(passage), hashes)
        if vector is not None:
            put_vector(unit, document_id, number, vector, generation)
    put_document(unit, document_id, row)
    return document_id, row


def row_of(passage: Passage) -> PassageRow:
    """Return the row of a passage."""
    return {
        "headings": [storable(title) for title in passage.headings], "section": passage.section,
        "tile": storable(passage.tile), "start": passage.start, "lead": passage.lead,
    }  # fmt: skip


def put_document(unit: Unit, document_id: str, row: DocumentRow) -> None:
    """Write a document's own row where there is none, and make it known."""
    unit.table("documents").put(document_id, row)
    unit.table("titles").put(title_key(row["project"], row["name"]), document_id)
    _count(unit, documents=1, passages=len(row["generations"]))
    unit.share("HSET", _ids(unit), document_id, unit.uid)
    _list(unit, document_id, row)


def put_passage(unit: Unit, document_id: str, number: int, row: PassageRow, hashes: bytes) -> None:
    """Write a passage without its vector."""
    unit.table(f"passages:{document_id}").put(str(number), row)
    unit.blobs(f"passage-terms:{document_id}").put(str(number), hashes)


def put_vector(unit: Unit, document_id: str, number: int, vector: bytes | None, generation: int) -> None:
    """Write a passage's vector; None: it has none."""
    table = unit.blobs(f"passage-vectors:{document_id}")
    if vector is None:
        table.drop(str(number))
    else:
        table.put(str(number), with_generation(generation, vector))


async def fill(unit: Unit, made: Mapping[str, Mapping[int, bytes | None]], generation: int) -> int:
    """Write vectors of the generation, by document and the passage's number, where there are older ones or
    none; return how many. Searches compare those of a long document some at a time, and all in the end."""
    rows: dict[str, DocumentRow] = await unit.table("documents").many(made)
    count, shown = 0, False
    for document_id, row in rows.items():
        numbers, generations = numbers_of(row), list(row["generations"])
        for number, vector in made[document_id].items():
            # Its number tells whether the passage is still the one that was read.
            if number in numbers and generations[number - row["first"]] < generation:
                generations[number - row["first"]] = generation
                put_vector(unit, document_id, number, vector, generation)
                count += 1
        if generations != row["generations"]:
            filled: DocumentRow = {**row, "generations": generations}
            unit.table("documents").put(document_id, filled)
            _list(unit, document_id, filled)
            shown = shown or _is_to_be_shown(row, filled, generation)
    if shown:
        _count(unit)
    return count


def _is_to_be_shown(before: DocumentRow, after: DocumentRow, generation: int) -> bool:
    """True once in a while: replicas that hold the library make its arrays anew, which takes a while."""
    done = after["generations"].count(generation)
    return done == len(after["generations"]) or done // _SHOWN_EVERY > (
        before["generations"].count(generation) // _SHOWN_EVERY
    )


async def drop(unit: Unit, documents: Mapping[str, DocumentRow]) -> None:
    """Erase documents with their passages, and all that leads to them."""
    for document_id, row in documents.items():
        erase_passages(unit, document_id, row)
        unit.table("documents").drop(document_id)
        unit.table("titles").drop(title_key(row["project"], row["name"]))
    unlist(unit, documents)


def unlist(unit: Unit, documents: Collection[str]) -> None:
    """Take documents from what all users share."""
    for document_id in documents:
        member = f"{unit.uid} {document_id}"
        unit.share("HDEL", _ids(unit), document_id)
        unit.share("ZREM", unit.redis.key(TO_EMBED), member)
        unit.share("DEL", unit.redis.key(f"{TO_EMBED}:{member}"))


def erase_passages(unit: Unit, document_id: str, row: DocumentRow) -> None:
    """Erase what there is of one version."""
    unit.table(f"passages:{document_id}").clear()
    for table in ("passage-terms", "passage-vectors"):
        unit.blobs(f"{table}:{document_id}").clear()
    _count(unit, documents=-1, passages=-len(row["generations"]))


def check_room(unit: Unit, new: NewDocument, before: DocumentRow | None, limits: Limits) -> None:
    """Raise QuotaExceeded if the user may not have the document beside the others, in the place of one of
    this name."""
    others = unit.number("documents") - (before is not None)
    passages = unit.number("passages") - (len(before["generations"]) if before else 0)
    usage.check_room(others, passages, new, limits)


def _count(unit: Unit, *, documents: int = 0, passages: int = 0) -> None:
    """Note that the documents are not what they were: replicas read them anew."""
    unit.set_number("documents", unit.number("documents") + documents)
    unit.set_number("passages", unit.number("passages") + passages)
    unit.set_number("library", unit.number("library") + 1)


def count_none(unit: Unit) -> None:
    """Say that there are no documents any more: the user's tables were wiped, or left behind."""
    _count(unit, documents=-unit.number("documents"), passages=-unit.number("passages"))


def _list(unit: Unit, document_id: str, row: DocumentRow) -> None:
    unit.share("ZADD", unit.redis.key(TO_EMBED), min(row["generations"]), f"{unit.uid} {document_id}")


def _ids(unit: Unit) -> str:
    return ids_key(unit.redis, unit.scope.tenant)


def ids_key(redis: Redis, tenant: str) -> str:
    """Return where it is kept whose documents the tenant's are."""
    return redis.key(f"documents:{storable(tenant)}")
