"""The table of credential formats: one pattern a row. Where a pattern has a group, the group is the value.

The texts are searched as they read (see deobfuscation), so quotes are straight and digits are ASCII.
"""

import re
from functools import partial

from proxy.admit.detection import (
    detector,
    is_blatantly_random,
    is_credential,
    is_key,
    is_labelled_password,
    is_mixed,
    is_opaque,
    is_passphrase,
    is_password,
    is_placeholder,
    is_random,
    is_vendor_key,
)

PASSWORD = (
    r"(?:(?<!\b1)p[a@]ss[ _-]?(?:w[o0]rds?|w[o0]r[dt]|wort|phrases?|codes?|wd|w|keys?)\b"
    r"|(?:(?<!\b1)|(?=passwords? ?[:=]))passwords?|passwd"  # 1Password is a product, unless it is a label
    r"|(?<![a-z])pass(?=[\"']?\s{0,2}[:=])|\bpwd\b|(?<=[a-z_])pwd\b|\bpw\b|kenn(?:wort|wörter)|zugangswort"
    r"|passwort|contraseñ?n?as?|\bclaves?(?= (?:de|del|wi-?fi|para)\b| ?[:=])|(?<=\bmi )clave\b"
    r"|(?<=\btu )clave\b|mot de passe|\bmdp\b|\bsenhas?\b|palavra-passe|parola d'ordine|wachtwoord"
    r"|\bhasł[oa]\b|\bheslo\b|lösenord|adgangskode|\bpassord|salasana|\bşifre(?:m|si)?\b|\bjelszó|mật khẩu"
    r"|kata sandi|密码|密碼|口令|パスワード|暗証番号|비밀번호|парол[ьяюе]|κωδικός|סיסמ[הא]"
    r"|كلمة (?:ال)?(?:مرور|سر)|पासवर्ड|รหัสผ่าน)"
)
PASSWORD_STARTS = (
    *(
        "pass p@ss pw kennw zugangswort contrase clave senha wachtwoord hasł heslo lösenord adgangskode"
        " salasana şifre jelszó mdp 密码 密碼 口令 パスワード 暗証番号 비밀번호 парол κωδικός סיסמ كلمة"
        " पासवर्ड รหัสผ่าน"
    ).split(),
    "mot de passe",
    "palavra-passe",
    "parola d'ordine",
    "mật khẩu",
    "kata sandi",
)
_IS = (  # copulas bind the value, not over a blank line; "changed to" and "set to" do too
    r"(?:(?: ?\([^()\n]{1,40}\))?[\"'`\]*_]{0,3}[^\S\n]{0,3}\n?[^\S\n]{0,3}(?:=>|->|[➜→]|:=|[:=](?!=)|=="
    r"|\?\s(?=it'?s )|(?:改|设|換|换)(?:成|为)了?|\b(?:it'?s|(?:(?:is|was|has been|got|wurde"
    r"|fue) )?(?:now )?(?:changed|set|reset|updated|geändert|cambiada?) (?:to|auf|a)|is|was|are|ist|lautet"
    r"|war|est|es|era|è|é|jest|är|er|будет)\b|是|為|为|は|는|은|[—–](?=\s{0,3}(?:\S{0,40}[\d!@#$%^&*]"
    r"|[а-я])))[*_]{0,3}\s{0,3}(?:now |still |just |jetzt |ahora |again |it'?s )?)"
)
_LABEL = r"(?:(?: ?\([^()\n]{1,40}\))?[\"'`\]*_]{0,3}\s{0,3}(?:=>|:=|[:=])[*_]{0,3}\s{0,3})"
_QUOTED = r"(?:\"\")?\"([^\"\n]{3,200})\"|(?:'')?'([^'\n]{3,200})'|`([^`\n]{3,200})`"
# A comma or a full stop inside a value has something right behind it.
_TOKEN = r"((?![\"'`<])(?:[^\s,;.\"'`。，；、]|[,.](?=[^\s\"'`])|(?<=\w)['`\"](?=\w)){%s})"
_SECRET_WORD = (
    r"(?:secret[ _-]?key|secret|token(?!iz)|api[ _-]?keys?|apikey|access[ _-]?key|private[ _-]?key"
    r"|signing[ _-]?key|encryption[ _-]?key|account[ _-]?key|shared[ _-]?access[ _-]?key|master[ _-]?key"
    r"|deploy[ _-]?key|license[ _-]?key|licence[ _-]?key|credentials?|auth[ _-]?(?:token|key|secret)"
    r"|密钥|密鑰|令牌|秘钥|シークレット|トークン|토큰|токен|секрет|jeton|schlüssel|geheimnis|secreto)"
)
_SECRET_STARTS = tuple(
    "secret token api access private signing encryption account shared master deploy licen credential"
    " auth 密钥 密鑰 令牌 秘钥 シークレット トークン 토큰 токен секрет jeton schlüssel geheimnis".split()
)
_PREFIXES = (
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk)-(?=[A-Za-z0-9_-]{3})|sk-ant-|gh[pousr]_|github_pat_|gl(?:pat|dt|rt"
    r"|oas|ptt|agent|ft|soat)-|xox[abeoprs]-|xapp-|AIza|ya29\.|GOCSPX-|hf_|npm_|dop_v1_|doo_v1_|shpat_"
    r"|shpss_|shpca_|sq0atp-|sq0csp-|lin_api_|pypi-|rubygems_|figd_|ntn_|nvapi-|gsk_|r8_|pplx-|xai-|tvly-"
    r"|dckr_pat_|dckr_oat_|ATATT3|ATCTT3|pat-(?:na|eu)\d-|sbp_|phc_|phx_|glsa_|glc_|hv[sb]\."
    r"|AGE-SECRET-KEY-|tskey-|PMAK-|NRAK-|dapi(?=[0-9a-f])|whsec_|EAA(?=[A-Za-z0-9]{6})|ops_ey|SG\.|rpa_"
    r"|fw_|key-(?=[0-9a-f]{16})|CFPAT-|sntrys_|sntryu_|vercel_|railway_|AKC(?=[a-zA-Z0-9]{10})"
    r"|1//0(?=[\w-]{20}))[ \t]?[A-Za-z0-9_.=-]{0,400}"
)
_PREFIX_STARTS = tuple(
    "sk- pk- rk- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- gloas- glptt- glagent- glft-"
    " glsoat- xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- aiza ya29. gocspx- hf_ npm_ dop_v1_ doo_v1_"
    " shpat_ shpss_ shpca_ sq0atp- sq0csp- lin_api_ pypi- rubygems_ figd_ ntn_ nvapi- gsk_ r8_ pplx- xai-"
    " tvly- dckr_pat_ dckr_oat_ atatt3 atctt3 pat-na1 pat-na2 pat-eu1 sbp_ phc_ phx_ glsa_ glc_ hvs. hvb."
    " age-secret-key- tskey- pmak- nrak- dapi whsec_ eaa ops_ey sg. rpa_ fw_ key- cfpat- sntrys_ sntryu_"
    " vercel_ railway_ akc 1//0".split()
)
_SPELLED = r"(?:capital|uppercase|upper-case|lowercase|lower-case|big|small|groß|klein|mayúscula|majuscule)"
_CODE = (
    r"(?:\b(?:pin|cvv2?|cvc2?|otp|tan|puk)\b|(?:door|gate|alarm|lock|lockbox|safe|entry|garage|keypad"
    r"|unlock|bike lock|vault)(?:'s)?[ -](?:code|pin|combination|combo)|(?:verification|security"
    r"|one[- ]time|login|access|confirmation|sms|2fa|mfa|auth(?:entication)?|backup|recovery"
    r"|rescue) codes?|(?:tür|alarm|sicherheits|zugangs|bestätigungs)code|geheimzahl|código de (?:seguridad"
    r"|verificación|acceso)|digicode|code (?:pin|secret|d'accès|de la porte)|门禁(?:码|密码)?|验证码"
    r"|取款密码|인증번호|認証コード|пин-?код|код (?:от|подтверждения|доступа))"
)
_CODE_STARTS = tuple(
    "pin cvv cvc otp tan puk door gate alarm lock safe entry garage keypad unlock bike vault verification"
    " security one login access confirmation sms 2fa mfa auth backup recovery rescue türcode sicherheits"
    " zugangs bestätigungs geheimzahl código code digicode 门禁 验证码 取款密码 인증번호 認証コード пин"
    " код".split()
)

_DOORS = (
    r"\b(?:doors?|gate|alarm|lock(?:er|box)?|key ?box|safe|garage|keypad|vault|entrance|lobby|shed"
    r"|digicode|haustür|tür|tor|porte|portail|puerta|portal|garaje|cancello|porta)\b"
)

_secret = partial(detector, "secret")

ROWS = (
    _secret(
        r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s:,.\\>|()]|-(?!----))*"
        r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?",
        hints="-----begin",
    ),
    _secret(r"Private-Lines: \d{1,3}\s(?:[A-Za-z0-9+/=]{1,100}\s){1,80}", hints="private-lines"),
    _secret(_PREFIXES, is_vendor_key, starts=_PREFIX_STARTS, pieces=True),
    _secret(
        r"\b[a-z][a-z0-9]{1,11}_(?:live|test|prod|secret|key|sk|pat|token)_[A-Za-z0-9_-]{8,200}",
        is_vendor_key,
        hints="_live_|_test_|_prod_|_secret_|_key_|_sk_|_pat_|_token_",
        pieces=True,
    ),
    _secret(
        r"\b(?:AKIA|ASIA|AIDA|AROA|AGPA|ANPA|ABIA|ACCA)[A-Z0-9]{12,20}\b",
        hints="akia|asia|aida|aroa|agpa|anpa|abia|acca",
    ),
    _secret(r"\bAKIA(?:[ -][A-Z0-9]{4}){3,5}\b", hints="akia"),
    _secret(r"\bhooks\.slack\.com/(?:services|workflows)/([\w/]{10,100})", hints="hooks.slack"),
    _secret(
        r"\bdiscord(?:app)?\.com/api/webhooks/([\w/-]{20,120})|\.webhook\.office\.com/([\w/@-]{20,300})",
        hints="/webhooks/|webhook.office",
    ),
    _secret(r"\beyJ[\w-]{8,4000}\.[\w-]{8,8000}(?:\.[\w-]{0,2000})?", hints="eyj", pieces=True),
    _secret(
        r"(?i)(?:\bbearer|\bauthorization\W{1,4}\w{3,10})[:\s]\s{0,3}([\w.~+/=-]{8,4000})",
        is_credential,
        starts="bearer|authorization",
        pieces=True,
    ),
    _secret(r"(?i)\b(?:set-)?cookie:\s{0,3}([^\n\"']{8,4000})", hints="cookie:"),
    _secret(
        r"(?i)\b(?:x-)?(?:api|auth|access|csrf|session)[-_](?:key|token"
        r"|id)\s{0,2}[:=]\s{0,3}([\w.~+/=-]{8,4000})",
        is_key,
        starts="x-|api|auth|access|csrf|session",
    ),
    _secret(
        r"(?i)\bcurl\b[^\n]{0,200}?\s(?:-u|--user)\s{1,2}[\"']?([^\s\"':]{0,60}:[^\s\"']{2,200})",
        starts="curl",
    ),
    _secret(
        r"(?i)://[^\s:/@\"']{0,100}:([^\s@/\"']{1,200}(?:[/@][^\s@/\"']{1,60}){0,2})@",
        lambda v: not is_placeholder(v),
        hints="://",
    ),
    _secret(r"://([\w.~%-]{12,200})(?::x-oauth-basic)?@", is_key, hints="://"),
    _secret(
        r"(?i)(?:[?&#;](?:[\w.-]{0,20}(?:token|secret|signature|passw(?:or)?d|pass|pwd|api_?key"
        r"|credential))|\bsig(?:nature)?)=([^\s&#\"'<>]{6,4000})",
        is_key,
        starts="?|&|#|;|sig",
    ),
    _secret(r"(?i)[?&#;](?:key|auth|code|sid|session)=([^\s&#\"'<>]{8,4000})", is_opaque, starts="?|&|#|;"),
    _secret(
        r"\bsshpass -p\s?[\"']?([^\s\"']{3,100})|\bmysql(?:dump"
        r"|admin)?\b[^\n]{0,80}?\s-p[\"']?([^\s\"']{4,100})",
        hints="sshpass|mysql",
    ),
    _secret(r"(?<!\S)-p'([^'\s]{4,100})'", is_mixed, hints="-p'"),
    # the account's name first: "root / Toor!2024"
    _secret(
        rf"(?i)\b(?:root|admin|administrator|postgres)\s{{0,2}}[/:]\s{{0,2}}{_TOKEN % '5,100'}",
        is_mixed,
        starts="root|admin|postgres",
    ),
    # a row of a table
    _secret(rf"(?i){PASSWORD}\s{{0,20}}\|\s{{0,3}}([^\s|]{{4,100}})", is_mixed, starts=PASSWORD_STARTS),
    _secret(rf"(?i)\bpass is {_TOKEN % '5,200'}", is_mixed, starts="pass is"),
    _secret(
        r"(?i)\bcombo?(?:ination)?(?: (?:to|of|for|on) [\w' -]{1,30}?)?(?: is| was"
        r"|:)? (\d{1,2}(?:[ -]\d{1,2}){2}|(?:\d{1,2} (?:right|left|r|l)\b\W{0,3}){2,4}\d{0,2})\b",
        starts="combination|combo|comb",
    ),
    _secret(r"(?i)\b(?:otpauth://[^\s\"']{10,400}|secret=[A-Z2-7]{16,64})", hints="otpauth|secret="),
    _secret(
        r"(?i:2fa|mfa|otp|totp|authenticator"
        r"|two-factor)[^\n]{0,40}?\b([A-Z2-7]{4}(?:[ -]?[A-Z2-7]{4}){3,15})\b",
        hints="2fa|mfa|otp|authenticator|two-factor",
    ),
    _secret(
        r"(?i:2fa|mfa|otp|totp|authenticator|two-factor)(?i: (?:secret|seed|key"
        r"|setup key))?\W{1,4}(?:is )?([A-Za-z2-7]{4}(?: [A-Za-z2-7]{4}){3,15})\b",
        hints="2fa|mfa|otp|authenticator|two-factor",
    ),
    _secret(
        r"(?i)<[\w:-]{0,20}(?:passw(?:or)?d|pwd|secret|token|api-?key)>([^<\n]{3,400})<",
        lambda v: not is_placeholder(v),
        hints="<",
    ),
    # password = "anything at all", the passphrase is 'correct horse'
    _secret(rf"(?i){PASSWORD}[\w-]{{0,20}}{_IS}(?:{_QUOTED})", is_labelled_password, starts=PASSWORD_STARTS),
    # passphrase: correct horse battery staple
    _secret(
        rf"(?i)(?:pass[ -]?phrase|seed phrase|recovery phrase|mnemonic|wallet (?:words|seed)|助记词"
        rf"|passphrase|code ?phrase|phrase secrète|frase (?:secreta|semilla))s?{_IS}"
        r"([^\n.;\"']{8,300})",
        is_passphrase,
        starts="pass phrase|pass-phrase|passphrase|seed phrase|recovery phrase|mnemonic|wallet"
        "|助记词|code phrase|codephrase|phrase|frase",
    ),
    # the password is capital H, u n t e r, two
    _secret(rf"(?i){PASSWORD}{_IS}({_SPELLED}\b[^\n.;]{{3,120}})", starts=PASSWORD_STARTS),
    # password: x, PASS=x
    _secret(
        rf"(?i){PASSWORD}[\w-]{{0,20}}{_LABEL}{_TOKEN % '3,200'}",
        is_labelled_password,
        starts=PASSWORD_STARTS,
    ),
    # "password is x", 密码是x
    _secret(
        rf"(?i){PASSWORD}(?: code| number| for [\w' -]{{1,40}}?| to [\w' -]{{1,30}}?| de [\w' -]{{1,30}}?"
        rf"| del? [\w' -]{{1,30}}?| (?:für|fürs|vom|beim|zum|zur|para|pour|per|voor|do|til|från|от"
        rf"|для) [\w' -]{{1,30}}?| of [\w' -]{{1,30}}?| on [\w' -]{{1,30}}?"
        rf"| at [\w' -]{{1,30}}?)?{_IS}{_TOKEN % '3,200'}",
        is_password,
        starts=PASSWORD_STARTS,
    ),
    # "user wren_h, password Heron!Mud88"
    _secret(
        rf"(?i){PASSWORD}(?:[ \t]{{1,3}}|\n[ \t]{{0,3}})[\"'`(]?{_TOKEN % '5,200'}",
        is_mixed,
        starts=PASSWORD_STARTS,
    ),
    # user/pass: "log in with bo / hunter22"
    _secret(
        rf"(?i)(?:log ?in|sign ?in|credentials?|creds|zugangsdaten|anmeldung|acceso"
        rf"|账号)[^\n]{{0,30}}?[\s:][\w.@+-]{{2,60}}(?:[ \t]{{0,2}}[/|][ \t]{{0,2}}|:(?=\S))"
        rf"{_TOKEN % '5,200'}",
        lambda v: is_mixed(v) and not re.fullmatch(r"\w+(?:/[\w-]+)+", v),
        starts="login|log in|signin|sign in|cred|zugangsdaten|anmeldung|acceso|账号",
    ),
    # API_TOKEN=…, "client_secret": "…", the api key is …
    _secret(
        rf"(?i){_SECRET_WORD}[\w-]{{0,30}}{_IS}[\"'`]?{_TOKEN % '6,4000'}",
        is_key,
        starts=_SECRET_STARTS,
        pieces=True,
    ),
    _secret(
        rf"(?i){_SECRET_WORD}[\w-]{{0,30}}{_LABEL}(?:\"([^\"\n]{{6,400}})\"|'([^'\n]{{6,400}})')",
        is_key,
        starts=_SECRET_STARTS,
    ),
    _secret(rf"(?i){_SECRET_WORD}\s{{1,3}}[\"'`(]?([\w./+=-]{{8,400}})", is_opaque, starts=_SECRET_STARTS),
    _secret(
        rf"(?i){_CODE}(?: code| number| nummer)?(?: (?:for|to|of|on|für|vom|de|del) [\w' -]{{1,30}}?| карты"
        rf"| сим)?(?:'s)?{_IS}?(?:die |der |le |el |la |il |o "
        rf"|the )?[\s:#]{{0,3}}(?:[A-Z]{{1,2}}-)?(\d(?:[ -]?\d){{2,7}})(?![\d.,]\d|-\d)\b",
        starts=_CODE_STARTS,
    ),
    _secret(
        r"(?<![\w/+.:=-])(?!sha\d{3}-)(?<!sha256-)(?<!sha384-)(?<!sha512-)([A-Za-z0-9+/_-]{40,5"
        r"12}={0,2})(?![\w/+-])",
        is_random,
    ),
    _secret(
        r"(?<![\w/+.:-])(?!sha\d{3}-)(?<!sha256-)(?<!sha384-)(?<!sha512-)([A-Za-z0-9+_-]{18,512"
        r"}={0,2})(?![\w/+.:-])",
        is_blatantly_random,
    ),
    # the lockbox opens with 5921, the garage keypad is 2 4 6 8 0
    _secret(
        rf"(?i){_DOORS}[^.\n]{{0,40}}?\b(?:opens? with|open with|codes?|keypad|combination|unlocks? with"
        rf"|s'ouvre avec"
        r"|se abre con|öffnet mit|si apre con)\b(?:'s)?[^.\w\n]{0,3}(?:(?:is|was|est|es|ist|è|c'est|le"
        r"|la|die|der|el|now|still|code|the|il|en)[ :]){0,3}(\d(?:[ -]?\d){2,7}#?"
        r"|[A-Z]?\d[\dA-Z]{2,6})(?![\d.,]\d|-\d)\b",
        starts="door|gate|alarm|lock|key|safe|garage|vault|entrance|lobby|shed|digicode|haustür|tür|tor|port|puerta|garaje|cancello",
    ),
    # le code de la porte d'entrée est le 47B92
    _secret(
        r"(?i)\b(?:code|código|codice)\b (?:to |for |of |de |da |del |della |d')[^.\n]{0,40}?\b(?:porte"
        r"|portail|alarme|immeuble|puerta|portal|alarma|porta|cancello|coffre|garage|lock|door|gate"
        r"|alarm|safe)\b[^.\d\n]{0,30}?(?:(?<=\s)[A-Z])?(\d[\dA-Z]{2,7}|\d(?:-\d){2,7})(?![\d.,]\d)\b",
        starts="code|código|codice",
    ),
    _secret(r"(?i)\bdigicode\b[^.\d\n]{0,20}?(\d[\dA-Z]{2,7})(?![\d.,]\d)\b", starts="digicode"),
    # log in with bea@example.org and Teal*2024
    _secret(
        r"(?i)\blog(?:ged|ging)?[ -]?in(?:to)?\b[^.\n]{0,30}?\b(?:with|as|using)\b [^\s,]{2,60}(?: and"
        r"|,| &| /) ([^\s,;\"']{5,100})",
        is_mixed,
        starts="log",
    ),
    # an address and a password, as vaults export them: bea@example.org / Kite$soar9
    _secret(
        r"@[\w-]{1,60}(?:\.[\w-]{1,30}){1,4}\s{0,2}[/|:]\s{0,2}([^\s/|,;]{6,100})(?![^\s.,;])",
        lambda v: is_mixed(v) and not re.fullmatch(r"\d{2,5}", v),
        starts="@",
    ),
    # I changed my wifi password to Nettle&Soup4; without such a verb, "to" leads to anything
    _secret(
        rf"(?i)\b(?:chang|updat|re-?set|set|switch)\w{{0,4}}\b[^.\n]{{0,40}}?{PASSWORD}"
        r"(?: (?:for|of|on|at) [\w' -]{1,40}?)? (?:back |over )?to [\"'`(]?(?!be\b)([^\s,;.\"'`]{3,200})",
        is_password,
        starts="chang|updat|reset|re-set|set|switch",
    ),
    # hasło do wifi to rumianek3, salasana on kissa
    _secret(
        r"(?i)(?:hasł[oa](?: do [\w' -]{1,30}?)? to|salasana(?: [\w' -]{1,30}?)? on)"
        r" [\"'`]?([^\s,;.\"'`]{3,200})",
        is_password,
        starts="hasł|salasana",
    ),
    # my security answer is bluebird
    _secret(
        r"(?i)\b(?:security|secret) (?:answer|word)(?:'s)?(?: (?:for|to) [\w' -]{1,40}?)?(?: is"
        r"|:)\s{1,2}[\"']?([\w-]{3,60})",
        is_password,
        starts="security answer|secret answer|security word|secret word",
    ),
    # docker login -u bea -p …, redis-cli -a …
    _secret(
        r"\b(?:docker|podman|helm|az|cf|redis-cli|psql|mongo(?:sh)?|ldapsearch|smbclient|htpasswd"
        r"|rsync|ftp|lftp|wget|http)\b"
        r"[^\n]{0,120}?\s(?:-p|-a|-w|--pass(?:word)?|--token|--auth)[ =][\"']?([^\s\"']{5,200})",
        is_mixed,
        hints=" -p| -a| -w| --pass| --token| --auth",
    ),
    # auth=('bea', '…'), HTTPBasicAuth("bea", "…")
    _secret(
        r"(?i)(?:\bauth\s{0,2}=\s{0,2}|basicauth|\blogin|\bcredentials?\s{0,2}=\s{0,2})\(\s{0,2}[\"']"
        r"[^\"'\n]{1,60}[\"'],\s{0,3}[\"']([^\"'\n]{3,100})[\"']",
        lambda v: not is_placeholder(v),
        starts="auth|basicauth|login|credential",
    ),
    _secret(r"\becho\s{1,2}[\"']?([^\s\"'|]{4,80})[\"']?\s{0,2}\|\s{0,2}sudo\b", starts="echo"),
    # <add key="DbPassword" value="…" />, name: password, value: …
    _secret(
        rf"(?i){PASSWORD}[\"']?,?\s{{1,20}}(?:\"|')?value(?:\""
        rf"|')?\s{{0,2}}[:=]\s{{0,2}}[\"']?([^\"'\n<]{{3,200}}?)(?=[\"'\n]|$)",
        is_labelled_password,
        starts=PASSWORD_STARTS,
    ),
    _secret(
        r"(?i)\b(?:connect\.sid|j?session(?:_?id)?|sid|phpsessid|csrftoken"
        r"|remember_token)=([^\s;,\"']{8,2000})",
        lambda v: len(re.sub(r"\D", "", v)) > 1 and not is_placeholder(v),
        starts="connect.sid|session|jsession|sid|phpsessid|csrftoken|remember_token",
    ),
    # my password is the word 'kingfisher'
    _secret(
        rf"(?i){PASSWORD} (?:is|was|:|ist|es|est|è) (?:the|my|a|das|la|le) (?:word|phrase|name|wort"
        rf"|palabra|mot) [\"'`]([^\"'`\n]{{3,80}})",
        starts=PASSWORD_STARTS,
    ),
    _secret(r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{32,64}\b", starts="pat"),
    # keys that gitleaks reports only next to the vendor's name: Telegram's and Discord's bots, Mailchimp
    _secret(r"(?<!\d)\d{8,10}:AA[\w-]{32,36}(?![\w-])", is_vendor_key, hints=":aa", pieces=True),
    _secret(
        r"(?<![\w-])[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38}(?![\w-])", is_vendor_key, hints=".", pieces=True
    ),
    _secret(r"(?<!\w)[0-9a-z]{32}-us\d{1,2}(?!\w)", is_vendor_key, hints="-us", pieces=True),
)
