"""Recognise what a chat program asks for itself, beside what its user asks: a title for the conversation,
tags, a search query, a summary to go on with.

Such calls come over the same address, for the same user and session, and hold the conversation as their text.
Nobody said it: to remember it would tell everything twice, and what is known of the user would lead a title
astray. The rules are made after the wordings of Open WebUI, LibreChat, LobeChat, Cherry Studio, NextChat,
Chatbox, opencode, Copilot Chat, Claude Code, Codex, LangChain and LlamaIndex.
"""

import re
from collections.abc import Sequence

from proxy.domain.core import Message

_HEAD, _TAIL = 600, 400  # characters in which the instruction stands; the conversation is below or above it
_OPENING = 120  # of a long system message: an assistant may be told to give a title, too, among other things
_ANY_TALK = r"(?:conversation|chat|discussion|dialog(?:ue)?)\b"
_TALK = (
    rf"{_ANY_TALK}"
    # and not "the discussion that I lead on Friday", which is the user's own
    r"(?=\s*+(?:$|[.,:;!\"'(<\[])|\s(?:history|above|below|so|in|using|without|with|between|based|and|strictly"
    r"|into|as|title|that (?:starts|begins|began)))"
)
_NAME = r"(?:titles?|headline|name|topic|tags?|emojis?)\b"
_MAKE = r"(?:generat|writ|creat|provid|suggest|giv|produc|mak|craft|com(?:e|ing) up with|summari[sz])\w*"
_NEAR = r"[^.?!\n]{0,90}?"  # of the same sentence
# Orders stand at the beginning of a sentence; who asks about an order quotes it.
_ORDER = (
    r"(?:^|[.!?:]\s)[#*\s-]{0,6}(?:task:\s*)?(?:please |kindly |now,? )?"
    r"(?:(?:you (?:need|have|are asked) to|your (?:task|job) is to|i want you to) )?"
)
_TITLES = (
    # "Generate a concise title for the following conversation"
    rf"{_ORDER}(?:only )?{_MAKE} {_NEAR}\b{_NAME}{_NEAR}"
    r"\b(?:for|of|to|summari[sz]ing|from|captur\w+|describ\w+)"
    rf" (?:this|the|our|a|following|user'?s?)\b.{{0,30}}?\b{_TALK}",
    rf"{_ORDER}summari[sz]e {_NEAR}\b{_TALK}{_NEAR}\b(?:into|as|with|in) (?:a|one) {_NEAR}{_NAME}",
    rf"{_ORDER}(?:based on the chat history, )?give (?:this|the|our) {_ANY_TALK} an? {_NEAR}{_NAME}",
    rf"{_ORDER}analy[sz]e (?:this|the) {_TALK} and .{{0,160}}?\btitle\b",
    rf"{_ORDER}write a (?:brief|short|concise) title for the following (?:request|message)\b",
    r"\A\W{0,4}you are an? .{0,40}?(?:\btitle generator\b|\bcrafting pithy titles\b)",
    r"(?:总结|概括|归纳|生成|提取|提炼)[^。！？\n]{0,30}(?:会话|对话|聊天)[^。！？\n]{0,30}标题",
    r"(?:会话|对话|聊天)(?:内容|记录|历史)?[^。！？\n]{0,12}(?:总结|概括|归纳|生成|提取|提炼)[^。！？\n]{0,30}标题",
    r"直接返回这句话的简要主题",
    r"\b(?:título|titulo)\b[^.?!\n]{0,40} (?:esta|la siguiente) conversación",
    r"\btitre\b[^.?!\n]{0,40} (?:cette|la) conversation",
    r"\btitel\b[^.?!\n]{0,40} (?:diese|dieses|die folgende|das folgende) (?:unterhaltung|gespräch|chat)",
)
_REST = (
    r"\b(?:rephrase|rewrite|reformulate|formulate)\b[^.?!\n]{0,60}"
    r"\bstandalone (?:question|query|message|search)",
    rf"{_ORDER}summari[sz]e (?:the|this|our) {_ANY_TALK}{_NEAR}\bfuture context\b",
    rf"{_ORDER}{_MAKE} {_NEAR}\bsummary of the {_TALK} so far\b",
    r"\bcontext checkpoint compaction\b",
    r"总结(?:一下)?对话内容，用作后续的上下文",
)
_OF_USERS = (
    r"\A\W{0,4}your task is to reflect the speaker'?s likely facial expression",
    r"\A\W{0,4}you have been provided with a set of responses from various models",
)
# Open WebUI's tasks, also those that an operator has worded, with a history of any length. The tag alone says
# nothing: applications that answer from documents show their model the history in it.
_TASK, _HISTORY = re.compile(r"\s*#{1,6} ?task:", re.IGNORECASE), "</chat_history>"
_FLAGS = re.IGNORECASE | re.MULTILINE
_OF_SYSTEM = re.compile("|".join((*_TITLES, *_REST)), _FLAGS | re.DOTALL)
_OF_ALL = re.compile("|".join((*_OF_USERS, *_TITLES, *_REST)), _FLAGS | re.DOTALL)
# Where none of these stands the patterns need not be tried.
_HINTS = (
    *(
        "title",
        "titre",
        "titel",
        "título",
        "titulo",
        "标题",
        "主题",
        "headline",
        "name",
        "topic",
        "tag",
        "emoji",
    ),
    *("facial", "various models", "standalone", "context", "so far", "上下文"),
)


def is_housekeeping(messages: Sequence[Message]) -> bool:
    """True if the last message of the user's, or the beginning of a system message, is a chat program's order
    for itself."""
    last = next((m.text for m in reversed(messages) if m.role == "user"), "")
    if _TASK.match(last) and _HISTORY in last:
        return True
    seen = last if len(last) <= _HEAD + _TAIL else f"{last[:_HEAD]}\n\n{last[-_TAIL:]}"
    return _is_order(seen, _OF_ALL) or any(
        _is_order(m.text if len(m.text) <= _HEAD else m.text[:_OPENING], _OF_SYSTEM)
        for m in messages
        if m.role in ("system", "developer")
    )


def _is_order(text: str, pattern: re.Pattern[str]) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS) and pattern.search(text) is not None
