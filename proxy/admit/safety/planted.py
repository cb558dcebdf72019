"""Detect planted instructions by their form: text that hides from people, or poses as part of a prompt.

Markup that no screen shows, characters that no font draws, the control tokens of chat templates, a line that
opens with the name of a role, our own block, and base64 of any of these. What a text says in plain words is
judged by the statement head, in every language (see extraction/verdicts).
"""

import re

from proxy.admit.safety.unmask import decoded, readable

REMOVED = "[removed]"

# What is left open reaches to the end: a search that cannot fail is linear, a bounded one would be tried
# again at every opening.
_STYLE = (
    r"(?:display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden|font-size\s{0,3}:\s{0,3}0"
    r"|opacity\s{0,3}:\s{0,3}0(?!\.)"
    r"|color\s{0,3}:\s{0,3}(?:white|#fff|transparent)|aria-hidden\s{0,3}=\s{0,3}[\"']?true"
    r"|text-indent\s{0,3}:\s{0,3}-\d{3}|\shidden\b)"
)
_HIDDEN = re.compile(
    rf"<!--.*?(?:-->|\Z)"
    rf"|<(?P<tag>\w{{1,20}})[^<>]{{0,300}}{_STYLE}[^<>]{{0,300}}>.*?(?:</(?P=tag)\s{{0,3}}>|\Z)"
    r"|\[(?://|comment|_)\]:\s{0,3}#[^\n]*",
    re.DOTALL | re.IGNORECASE,
)
# Tag characters spell ASCII that no screen shows; directional overrides show another order.
_UNSEEN = re.compile("[\U000e0000-\U000e007f\u202a-\u202e\u2066-\u2069]")
_ROLE = r"(?:system|developer|assistant|user|tool)"
_POSES = re.compile(
    rf"<\|(?:im_start|im_end|{_ROLE}|start_header_id|eot_id|endoftext)\|>|\[/?INST\]|</?SYS>>|<<SYS>>"
    r"|</?(?:system|system[_-](?:prompt|message|reminder)|developer|instructions?|memory[_-]?(?:update)?)>"
    r"|[\[【](?:system|developer)(?: message)?[\]】]"
    r"|^\W{0,5}(?:system|developer)(?: (?:prompt|message))?\s{0,2}[:\uff1a]"
    r"|^#{1,4}\s{0,3}(?:system(?: prompt| message)?|instructions?)\s{0,2}(?::|$)"
    rf"|[\"']role[\"']\s{{0,3}}:\s{{0,3}}[\"']{_ROLE}[\"']|\b\w*memory(?:\.\w+)?\([\"'\w]"
    r"|</?(?:remembered|known_memories)\b|\[(?:semantic|preference|episodic|procedural)"
    r" \d{4}-\d\d-\d\d #\w{1,40}\]",
    re.IGNORECASE | re.MULTILINE,
)
_START = re.compile(r"[.!?]\s|[。\uff01\uff1f\"”“‘„«「『'{\[【\n]")  # a sentence begins behind one
_HEADING = 40  # characters: a sign with less behind it announces the lines below
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{24,4000}={0,2}(?![\w+/=-])")


def is_planted(text: str) -> bool:
    """True if the text holds a planted instruction, plain, disguised or encoded."""
    seen = readable(text)
    return bool(_HIDDEN.search(seen) or _POSES.search(seen) or _revealed(seen) != seen)


def without_planted(text: str) -> str:
    """Return the text without hidden markup, each line cut where a planted instruction begins. What has
    little behind it announces the lines below: they are cut out up to the next empty line."""
    text = _revealed(_HIDDEN.sub(REMOVED, text if text.isascii() else _UNSEEN.sub("", text)))
    if not _POSES.search(readable(text)):
        return text
    kept: list[str] = []
    announced = False
    for line in text.split("\n"):
        announced = announced and bool(line.strip())
        if announced:
            continue
        seen = readable(line)
        sign = _POSES.search(seen)
        if sign is None:
            kept.append(line)
            continue
        starts = [m.end() for m in _START.finditer(seen, 0, sign.start())]
        kept.append(seen[: starts[-1] if starts else 0] + REMOVED)
        announced = len(seen) - sign.end() < _HEADING
    return "\n".join(kept)


def _revealed(text: str) -> str:
    """Return the text with base64 of a planted instruction removed."""
    return _BASE64.sub(lambda m: REMOVED if _POSES.search(decoded(m.group())) else m.group(), text)
