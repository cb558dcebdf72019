"""How clients wrap what a user typed: data for `authorship`, one row per template or tag, with its source.

A row is added for a client with a fixed form of wrapping that structure alone does not show: prose headings,
or a tag that holds the user's own words. Sources were read on 2026-11-28; a row that was not found in its
product's own source says so.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """A fixed text around the user's words. It applies if the message begins with one of `opens` (case and
    white space aside) and, where there are any, holds one of `asks`.

    The user's words are what follows the last of `asks`, up to the first of `ends`. Without `asks` nothing in
    the message is the user's but what tags for the user's words hold."""

    product: str
    source: str
    opens: tuple[str, ...]
    asks: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


# An empty heading at the end, for the model to fill in.
_ANSWER = ("\nanswer:", "\nhelpful answer:", "\n#answer:", "\n### answer:", "\nyour answer:", "\nresponse:")
_QUESTION = (
    "\nquestion:",
    "\n#question:",
    "\n### question:",
    "\nuser question:",
    "\nquery:",
    "\nuser query:",
)
_LLAMA_ASKS = ("\nquery:", "\nquestion:", "answer the question:", "answer the following question:")

TEMPLATES = (
    Template(
        "Open WebUI, documents and web search",
        "open-webui: backend/open_webui/config.py, DEFAULT_RAG_TEMPLATE",
        ("### task: respond to the user query using the provided context",),
        ("</context>",),
    ),
    Template(
        "Open WebUI, before 0.4",
        "open-webui: backend/config.py, DEFAULT_RAG_TEMPLATE;"
        " Dify: api/core/prompt/prompt_templates/common_chat.json, context_prompt",
        ("use the following context as your learned knowledge, inside <context></context> xml tags",),
        ("\nquery:", "</context>"),
    ),
    Template(
        "Cherry Studio",
        "CherryHQ/cherry-studio: src/renderer/src/config/prompts.ts, REFERENCE_PROMPT, FOOTNOTE_PROMPT",
        ("please answer the question based on the reference materials",),
        ("## my question is:",),
        ("## reference materials:",),
    ),
    Template(
        "Cherry Studio, Chinese",
        # The second of `opens`, and what it asks, were found in scripts of other people only.
        "kangfenmao/cherry-studio: src/renderer/src/config/prompts.ts, REFERENCE_PROMPT",
        ("请根据参考资料回答问题", "请根据引用的材料回答问题"),
        ("## 我的问题是：", "## 我的问题是:", "## 我的问题：", "## 我的问题:"),
        ("## 参考资料", "## 引用材料"),
    ),
    Template(
        "LangChain, RetrievalQA and its descendants",
        "langchain: chains/retrieval_qa/prompt.py; hub: rlm/rag-prompt; langchaingo: chains/prompts.go",
        (
            "use the following pieces of context",
            "use the following pieces of retrieved context",
            "use the following pieces of information",
            "use the following context",
            "you are an assistant for question-answering tasks",
            "answer the question based only on the following context",
            "answer the question based on the following context",
            "answer the following question based only on the provided context",
            "answer the user's questions based on the below context",
            "given the following extracted parts of a long document and a question",
            "using the information contained in the context",
        ),
        _QUESTION,
        (*_ANSWER, "\ncontext:", "\n#context:", "\n### context:"),
    ),
    Template(
        "LlamaIndex, text QA and refine; Spring AI",
        "llama_index: llama-index-core/llama_index/core/prompts/default_prompts.py, chat_prompts.py",
        ("context information is below", "context information from multiple sources is below"),
        _LLAMA_ASKS,
        _ANSWER,
    ),
    Template(
        "Haystack",
        "deepset-ai/haystack: docs, PromptBuilder",
        (
            "given these documents, answer the question",
            "given the following information, answer the question",
        ),
        _QUESTION,
        _ANSWER,
    ),
    Template(
        "LM Studio, documents",
        "lmstudio.ai: docs/app/basics/rag (rag-v1 plugin: promptPreprocessor.ts)",
        (
            "this is a enriched context generation scenario",
            "this is an enriched context generation scenario",
            "the following citations were found in the files provided by the user",
        ),
        ("user query:",),
    ),
    Template(
        "FastGPT",
        "labring/FastGPT: packages/global/core/ai/prompt/AIChat.ts, Prompt_QuotePromptList",
        (
            "使用 <data></data> 标记中的内容",
            "使用 <reference></reference> 标记中的内容",
            "使用 <qa></qa> 标记中的",
        ),
        ('问题:"""', '问题："""'),
        ('"""',),
    ),
    Template(
        "ruoyi-vue-pro, references as a message of their own",
        "YunaiV/ruoyi-vue-pro: AiChatMessageServiceImpl, KNOWLEDGE_USER_MESSAGE_TEMPLATE",
        ("使用 <reference></reference> 标记中的内容", "使用 <websearch></websearch> 标记中的内容"),
    ),
    Template(
        "LangChain-Chatchat, LangChain-ChatGLM",
        "chatchat-space/Langchain-Chatchat: configs/model_config.py, PROMPT_TEMPLATE",
        ("已知信息：", "已知信息:"),
        ("问题是：", "问题是:"),
    ),
    Template(
        "AutoGen, RetrieveUserProxyAgent",
        "microsoft/autogen: agentchat/contrib/retrieve_user_proxy_agent.py, PROMPT_DEFAULT",
        ("you're a retrieve augmented",),
        ("user's question is:",),
        ("\ncontext is:",),
    ),
    Template(
        "CrewAI",
        "crewAIInc/crewAI: src/crewai/translations/en.json, task, expected_output, task_with_context",
        ("current task:",),
        ("current task:",),
        (
            "\nthis is the expected criteria for your final answer:",
            "\nthis is the context you're working with:",
            "\nbegin! this is very important to you",
        ),
    ),
    Template(
        "Codex IDE extension and desktop",
        "openai/codex: rollouts of the IDE extension",
        ("# context from my ide setup", "# files mentioned by the user", "# response annotations"),
        ("## my request for codex:",),
    ),
    Template(
        "Codex, project instructions",
        "openai/codex: codex-rs/core/src/user_instructions.rs",
        (
            "# agents.md instructions for",
            "another language model started to solve this problem and produced a",
        ),
    ),
    Template(
        "Claude Code, its own notes",
        "anthropics/claude-code: session transcripts",
        (
            "caveat: the messages below were generated by the user while running local commands",
            "this session is being continued from a previous conversation",
            "[request interrupted by user",
            "base directory for this skill:",
            "stop hook feedback:",
        ),
    ),
    Template(
        "Cline, Roo Code, Kilo Code, their own notes",
        "cline/cline: src/core/prompts/responses.ts; RooCodeInc/Roo-Code: src/core/prompts/responses.ts",
        (
            "[task resumption]",
            "[error] you did not use a tool in your previous response",
            "[error] you must use a tool",
            "the user denied this operation",
            "the tool execution failed with the following error",
            "new instructions for task continuation",
        ),
    ),
    Template(
        "Gemini CLI, its first message",
        "google-gemini/gemini-cli: packages/core/src/utils/environmentContext.ts",
        ("this is the gemini cli. we are setting up the context for our chat",),
    ),
    Template(
        "Aider, files and repository map",
        "Aider-AI/aider: aider/coders/editblock_prompts.py, base_prompts.py",
        (
            "i have *added these files to the chat*",
            "here are summaries of some files present in my git repository",
            "here are some read only files",
            "i switched to a new code base",
        ),
    ),
)

OPENINGS = tuple(opening for row in TEMPLATES for opening in row.opens)
"""What a message begins with that may follow a template; lower case, white space as one space."""

# What clients add at the beginning of a line behind the user's words: all from there on is theirs.
APPENDED = (
    # mckaywrigley/chatbot-ui: lib/build-prompt.ts
    "You may use the following sources if needed to answer the user's question.",
    # spring-ai: QuestionAnswerAdvisor; langchain4j: DefaultContentInjector
    "Context information is below, surrounded by ",
    "Answer using the following information:",
    # open-webui: backend/open_webui/config.py, DEFAULT_CODE_INTERPRETER_PROMPT
    "#### Tools Available\n\n1. **Code Interpreter**",
    # sst/opencode: packages/opencode/src/session/prompt.ts, an @ mention
    "Called the Read tool with the following input:",
    "Called the List tool with the following input:",
    # cline/cline: src/core/task/focus-chain/prompts.ts; the second: an earlier version, from transcripts
    "# task_progress RECOMMENDED",
    "# TODO LIST RECOMMENDED",
)

# A prompt for completion ends with an empty heading for the answer; people's messages do not. The user's
# words are those between the last heading for the question and that one.
ANSWER_HEADINGS = (
    *("answer:", "helpful answer:", "your answer:", "response:", "assistant:", "antwort:", "respuesta:"),
    *(
        "réponse :",
        "réponse:",
        "resposta:",
        "risposta:",
        "ответ:",
        "回答：",
        "回答:",
        "答案：",
        "答案:",
        "답변:",
    ),
)
QUESTION_HEADINGS = (
    *("question:", "question :", "query:", "user question:", "user query:", "user:", "human:", "frage:"),
    *("pregunta:", "pergunta:", "domanda:", "вопрос:", "问题：", "问题:", "質問：", "質問:", "질문:"),
)

# Headings of the passages in a prompt, without their colon.
CONTEXT_HEADINGS = frozenset(
    "context|contexts|retrieved context|documents|retrieved documents|sources|passages|kontext|dokumente"
    "|contexto|documentos|contexte|contesto|documenti|контекст|документы|上下文|参考资料|参考内容|已知信息|文脈"
    "|コンテキスト|参考情報|문맥|컨텍스트|참고 자료".split("|")
)
# Words in the headings of what a template wants of the model.
INSTRUCTION_WORDS = frozenset(
    "task tasks guideline guidelines example examples citation citations output instruction instructions rule"
    " rules format response answer context sources note notes important constraint constraints requirement"
    " requirements role system style tone language aufgabe richtlinien beispiel ausgabe anweisungen regeln"
    " tarea pautas ejemplo salida instrucciones reglas tâche consignes exemple sortie règles 任务 指南 示例"
    " 输出 要求 规则 タスク ガイドライン 例 出力".split()
)

# Tags in which a client puts the user's own words, folded: no case, no '-', '_', '.'.
OWN_TAGS = frozenset(
    (
        # Cline, Roo Code (src/core/task, responses.ts): task, feedback, answer, user_message
        *("task", "feedback", "answer", "usermessage", "newusermessage"),
        # Cursor: user_query; Copilot Chat (agentPrompt.tsx): userRequest; Open WebUI before 0.6: user_query
        *("userquery", "userrequest", "userprompt", "userquestion", "userinput", "usertask", "usertext"),
        # Claude Code: what was typed behind a slash command
        "commandargs",
        # frameworks
        *("query", "question", "prompt", "request", "input", "instruction", "humanmessage", "humaninput"),
        *("currentmessage", "currentquestion", "lastmessage", "latestmessage", "myquestion", "myrequest"),
        *("customerquestion", "customermessage", "utterance", "userutterance", "usersmessage"),
        *("pregunta", "consulta", "frage", "anfrage", "benutzerfrage", "nutzerfrage", "demande", "pergunta"),
        *("问题", "用户问题", "用户输入", "提问", "вопрос", "質問", "質問文", "질문"),
    )
)
# Of those, the names that also stand in a text that somebody pastes.
COMMON_TAGS = frozenset(
    "task feedback answer query question prompt request input instruction utterance 问题 提问 вопрос 質問"
    " 질문 pregunta consulta frage anfrage demande pergunta".split()
)
# Those of them in which a client that answers for its tools puts what the user replied.
REPLIES = frozenset(("feedback", "answer", "usermessage"))
# Tags that may enclose a whole message and hold such a tag among others.
FRAMES = frozenset(("prompt", "input", "message", "request", "user", "turn", "human", "chat", "conversation"))

# HTML that people write in prose: the tag is no wrapping, and its words are the writer's.
PHRASING = frozenset(
    "a abbr acronym b big bdi bdo br center cite code del dfn em font hr i img ins kbd mark nobr rp rt ruby s"
    " samp small span strike strong sub sup tt u var wbr".split()
)
# HTML of which a whole message in rich text consists. Next to other words it is a pasted page.
RICH_TEXT = frozenset("p div h1 h2 h3 h4 h5 h6 ul ol li dl dt dd".split())

# Names that open a wrapping even if it is not closed, folded; so does every name of several words.
WRAPPERS = frozenset(
    "attachment attachments chunk chunks context contexts document documents docs excerpt excerpts file files"
    " instructions memories memory passage passages reference references reminder rules selection snippet"
    " snippets source sources thread transcript".split()
)

# The headers of a mail that was pasted, in the languages of the clients that people forward from.
MAIL_SENDER = frozenset("from von de da van från fra od от 发件人 寄件者 差出人 보낸사람".split())
MAIL_OTHER = frozenset(
    "to an a para à per aan til till do кому 收件人 收件者 宛先 받는사람 cc bcc kopie copia copie reply-to"
    " subject betreff asunto objet oggetto onderwerp ämne emne temat тема 主题 主旨 件名 제목"
    " date datum fecha data дата 日期 日時 날짜 발신일 sent gesendet enviado envoyé inviato verzonden skickat"
    " sendt wysłano отправлено 发送时间 寄件日期 送信日時".split()
)
# The words between dashes, or before a colon, above a mail that is answered or forwarded.
FORWARDS = (
    "forwarded message",
    "original message",
    "begin forwarded message",
    "weitergeleitete nachricht",
    "ursprüngliche nachricht",
    "originalnachricht",
    "message transféré",
    "message d'origine",
    "message original",
    "mensaje reenviado",
    "mensaje original",
    "mensagem encaminhada",
    "mensagem original",
    "messaggio inoltrato",
    "messaggio originale",
    "doorgestuurd bericht",
    "oorspronkelijk bericht",
    "пересылаемое сообщение",
    "исходное сообщение",
    "转发的邮件",
    "转发邮件",
    "原始邮件",
    "元のメッセージ",
    "転送メッセージ",
    "원본 메시지",
    "전달된 메시지",
)
