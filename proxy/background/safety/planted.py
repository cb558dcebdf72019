"""Detect planted instructions: text from a page or a tool that tries to steer an assistant through its
memory.

The user's own "remember that I …", "always answer in French", "always recommend vegan places" is no such
text; what gives a planted instruction away is that it addresses assistants, speaks about "the user",
promotes something over its rivals, poses as the system or as our own block, or hides. What is merely
suspicious is judged by where it stands: see doubt.
"""

import re
from bisect import bisect_right

from proxy.background.safety.steering import STEERS
from proxy.background.safety.unmask import decoded, readable
from proxy.background.safety.wrapped import Unwrapped, unwrapped

REMOVED = "[removed]"

# Not shown to people, so written for machines. What is left open reaches to the end: a search that
# cannot fail is linear, a bounded one would be tried again at every opening.
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

_AI = (
    r"(?:ais?|llms?|(?:ai|language|chat) (?:assistants?|agents?|models?|tools?|bots?)|assistants?"
    r"|chatbots?|bots|copilots?|gpt|chatgpt"
    r"|claude|gemini|ki|ia|ki-assistent\w{0,3}|asistentes?(?: de ia)?|assistants? ia|assistenti?"
    r"|sprachmodelle?|ии|ассистент\w{0,3}|нейросет\w{0,3})"
)
_POSES = (  # as the system, as a turn of the conversation, as our own block
    r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id|endoftext)\|>|\[/?INST\]"
    r"|</?SYS>>|<<SYS>>"
    r"|</?(?:system|system[_-](?:prompt|message|reminder)|developer|instructions?|admin"
    r"|memory[_-]update)>|\[(?:system|admin|developer)(?: message)?\]"
    r"|^\W{0,5}(?:system|developer)(?: prompt| message| update| override| notice)?\s{0,2}[:\uff1a]"
    r"|\b(?:important|urgent|critical) system (?:update|message|notice)"
    r"|^#{1,4}\s{0,3}(?:system(?: prompt| message)?|instructions?)\s{0,2}:?\s{0,2}$"
    r"|^\W{0,5}(?:long[- ]term )?memory (?:update|entry|note|override)\s{0,2}[:\uff1a]"
    r"|</?(?:remembered|known_memories)\b|\[(?:semantic|preference|episodic"
    r"|procedural) \d{4}-\d\d-\d\d #\w{1,40}\]"
)
# Not "the message for Tom is that his AI course …".
_NOT_SOMEBODY_S = r"(?:(?!\b(?:is|are|was|that|his|her|my|our|their)\b)[^.\n]){0,20}"
_ADDRESSES = (
    rf"\b(?:note|notice|message|instructions?|attention|important|memo|reminder|hinweis"
    rf"|anweisung\w{{0,2}}|nota|aviso|avis|внимание|инструкция)\b[^.\n]{{0,20}}"
    rf"\b(?:to|for|an|für|para|pour|aux?|per|для)\b{_NOT_SOMEBODY_S}\b{_AI}\b"
    rf"|\b(?:if|when) you(?:'re| are) an? {_AI}\b(?! (?:in|at) (?:an?|the|my|our)\b)"
    rf"|\bas an? (?:ai|llm|language model|assistant)(?: \w+){{0,2}},? you (?:must|should|will|are)\b"
    r"|\b(?:ai|llm|language) (?:assistants?|agents?|tools?|models?|systems?)\s{0,2}[:\uff1a,]\s{0,3}"
    r"(?:please )?(?:save|remember|note|store|record|always|never|ignore|disregard|you|must|do|add|when)\b"
    r"|\b(?:any|all|every) (?:ai|llm)s? (?:assistants?|agents?|tools?|models?)?\s?(?:reading"
    r"|processing|that reads|summari[sz]ing)"
    r"|(?:ai|人工智能|智能)\s{0,2}(?:助手|助理|模型|工具|代理)(?:须知|注意|提示|请)"
    r"|AI\s?(?:アシスタント|モデル|エージェント)(?:へ|向け|は必ず)"
    r"|AI\s?(?:비서|어시스턴트|모델)(?:에게|는 반드시)"
)
_OVERRIDES = (
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|all|any"
    r"|your|system)\b[^.\n]{0,30}\b(?:instructions?|rules?|prompts?|guidelines?|directives?|constraints?)\b"
    r"|\b(?:new|updated|revised) (?:system )?instructions?\s{0,2}[:\uff1a]"
    r"|\byou are now (?:in )?(?:dan|developer mode|jailbroken|unrestricted)\b"
    r"|(?:忽略|无视|無視|忘记|忘掉)[^。\n]{0,12}(?:指令|规则|规矩|设定|提示|要求|指示)"
    r"|\b(?:ignora|ignore[zr]?|ignoriere?n?|ignorare|vergiss|olvida|oublie[zr]?|esque[cç]a"
    r"|dimentica)\b[^.\n]{0,40}"
    r"\b(?:instru[cç]\w{3,8}|istruzioni|anweisung\w{0,2}|regeln|reglas|regras|regole|consignes|vorgaben)"
    r"|(?:игнорируй|забудь|отмени)\w{0,3}[^.\n]{0,30}(?:инструкци|указани|правил)"
    r"|(?:以前|これまで|上記|前)の[^。\n]{0,6}(?:指示|命令|ルール)を?[^。\n]{0,4}(?:無視|忘れ)|(?:이전"
    r"|위의|모든)\s?(?:지시|명령"
    r"|규칙)[^.\n]{0,6}(?:무시|잊)"
)
_RIVALS = r"(?:competit\w{2,6}|alternatives?|rivals?|others?|any other|anything else)"
_PROMOTES = (
    r"\b(?:always|must|should)\b[^.\n]{0,15}\b(?:promote|advertise|endorse|upsell)\b"
    rf"|\b(?:always|must|only)\b[^.\n]{{0,15}}\b(?:recommend|suggest|praise|mention"
    rf"|prefer)\b[^.\n]{{0,60}}(?:\b(?:over|instead of|rather than"
    rf"|before)\b[^.\n]{{0,20}}\b{_RIVALS}"
    r"|\b(?:to|for) (?:the |all |every |any |your )?(?:users?|customers|visitors|everyone|anyone)\b)"
    r"|向用户(?:推荐|推销|宣传)|(?:siempre|immer|toujours|sempre|всегда)[^.\n]{0,20}(?:a los usuarios"
    r"|den nutzern|aux utilisateurs|agli utenti|пользовател)"
)
_IMPERATIVES = (  # of what an assistant is told to do with its memory, or for good
    r"(?:save|remember|note|store|record|always|never|ignore|disregard|you|must|do|add|when"
    r"|recuerda|memoriza|guarda|anota|siempre|nunca|ignora|recomienda|debes"
    r"|merke?|speicher\w?|notier\w?|immer|niemals|ignorier\w?|empfiehl"
    r"|souviens|retiens|m[ée]morise[zr]?|enregistre[zr]?|toujours|jamais|ignore[zr]?|recommande[zr]?"
    r"|ricorda\w{0,2}|memorizza|salva|sempre|mai|lembre|guarde|recomende|запомни\w{0,2}|всегда|никогда)\b"
)
_COMMANDS_AI = (
    # "KI-Assistent, merke dir …"; the user's own assistant has another name, or none
    r"\b(?:ai|llm|ki|ia|ии)[- ](?:assistants?|agents?|tools?|models?|systems?|assistent\w{0,3}|modelle?"
    r"|agenten"
    r"|ассистент\w{0,3})\s{0,2}[:\uff1a,\uff0c!]\s{0,3}(?:please |bitte |por favor,? )?" + _IMPERATIVES + "|"
    r"\b(?:asistentes?|assistants?|assistentes?|assistenti?|modelos?|mod[èe]les?|modelli) (?:de|d'"
    r"|di) ?(?:ia|ai|ki)"
    r"\s{0,2}[:\uff1a,!]\s{0,3}" + _IMPERATIVES + "|"
    # "Asistente: recuerda siempre recomendar …": said by nobody of their own assistant
    rf"\b{_AI}\s{{0,2}}[:\uff1a]\s{{0,3}}{_IMPERATIVES}[^.\n]{{0,40}}\b(?:recom|empf[ei]|consigl|suger|promo"
    r"|рекоменд)"
)
_ABOUT_THE_USER = (  # said to the one who remembers
    r"\b(?:remember|memori[sz]e|note|record|save|store|add)\b[^.\n]{0,40}\bthat\s{1,3}(?:the\s{1,3})?"
    r"(?:user|operator|human|person you)\b(?! (?:tables?|ids?|stor(?:y|ies)|interface|service|model"
    r"|guide|manual|can\b|data))"
    r"|(?:记住|记下|记录|保存)[^。\n]{0,10}(?:该用户|用户(?:已|同意|授权|要求|希望))"
    r"|\b(?:do not|don'?t|never) (?:tell|inform|notify|alert|(?:mention|reveal|show) (?:this"
    r"|it) to) the user\b"
    r"|不要(?:告诉|告知)用户"
)
_CUES = re.compile(
    "|".join((_POSES, _ADDRESSES, _COMMANDS_AI, _OVERRIDES, _PROMOTES, _ABOUT_THE_USER, STEERS)),
    re.IGNORECASE | re.MULTILINE,
)
# Where the words before a cue begin: planted text is cut out from there to the end of its line.
_START = re.compile(r"(?:[.!?]\s|[。\uff01\uff1f\"”“‘„«「『'{\[【])")
_CLOSES = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "[“”]", "«": "»", "「": "」", "『": "』"}
_OPENS = re.compile(r"(?:\A|[\s:\uff1a(])\Z")
_HEADING = 40  # characters: a cue with less behind it announces the lines below
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{24,4000}={0,2}(?![\w+/=-])")


def is_planted(text: str) -> bool:
    """True if the text holds a planted instruction, plain, disguised or encoded."""
    seen = readable(text)
    return bool(_HIDDEN.search(seen) or _revealed(seen) != seen) or any(
        _CUES.search(piece.text) for piece in unwrapped(seen.split("\n"), _begins)
    )


def without_planted(text: str) -> str:
    """Return the text without hidden markup, each line cut where a planted instruction begins.

    Lines that are one sentence, or a wrapped paragraph, are read as one."""
    text = _revealed(_HIDDEN.sub(REMOVED, text if text.isascii() else _UNSEEN.sub("", text)))
    lines = text.split("\n")
    kept: list[str] = []
    announced, at = False, 0
    for piece in unwrapped(readable(text).split("\n"), _begins):
        to = at + len(piece.starts)
        announced = announced and bool(piece.text.strip())
        if not announced:
            whole, rest, announced = _cut(piece)
            kept += [*lines[at : at + whole], *rest]
        at = to
    return "\n".join(kept)


def _begins(line: str) -> bool:
    """True if a planted instruction stands at the very beginning of the line, as that of a turn."""
    return _CUES.match(line) is not None


def _cut(piece: Unwrapped) -> tuple[int, list[str], bool]:
    """Return how many lines stay as they stand, what is left of the others, and whether the lines below
    belong to an instruction.

    One in quotation marks ends with them: what follows are the words of who quotes it. Any other reaches to
    the end."""
    seen = piece.text
    cue = _CUES.search(seen)
    if cue is None:
        return len(piece.starts), [], False
    whole = bisect_right(piece.starts, _beginning(piece, cue.start())) - 1
    kept, at = "", 0
    while cue is not None:
        start = max(_beginning(piece, at + cue.start()) - at, 0)
        kept += seen[:start] + REMOVED
        end = _end_of_quotation(seen, start, cue.end())
        if end is None:
            return whole, [kept[piece.starts[whole] :]], len(seen) - cue.end() < _HEADING
        seen, at = seen[end:], at + end
        cue = _CUES.search(seen)
    return whole, [(kept + seen)[piece.starts[whole] :]], False


def _beginning(piece: Unwrapped, cue: int) -> int:
    """Return where the sentence of the cue begins; without a margin not above the cue's own line."""
    starts = [m.end() for m in _START.finditer(piece.text, 0, cue)]
    line = 0 if piece.margin else piece.starts[bisect_right(piece.starts, cue) - 1]
    return max(starts[-1] if starts else 0, line)


def _end_of_quotation(text: str, start: int, after: int) -> int | None:
    """Return where the quotation closes that opens right before `start`; None where there is no such."""
    closing = _CLOSES.get(text[start - 1 : start])
    if closing is None or not _OPENS.search(text[: start - 1]):
        return None
    end = re.compile(rf"{closing}(?=[\s.,;:!?)\u3000-\u9fff\uac00-\ud7af\uff0c]|\Z)").search(text, after)
    return end.start() if end else None


def _revealed(text: str) -> str:
    """Return the text with base64 of a planted instruction removed."""
    return _BASE64.sub(lambda m: REMOVED if _CUES.search(decoded(m.group())) else m.group(), text)
