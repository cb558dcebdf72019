"""Values that a JSON schema allows, for hypothesis: so much of the language as our document uses."""

from typing import Any

from hypothesis import strategies as st

TEXT = st.characters(codec="utf-8")


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of values that fit the schema, references put in before."""
    if not schema or ("type" not in schema and not {"enum", "const", "anyOf"} & set(schema)):
        return st.none() | st.booleans() | st.text(TEXT, max_size=5)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([values(choice) for choice in schema["anyOf"]])
    return _OF_TYPE[schema["type"]](schema)


def _strings(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"))
    low, high = schema.get("minLength", 0), schema.get("maxLength", 60)
    return st.text(TEXT, min_size=low, max_size=min(high, low + 60)) | st.sampled_from(
        [text for text in ("User owns a canoe.", "alice", "x" * high) if low <= len(text) <= high]
    )


def _objects(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    needed = set(schema.get("required", ()))
    fields = {name: values(field) for name, field in schema.get("properties", {}).items()}
    made = st.fixed_dictionaries(
        {name: field for name, field in fields.items() if name in needed},
        optional={name: field for name, field in fields.items() if name not in needed},
    )
    least = schema.get("minProperties", 0)
    return made.filter(lambda made: len(made) >= least)


_OF_TYPE: dict[str, Any] = {
    "null": lambda schema: st.none(),
    "boolean": lambda schema: st.booleans(),
    "string": _strings,
    "object": _objects,
    "integer": lambda schema: st.integers(schema.get("minimum"), schema.get("maximum")),
    "number": lambda schema: st.floats(
        schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False
    ),
    "array": lambda schema: st.lists(
        values(schema.get("items", {})), min_size=schema.get("minItems", 0), max_size=3
    ),
}  # fmt: skip
