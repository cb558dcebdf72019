"""Make text storable."""


def storable(text: str) -> str:
    """Return the text with lone surrogates replaced: JSON can carry them, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
