"""Words that make two otherwise equal facts speak of two different things: `words/contrast.txt`.

"In the morning" beside "in the evening", "back from Oslo" beside "to Oslo". Such facts hold side by side,
however near a model finds them.
"""

from proxy.terms import stems
from proxy.wordlists import sections

# When it is done: alone it makes a fact narrower, another one makes another fact.
TIMES = stems(" ".join(sections("contrast")["times"]))
# Which of several is meant, or when.
CONTRAST = TIMES | stems(" ".join(sections("contrast")["things"]))
