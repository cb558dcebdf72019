"""Recognise a request to run a command that is the same on everybody's machine ("run df -h")."""

import re

from proxy.pipeline.decision.public import OWN
from proxy.terms import fold, plain
from proxy.wordlists import any_of

_LONGEST = 140  # characters; a longer message tells a story
_COMMAND = re.compile(
    r"\W*(?:please |pls |can you |could you )?"
    r"(?:(?:run|exec|execute|do(?: an?)?|type|ejecuta|corre|lanza|teclea|haz(?: un)?|fuhre?"
    r"|mach(?:e)?(?: (?:ein(?:en)?|mal))?"
    r"|tippe?|starte|lance|tape|fais(?: un)?"
    r"|跑一?下?|运行一?下?|执行一?下?)(?: mal)? ?"
    r"(?:the command |el comando |den befehl )?[`'\"“]?"
    rf"{any_of('public', 'commands')}(?!\w)"
    r"|(?:ping|curl|dig|wget|nslookup|traceroute) (?:mal )?[^\s,;]{0,40}\.\w"
    r"|git (?:status|log)\b|docker ps\b)"
    r"(?P<rest>[^,;\n]{0,60})"
)
_OF_FILES = re.compile(
    r"\W*(?:please |bitte |can you )?(?:zeige?(?: mir)?(?: mal)?|show(?: me)?|list|lista|muestra(?:me)?"
    r"|ensename|montre(?:-moi)?"
    r"|affiche|cat|tail|head|what's|was|que hay|qu'y a-t-il)(?: \w{1,12}){0,4} (?:/(?:var|etc|tmp|usr"
    r"|opt|proc|dev)\b\S{0,60}"
    r"|(?:current|working) (?:directory|folder)|(?:directorio|carpeta) actual|(?:repertoire"
    r"|dossier) (?:courant|actuel)"
    r"|aktuellen (?:verzeichnis|ordner))(?: (?:liegt|steht|ist|hay|drin))?\W*"
)
# A Chinese sentence, and the command at its end.
_ZH_COMMAND = re.compile(
    r"^(?:看看|看一?下|查看?一?下?|帮我).{0,20} (?:df -h|free -[hm]|ls -\w+"
    r"|top|uptime|nvidia-smi|docker ps)\W*$"
)


def is_command(text: str) -> bool:
    """True if the text tells to run a command that is the same on everybody's machine."""
    if len(text) > _LONGEST:
        return False
    if _OF_FILES.fullmatch(plain(text)) or _ZH_COMMAND.search(fold(text)):
        return True
    found = _COMMAND.match(plain(text))
    return found is not None and not OWN.search(found["rest"])
