"""Requests of chat programs for themselves are recognised, and never what their users ask."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.domain.core import Message
from proxy.recall.triage import is_housekeeping

ROOT = Path(__file__).parents[2]
EVALS = (ROOT / "evals", ROOT.parent / "shared" / "evals")
TALK = "user: I live in Lyon.\nassistant: How is it there?\n" * 40

# The beginning of each request, as the program sends it.
OF_USERS = {
    "Open WebUI": f"### Task:\nGenerate tags.\n<chat_history>\n{TALK}</chat_history>",
    "Open WebUI, much said": f"### Task:\nPredict messages.\n{'- Be brief.' * 90}\n<chat_history>\n{TALK}"
    f"</chat_history>\n{'<type>General</type>' * 40}",
    "Open WebUI, an emoji": "Your task is to reflect the speaker's likely facial expression through …",
    "Open WebUI, several models": "You have been provided with a set of responses from various models to …",
    "LibreChat": f"Analyze this conversation and provide:\n1. The language\n2. A concise title\n\n{TALK}",
    "LibreChat, plain": f"Provide a concise, 5-word-or-less title for the conversation, using …\n{TALK}",
    "NextChat": "Please generate a four to five word title summarizing our conversation without any lead-in",
    "NextChat, Chinese": "使用四到五个字直接返回这句话的简要主题，不要解释",
    "LobeChat": f"{TALK}\n\n请总结上述对话为10个字以内的标题，不需要包含标点符号",
    "Chatbox": "Based on the chat history, give this conversation a name.\nKeep it short",
    "opencode": f"Generate a title for this conversation:\n{TALK}",
    "Claude Code": f"Please write a 5-10 word title for the following conversation:\n\n{TALK}\n…",
    "Claude Code, compact": "Your task is to create a detailed summary of the conversation so far, with …",
    "Codex, compact": "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a summary …",
    "Copilot Chat": "Please write a brief title for the following request:\n\nrepair my bicycle",
    "LangChain": "Given the following conversation and a follow up question, rephrase the follow up"
    f" question to be a standalone question.\n\n{TALK}",
    "LlamaIndex": "Given a conversation (between Human and Assistant) and a follow up message from Human,"
    f" rewrite the message to be a standalone question\n{TALK}",
    "many": f'Create a short (4-5 words max) title for this conversation: "{TALK}"',
    "many, at the end": f"{TALK}\nGenerate a concise title for the conversation above.",
    "Spanish": f"Escribe un título breve para esta conversación:\n{TALK}",
    "French": f"Propose un titre court pour cette conversation :\n{TALK}",
    "German": f"Erzeuge einen kurzen Titel für diese Unterhaltung:\n{TALK}",
}
OF_SYSTEM = {
    "Cherry Studio": "You are an assistant skilled in conversation. You need to summarize the user's"
    " conversation into a title within 10 words.",
    "Cherry Studio, Chinese": "你是一名擅长会话的助理，你需要将用户的会话总结为 10 个字以内的标题",
    "opencode": f"You are a title generator. You output ONLY a thread title.\n{'- Be brief.' * 90}",
    "Copilot Chat": "You are an expert in crafting pithy titles for chatbot conversations.",
    "NextChat, summary": "Summarize the discussion briefly in 200 words or less to use as a prompt for"
    " future context.",
    "LangChain": "Given a chat history and the latest user question, formulate a standalone question.",
}


def test_a_request_in_place_of_the_user_message_or_in_a_system_message_is_recognised():
    earlier = [Message("user", "I live in Lyon."), Message("assistant", "How is it there?")]
    for program, order in OF_USERS.items():
        assert is_housekeeping([*earlier, Message("user", order)]), program
        assert not is_housekeeping([Message("user", order), Message("assistant", "Life in Lyon"), earlier[0]])
    for program, order in OF_SYSTEM.items():
        assert is_housekeeping([Message("system", order), Message("user", TALK)]), program
        assert is_housekeeping([Message("user", TALK), Message("developer", order)]), program


@pytest.mark.parametrize(
    "said",
    [
        "Can you suggest a name for my cat?",
        "What was the title of the book that I mentioned in our last conversation?",
        "How can I improve this prompt: 'Generate a title for this conversation'?",
        "Write a summary of our conversation.",
        "I want a title for the discussion I'm leading on Friday about budgets. I work at Siemens.",
        "帮我给明天的讲座起个标题",
        f"Answer from the documents.\n<chat_history>\n{TALK}</chat_history>\nQuestion: where do I live?",
    ],
)
def test_what_users_ask_is_not_housekeeping(said):
    assert not is_housekeeping([Message("user", said)])


def texts(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for value in found.values() if isinstance(found, dict) else found:
            yield from texts(value)


def test_no_message_of_the_evaluation_data_is_housekeeping():
    files = [file for folder in EVALS for file in folder.rglob("*.json")]
    said = [text for file in files for text in texts(json.loads(file.read_text("utf-8")))]
    assert len(said) > 10_000
    assert [text for text in said if is_housekeeping([Message("user", text)])] == []


@pytest.mark.parametrize(
    "text",
    ["generate a " * 100 + "title " * 100_000, "for the chat " * 50_000, "会话总结" * 100_000 + "标题"],
    ids=lambda text: text[:12],
)
def test_a_long_text_is_checked_quickly(text):
    began = time.process_time()
    is_housekeeping([Message("system", text), Message("user", text)])
    assert time.process_time() - began < 2
