"""Patterns of sentences that try to steer an assistant's memory, in the languages that pages and mails are
written in.

A user's own wish says "I", or nothing. What steering texts have in common is that they address a machine,
or speak about "the user" as somebody who is not present, next to a verb of remembering. The words are in
`words/steering.txt`; the order in which they may follow each other is here.
"""

from proxy.wordlists import any_of

AI = any_of("steering", "assistants")
_KEEP = any_of("steering", "keep")
_USER = any_of("steering", "user")
_DOES = any_of("steering", "does")
_ABOUT = (  # an order to keep something about "the user"
    rf"\b{_KEEP}\b[^.\n]{{0,60}}?(?:\b(?:that|que|qu'|dass|ceci|esto)\b,?|[:>(=\"“\u300c]|->)"
    rf"[\s\"'“(:]{{0,3}}{_USER} ?{_DOES}"
    rf"|\b(?:save|add|update|write|store|set)_?(?:to_)?memory\s?\([^)\n]{{0,20}}[\"']|\bmemory\.(?:add"
    rf"|save|store|write)\("
    r"|\bupdate (?:the )?user'?s? (?:profile|memory|preferences?)\b|\buser\.(?:preference|profile|memory)s?\."
    r"|\buser preferences? (?:is |are |was )?(?:updated|changed|set) to\b"
    r"|\bmemory (?:update|instruction|override|sync)\w{0,9}\s{0,2}[:\uff1a]"
    rf"|[<\[{{][\"']?memory[\"']?[>\]:]\s{{0,2}}[\"']?{_USER} ?{_DOES}"
    rf"|\badd\b[^.\n]{{0,40}}\b(?:knowledge|memory) (?:about|of) the user\b"
    r"|\b(?:begin|start of) memory (?:update|entry)\b"
    r"|\b(?:actualiza la memoria|gedächtnis aktualisieren|mise à jour de la mémoire)\b"
)
_SPEAKS_TO = (  # whoever reads: an address, a condition, an order
    rf"\b(?:any|all|every|each|alle|todos los|tous les|à tou[st]e?s? les) {AI}\s?(?:that|who|which"
    rf"|reading|processing"
    rf"|summari[sz]ing|lisant|qui|que|[:,])"
    rf"|\b{AI} (?:reading|processing|parsing|summari[sz]ing) (?:this|the)\b"
    rf"|^\W{{0,5}}(?:to (?:the |all |any )?|an (?:alle |die |den )?|a (?:todos )?(?:los |la )?|aux? )"
    rf"(?:ais?|llms?|ki|ia|(?:ai|language)[ -]models?|ki-modelle|sprachmodelle)\s?[:,]"
    r"|\b(?:if you are|if you're|wenn du|wenn sie|si eres|si es usted|si tu es|si vous êtes|se sei)"
    rf" (?:an?|ein\w{{0,2}}|una?|une?)? ?{AI}"
    rf"|^\W{{0,5}}(?:dear|attention|atención|achtung|attention aux|liebe[rs]?|chère?|cher"
    rf"|estimad[oa])\s(?:all )?"
    r"(?:ais?|llms?|ki|ia|chatbots?|asistentes?(?: de ia)?|language models?|ai (?:models?|assistants?"
    r"|agents?))\b"
    rf"|\b(?:instrucci[oó]n(?:es)?|anweisung(?:en)?|nota|nachricht|consigne|directive)\s(?:para|an|für"
    rf"|pour|à|a)\s"
    rf"(?:el |la |los |den |die |das |l'|les )?{AI}"
    r"|\b(?:important|secret|hidden|special) instructions? (?:for|to) the model\b"
    rf"|\b(?:new|updated) (?:rules?|instructions?|directives?) for (?:this|the|any|all) (?:{AI}|model\s?:)"
    r"|\b(?:llm|ai|model|assistant|chatbot) (?:directive|override|command)s?\s?[:\uff1a]"
    r"|\bhidden prompt\b|\bsystem prompt (?:addition|override)\b"
    r"|\bfrom now on,? (?:the|this|any) (?:assistant|ai|model|chatbot) (?:shall|must|will|should)\b"
    r"|\b(?:the|any) (?:ai|assistant|model|llm) (?:must|shall|should|has to) (?:store|save|memori[sz]e"
    r"|remember"
    r"|update)\b[^.\n]{0,20}\b(?:user|memory)\b"
    r"|\b(?:if|when) an? (?:ai|llm|language model|chatbot) (?:summari[sz]es|reads|processes)\b"
    rf"|\b(?:ki-systeme|ki-modelle|les assistants ia|los asistentes de ia)\b[^.\n]{{0,50}}{_USER}"
    r"|^\W{0,5}(?:asistente|assistant|assistente) (?:de ia|ia|ai)\s?[:,]"
    rf"|\b(?:el asistente debe|der assistent (?:muss|soll)|l'assistant doit)\b[^.\n]{{0,40}}{_USER}"
)
_COMMANDS = (
    r"\b(?:ignore|disregard|forget)\b[^.\n]{0,12}\b(?:rules?|instructions?|guidelines?"
    r"|prompts?)\b[^.\n]{0,20}"
    r"\b(?:given|before|above|so far|until now)\b"
    r"|^\W{0,5}override\s?[:\uff1a]"
    r"|^#{1,4}\s{0,3}instructions?\s?:\s{0,3}(?:always|never|remember|from now on|ignore|you must"
    r"|append|do not)\b"
    r"|^\W{0,5}(?-i:SISTEMA|SYSTÈME|SYSTEME)\s?[:\uff1a]"
)
_CHINESE = (
    r"对(?:ai|人工智能|大模型)的?(?:指令|提示|要求)|(?:ai|人工智能|大模型|语言模型|智能助手|智能体|模型)\s{0,2}[^。\n我]{0,6}(?:读到|看到|阅读"
    r"|处理)(?:到)?(?:这|本|此)"
    r"|(?:阅读|读到|处理)(?:本|此|这)[^。\n]{0,6}的(?:ai|人工智能|大模型|模型|助手)"
    r"|(?:作为|身为)(?:一个)?(?:ai|人工智能|大模型|语言模型)[^。\n]{0,6}你(?:必须|应该|应当|要)"
    r"|(?:大模型|语言模型|人工智能)(?:请)?(?:注意|须知|必须|务必)"
    r"|(?:记住|记下|记录|保存|存入|写入|添加|加入)[^。\n]{0,16}?(?:该)?用户(?:的首选|已|同意|授权|要求|希望|信任|偏好|喜欢|不需要"
    r"|是(?!否|谁|什么|如何|怎)|想要)"
    r"|用户[^。\n]{0,30}(?:写入|存入|加入|保存到)[^。\n]{0,6}记忆"
    r"|(?:存入|写入|加入|添加到?)你的(?:长期)?记忆|把用户的[^。\n]{1,12}改(?:为|成)"
)
STEERS = "|".join((_ABOUT, _SPEAKS_TO, _COMMANDS, _CHINESE))
