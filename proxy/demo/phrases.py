"""The phrases that the rules look for, as tables: one line, one idea. Each becomes a regular expression."""

import re


def _one_of(table: str) -> str:
    """Return an alternation of the table's lines."""
    return "(?:" + "|".join(line.strip() for line in table.strip().splitlines()) + ")"


def _pattern(table: str, before: str = "", after: str = "") -> re.Pattern[str]:
    return re.compile(before + _one_of(table) + after, re.IGNORECASE)


# Skipped at the beginning of a clause; something must follow.
LEAD_IN = _pattern(
    r"""
    (?:hi|hello|hey|hiya|howdy|good (?:morning|afternoon|evening))(?: there| everyone| again| all)?\b[,.!]*
    (?:by the way|btw|also|actually|and|but|so|well|plus|anyway|besides)\b[,:.!]*
    (?:oh|ok|okay|yes|yeah|yep|no|sure)\b[,:.!]*
    (?:thanks|thank you|great|cool|perfect|sorry|unfortunately|fortunately|honestly|basically|hm+)\b[,:.!]*
    (?:correction|update|fyi|for your information|just so you know|for the record|quick note)\b[,:.!]*
    (?:since|because|as|given that|now that)(?=\s(?:i|we|my|our)\b)
    (?:to be honest|in fact|as you know|good news|bad news|i changed my mind|change of plans?)\b[,:.!]*
    i (?:forgot|want|should|need|have|wanted) to (?:mention|tell you|say|add|note)(?: that)?\b[,:]?
    (?:i should mention|you should know|i want(?:ed)? you to know|let me tell you)(?: that)?\b[,:]?
    (?:the thing is|it turns out|turns out|did i mention)(?: that)?\b[,:]?
    """,
    after=r"\s+(?=\S)",
)
LEAD_IN_ZH = re.compile(
    r"(?:其实|另外|对了|顺便说一下|你好|您好|嗨|嗯|所以|但是|但|而且|还有|因为)[，,！! ]*(?=.)"
)

# "Remember that …": what follows is a fact, whoever it is about. "Remember to …", "remember me" are not.
EXPLICIT = _pattern(
    r"""
    remember
    (?:make a )?note
    keep in mind
    (?:do not|don['’]t) forget
    """,
    before=r"(?:please |pls |can you |could you )*",
    after=r"(?: (?:that|this|of))?\b\s*[,:]?\s+(?!to |me\b|when |what |how |why )(?=\S)",
)
EXPLICIT_ZH = re.compile(r"(?:请|帮我|请你|你)*(?:记住|记一下|记得|别忘了)[，,：: ]*(?=.)")

# Said at the end without meaning: "…, ok?", "…, thanks!"
TAIL = _pattern(
    r"""
    ok
    okay
    right
    alright
    got it
    thanks
    thank you
    please
    by the way
    btw
    lol
    haha
    """,
    before=r"(?:[\s,]+",
    after=r"[\s?!.]*)+$",
)

QUESTION = _pattern(
    r"""
    [?？]\s*$
    (?:吗|呢|么)[。!！]?$
    ^(?:请问|什么|怎么|为什么|哪|谁|多少|几)
    ^(?:what|which|where|how|who|whose|why)\b
    ^(?:can|could|would|will|do|does|did|is|are|am|was|were|should|shall|have|has|any|may)\b
    ^when (?:do|does|is|are|did|will|should|can)\b
    """
)

# Adverbs that may stand between "I" and what makes it small talk.
_I = r"^(?:i|we)(?: (?:just|only|also|really|still|do|now|would|'d))*"
_I_AM = r"^(?:i['’]m|im|i am|i was|i['’]ve been|we['’]re|we are)(?: just| still| now)?"
SMALL_TALK = _pattern(
    rf"""
    {_I}(?:['’]d)? (?:like|want|wanted|need|love) to (?:know|ask|see|hear|find out|check|test|try|get|talk)\b
    {_I}(?:['’]d)? (?:like|want|wanted|need) (?:you to|your|some (?:help|advice|ideas?|tips)|help|advice)\b
    {_I}(?:['’]d)? (?:like|want|need) an? (?:\w+ )?(?:recipe|recommendation|suggestion|list|summary|idea)\b
    {_I} (?:wonder|guess|see|agree|hope|mean|meant|suppose|appreciate|forgot|said|told you|asked|bet|wish)\b
    {_I} (?:understand|get it|got it|should|could|thought)\b
    {_I} (?:can|can['’]t|cannot)(?!['’\w]| (?:eat|have|drink|stand|drive|swim|play|speak))
    {_I} (?:don['’]?t|do not|didn['’]?t|did not) (?:know|understand|get|mean|think|remember|see|believe)\b
    {_I} have (?:a |an |another |no |some |two |one )?(?:\w+ )?(?:questions?|idea|clue|doubts?|request)\b
    {_I} (?:love|like|hate|loved|liked) (?:it|that|this|your|the (?:answer|idea|sound|plan))\b
    {_I_AM} (?:sorry|asking|not sure|fine|good|great|ok|okay|well|back|here|done|afraid|confused)\b
    {_I_AM} (?:wondering|curious)\b
    {_I_AM} (?:kidding|testing|joking|looking for|glad|happy to hear|ready|listening|sure|trying to figure)\b
    {_I_AM} (?:in|out|hungry|tired|bored|busy|lost|stuck|new here|on my way)$
    ^(?:i|we)['’]ll (?:try|think|check|do|be back|let you|take|go with|see|have to think)\b
    ^my (?:next |first |last )?(?:question|bad|apolog(?:y|ies)|point|guess|mistake|pleasure|request)\b
    ^我(?:们)?(?:就|只是)?(?:想问|想知道|想请|不知道|不确定|觉得|认为|猜|明白|知道了|懂了|该|应该|能|可以|要问|在想|想让你)
    """
)

HEDGE = _pattern(
    r"""
    \b(?:maybe|perhaps|probably|might|possibly|not sure|considering|i (?:think|guess|suppose|believe))\b
    可能|也许|大概|考虑
    """
)

# The user speaks of themselves: at once, or after an opening such as "On overnights …", "Last month …".
PERSONAL = _pattern(
    r"""
    (?:i|im|ive|my|mine|we|our|ours|i['’]\w+|we['’]\w+)\b
    (?:on|in|at|for|from|during|with|as|until|to|before|after|while|when|whenever)\b[^.?!]{0,60}?\s(?:i|we|my|our)\b
    (?:last|next|every|this|these|right|most)\b[^.?!]{0,40}?\s(?:i|we|my|our)\b
    (?:today|tomorrow|yesterday|currently|usually|normally|generally|sometimes),?\s(?:i|we|my|our)\b
    """
)
# "Rex is our dog", "Dr. Ohm is my dentist".
RELATION = re.compile(r"[A-Z][\w'’-]*\.?(?: [A-Z][\w'’-]*\.?){0,2} is (?:my|our) \w")
CALL_ME = re.compile(
    r"(?:please |you can |you may |everyone |everybody |people |(?:my )?friends |just )*"
    r"calls? me (?P<name>(?:[^,.!?]|\.(?=\s?\w)){1,40})",
    re.IGNORECASE,
)
_FROM_NOW = r"(?:from (?:now|here|today) on|going forward|in (?:the )?future|for future reference)"
STANDING_RULE = re.compile(
    rf"(?:{_FROM_NOW}\b,?\s*(?P<after>.+)|(?P<before>.+?),?\s{_FROM_NOW})$"
    r"|(?P<always>(?:please )?(?:always|never|(?:do not|don['’]t) ever) \w.+)",
    re.IGNORECASE,
)
STANDING_RULE_ZH = re.compile(r"(?:从现在开始|从现在起|以后|今后)[都请你，,]*(?P<after>.+?)我?$")
SELF_ZH = re.compile(r"(?:(?:以前|现在|去年|今年|上个月|上周|昨天|平时|周末)，?)?(?:我们|我)(?!们?[吗呢])")
# "The budget is $12,000 now": only where a memory knows whose budget.
UPDATE = re.compile(r"the (?P<rest>.+? (?:is|are|was|costs?|starts?)\b.+)", re.IGNORECASE)

PREFERENCE = _pattern(
    r"""
    \b(?:prefers?|likes?|loves?|hates?|dislikes?|enjoys?|favou?rite|rather|fan of)\b
    \b(?:can['’]?t|cannot) stand\b
    \b(?:wants to be called|wants the assistant|always wants?)\b
    喜欢|讨厌|偏好|希望
    """
)
PROCEDURE = _pattern(
    r"""
    \b(?:workflow|process|routine|procedure|checklist)\b.*\b(?:is|are|goes|consists)\b
    \bfirst\b.+\bthen\b
    ^(?:whenever|when|before|after|to) .{3,60}?\bUser (?:always )?\w+s\b
    步骤|流程
    """
)
PAST_TIME = _pattern(
    r"""
    \b(?:yesterday|this morning|earlier today)\b
    \blast (?:night|week|weekend|month|year|summer|winter|spring|fall|\w+day)\b
    \b(?:\w+ )?(?:days?|weeks?|months?|years?) ago\b
    昨天|上周|上个月|去年|今天早上
    """
)
# A past event that leaves a lasting state: a fact, not an episode.
NEW_STATE = _pattern(
    r"""
    \bUser (?:\w+ )?(?:moved|relocated|started|switched|changed|joined|adopted|bought|got)\b
    \bUser (?:\w+ )?(?:became|quit|sold|married)\b
    搬到|换了|买了|加入
    """
)
