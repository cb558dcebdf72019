"""The evaluation: hand-written personas, through the HTTP API of a real proxy (`scripts/eval --help`).

`retrieval` stores the gold facts and asks the questions; `extraction` replays the conversations with a
scripted extraction model and looks for what must never be stored. `score` is pure; `house` runs things.
"""
