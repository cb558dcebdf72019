"""Recognise text that tries to steer an assistant through its memory: a pasted page, a tool's output.

The user's own "remember that I …" is no such text; what gives a planted instruction away is that it
addresses assistants, speaks about "the user", promotes something, or poses as the system.
"""

import re

REMOVED = "[removed]"

# Not shown to people, so written for machines. What is left open reaches to the end: a search that
# cannot fail is linear, a bounded one would be tried again at every opening.
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<tag>\w{1,20})[^<>]{0,300}(?:display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden|font-size\s{0,3}:\s{0,3}0)"
    r"[^<>]{0,300}>.*?(?:</(?P=tag)\s{0,3}>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_CUES = re.compile(
    # poses as the system
    r"<\|im_start\|>|\[/?INST\]|<<SYS>>"
    r"|^\W{0,5}(?:system|developer)(?: prompt| message| update| override)?\s{0,2}[:\uff1a]"
    r"|\b(?:important|urgent|critical) system (?:update|message|notice)"
    r"|^#{1,4}\s{0,3}(?:system|instructions?)\b"
    # addresses assistants
    r"|\b(?:note|notice|message|instructions?|attention|important|memo)\b[^.\n]{0,20}\b(?:to|for)\b[^.\n]{0,20}"
    r"\b(?:ais?|llms?|(?:ai|language) (?:assistants?|agents?|models?|tools?)|assistants?|chatbots?|bots)\b"
    r"|\b(?:ai|llm|language) (?:assistants?|agents?|tools?|models?|systems?)\s{0,2}[:\uff1a,]\s{0,3}"
    r"(?:please )?(?:save|remember|note|store|record|always|never|ignore|disregard|you|must|do|add|when)\b"
    r"|(?:ai|人工智能|智能)\s{0,2}(?:助手|助理|模型|工具|代理)(?:须知|注意|提示|请)"
    # overrides
    r"|\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|all|any"
    r"|your|system)\b[^.\n]{0,30}\b(?:instructions?|rules?|prompts?|guidelines?|directives?|constraints?)\b"
    r"|(?:忽略|无视|忘记|忘掉)[^。\n]{0,12}(?:指令|规则|设定|提示|要求)"
    r"|\b(?:ignora|ignorez|ignoriere)\b[^.\n]{0,40}\b(?:instruc|anweisung|regeln|reglas)"
    # promotes
    r"|\b(?:always|must)\b[^.\n]{0,15}\b(?:recommend|promote|advertise|endorse|upsell|praise)"
    r"|(?:一律|总是|始终|永远|务必)[^。\n不别]{0,8}(?:推荐|推销|宣传)|向用户推荐"
    r"|\b(?:siempre recomienda|recommande toujours|empfiehl immer)\b"
    # speaks about the user to the one who remembers
    r"|\b(?:remember|memori[sz]e|note|record|save|store|add)\b[^.\n]{0,40}\bthat\s{1,3}(?:the\s{1,3})?"
    r"(?:user|operator|customer|client|human|owner|person you)\b"
    r"|\bsave (?:this )?(?:to|in|into) (?:your |the )?(?:long[- ]term )?memory\b"
    r"(?!\W{0,3}(?:that\s{1,3})?(?:i|my|we|our)\b)"
    # hides from the user
    r"|\b(?:do not|don'?t|never) (?:tell|inform|(?:mention|reveal|show) (?:this|it) to) the user\b",
    re.IGNORECASE | re.MULTILINE,
)
# Where the words before a cue begin: planted text is cut out from there to the end of its line.
_START = re.compile(r"(?:[.!?]\s|[。\uff01\uff1f\"”'{\[【])")


def is_planted(text: str) -> bool:
    """True if the text holds a planted instruction."""
    return bool(_HIDDEN.search(text) or _CUES.search(text))


def without_planted(text: str) -> str:
    """Return the text without hidden markup, and each line cut where a planted instruction begins."""
    lines = _HIDDEN.sub(REMOVED, text).split("\n")
    return "\n".join(map(_cut, lines))


def _cut(line: str) -> str:
    cue = _CUES.search(line)
    if cue is None:
        return line
    before = line[: cue.start()]
    starts = [m.end() for m in _START.finditer(before)]
    return before[: starts[-1] if starts else 0] + REMOVED
