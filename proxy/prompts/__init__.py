"""The prompts of our own LLM calls: texts, each under a name with its version."""

from functools import cache
from importlib.resources import files


@cache
def prompt(name: str) -> str:
    """Return the text `<name>.txt`."""
    return files("proxy").joinpath("prompts", f"{name}.txt").read_text("utf-8").strip()
