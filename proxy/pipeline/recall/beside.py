"""Strip a question of the circumstances it mentions, leaving what it asks for.

"Which restaurant did we eat at after the dentist?" asks for a restaurant; whoever told of it need not have
mentioned the dentist. What follows "after", "near", "for", "while", "because" and the like is why, when or
where, and memory may hold the answer without it. Only what is left has to be in memory for the gate to stay
open (see `find`). The rule would rather cut too much than too little: what is cut closes no gate.
"""

import re

# What opens a question: none of it is cut.
_ASKS = (
    r"what|which|who|whom|whose|when|where|how|why|qué|cuál|cuándo|dónde|quién|cómo|was|welche\w*|wer|wen|wem"
    r"|wann|wo|wie|warum|quel(?:le)?s?|quand|où|qui|comment"
)
_ENGLISH = (
    r"after|before|near|nearby|during|since|until|till|with|without|from|next to|beside|opposite|behind"
    r"|around|on (?:the|my|our) way|because|due to|so (?:that|i|we|he|she|they)|while|whilst|once|if|unless"
    r"|in case|in order to|when (?=(?:i|we|you|he|she|it|they|my|our|the)\b)|whenever|as soon as"
    r"|that (?:i|we|you|he|she|they|it|is|was|are|were)"
    r"|(?<!pay )(?<!paid )(?<!cost )(?<!spend )(?<!spent )for"
)
_OTHERS = (
    r"después de|antes de|cerca del?|durante|desde|hasta|con|sin|para|porque|mientras|cuando|si|al lado"
    r"|nach|vor|während|neben|seit|bis|mit|ohne|für|weil|damit|wenn|falls|als|bei"
    r"|après|avant|près d[eu]?|pendant|depuis|jusqu\w*|avec|sans|pour|parce que?|quand|lorsque|à côté"
)
_BEGINS = rf"(?:{_ENGLISH}|{_OTHERS})\b(?!\s+(?:{_ASKS})\b)"
_BESIDE = re.compile(rf"(?<=[\s,;]){_BEGINS}[^?!.;,]*?(?=$|[?!.;,]|\b(?:{_ASKS})\b)", re.IGNORECASE)
# Ahead of the question: "After the dentist, where did we eat?"
_AHEAD = re.compile(rf"^\W*{_BEGINS}[^?!.;,]*?(?:[,;]|(?=\b(?:{_ASKS})\b))", re.IGNORECASE)
# A space ends a clause in Chinese.
_CLAUSE = re.compile(
    r"(?:[^?!.,;:()–—？！。，；：（）\s]|\s(?![\u3400-\u9fff])|(?<![\u3400-\u9fff])\s(?=[\u3400-\u9fff]))+[?？]?|.",
    re.DOTALL,
)
_ASKING = re.compile(
    rf"\b(?:{_ASKS}|cual(?:es)?|cuant[oa]s?|donde|quien(?:es)?)(?:'s)?\b|[几幾哪谁誰啥咋]|什么|什麼|多少|多[大高重久长長远遠]|何时|吗|嗎|呢|怎",
    re.IGNORECASE,
)
# Who wants to know: "The dentist asks whether I snore" asks for nothing of the dentist.
_ASKER = re.compile(
    r"\b(?:the|my|our|an?|this|that|some|her|his|their) (?:[\w'’-]+ ){1,4}?"
    r"(?:(?:is |was |keeps |may |might |will |would )?ask(?:s|ed|ing)?"
    r"|(?:wants?|wanted|needs?|would like|has) to know|wonders?)(?: (?:me|us))?\b"
    r"|\b(?:le|la|les|mon|ma|mes|notre|nos|une?|ce|cette|l['’])\s?(?:[\w'’-]+ ){1,4}?"
    r"(?:(?:me |nous |m['’])?(?:demand\w+|a demandé)|(?:veut|veulent|voudrait|voulait) savoir)\b"
    r"|\b(?:el|la|los|las|mi|mis|nuestr[oa]|una?|ese|esa) (?:[\w'’-]+ ){1,4}?"
    r"(?:(?:me |nos )?(?:ha preguntado|pregunt\w+)|(?:quiere|quieren|quería) saber)\b"
    r"|\b(?:der|die|das|mein\w{0,2}|unser\w{0,2}|eine?|dieser?) (?:[\w'’-]+ ){1,4}?"
    r"(?:frag(?:t|te|en|ten)|(?:will|wollen|wollte|möchte|muss) wissen)(?: (?:mich|uns))?\b"
    r"|[^,，。?？!！;；]{1,12}?(?:问起?|問)(?:我|我们)?(?=[^,，。]{2,})|[^,，。?？!！;；]{1,12}?(?:想知道|想问)",
    re.IGNORECASE,
)
_HAN = re.compile(
    r"[^,，。?？!！;；]{1,20}?(?:之后|以后|之前|以前|的时候|時候|期间|期間|那天|附近|旁边|旁邊|对面|對面)(?:[,，]|的)?"
    r"|(?:因为|因為|为了|為了|如果|要是|万一|趁|等)[^,，。?？!！;；]{1,20}[,，]"
    r"|(?:给|給|替|帮|幫|跟|和|陪)[^,，。?？!！;；的我]{1,6}?(?=[填写寫交看办辦去说說用])"
)


def asked_part(text: str) -> str:
    """Return the text without what it mentions beside what it asks for."""
    left = _BESIDE.sub("", _AHEAD.sub("", _HAN.sub("", _ASKER.sub(" ", text))))
    clauses = [clause.strip() for clause in _CLAUSE.findall(left)]
    return "; ".join(clause for clause in clauses if _ASKING.search(clause)) or left
