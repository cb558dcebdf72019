"""One question in many languages, for models that read them all."""

WHERE_DO_I_LIVE = (
    "Where do I live?",
    "我住在哪里？",
    "¿Dónde vivo?",
    "Wo wohne ich?",
    "Où est-ce que j'habite ?",
    "私はどこに住んでいますか",
    "Где я живу?",
    "أين أسكن؟",
    "저는 어디에 살아요?",
)
