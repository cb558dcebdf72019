"""Texts that attack the write gate, apart from those it was built with (tests/learn/safety_corpus).

SECRETS and PERSONAL: (text, what must not be left of it). INNOCENT: sentences that lose nothing. A broken bar
is taken out: it keeps scanners of this repository from taking an invented key for a real one.
"""

import base64
import binascii
from urllib.parse import quote


def _rows(*rows: tuple[str, str]) -> list[tuple[str, str]]:
    return [(text.replace("¦", ""), value.replace("¦", "")) for text, value in rows]


def _b64(text: str) -> str:
    return base64.b64encode(text.replace("¦", "").encode()).decode()


def _hex(text: str) -> str:
    return binascii.hexlify(text.replace("¦", "").encode()).decode()


_LONG_KEY = "sk-¦proj-Zq8Wn3Lt6Rv1Yx5Kb9Md2Hf7"

SECRETS = _rows(
    # vendors' shapes, as pasted
    ("My OpenAI key changed, it's sk-¦svcacct-8Hn2kQpL0vZx3RtYw6Bm, please use the new one", "8Hn2kQpL0vZx"),
    ("ANTHROPIC_API_KEY=sk-¦ant-api03-mQ7x_Zr4Tn-2WvKd8Lp", "mQ7x_Zr4Tn"),
    ("use AK¦IAQ3EXAMPLE7TYZ2M4 with region eu-west-1", "Q3EXAMPLE7TYZ2M4"),
    (
        "aws configure\nAWS Access Key ID [None]: AK¦IAV7TRSD2KQ4W8ZNPL\n"
        "AWS Secret Access Key [None]: h3Kz¦9/Wq2+Lm7VtXr5BnYc8Pd4Jf6Gs1Ua0Eo2Ti",
        "9/Wq2+Lm7VtXr5",
    ),
    ("gh¦o_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912"),
    ("glc_¦eyJvIjoiMTIzNDU2IiwibiI6InRlc3QifQ==", "eyJvIjoiMTIzNDU2"),
    ("Stripe restricted: rk_¦test_51Mz8XkLp2QvRt7YwNb3Kd9", "51Mz8XkLp2Qv"),
    (
        "twilio SID AC¦4d3f9b1a7c2e8056f4d3b2a190876543, auth token 7e1c9a4b3d2f8065a1b2c3d4e5f60718",
        "7e1c9a4b3d2f8065",
    ),
    ("mapbox pk.¦eyJ1IjoibXl1c2VyIiwiYSI6ImNrOXgyIn0.Zq8Wn3Lt6Rv1Yx5K", "eyJ1IjoibXl1c2VyIiwi"),
    ("DATADOG_API_KEY: 9f1c3e5a7b2d4f6081a3c5e7f9b1d3e5", "9f1c3e5a7b2d4f60"),
    ("Heroku HRKU-¦01234567-89ab-cdef-0123-456789abcdef", "89ab-cdef-0123"),
    ("shippo_¦live_5c8e2a7f1b3d9064e2a7f1b3d9064c8e2a7f1b3d", "5c8e2a7f1b3d9064"),
    ("Notion integration: secret_¦Xk2Lp9Qv4Rt7Yw1Nb6Kd3Zm8Hf5Jc0Sg", "Xk2Lp9Qv4Rt7Yw1N"),
    ("airtable pat¦Xk2Lp9Qv4Rt7Yw.5c8e2a7f1b3d9064e2a7f1b3d9064c8e", "5c8e2a7f1b3d9064"),
    ("the Azure SAS is ?sv=2023-11-03&ss=b&sig=Yk3%2BLm9Qv%2F4Rt7Yw1Nb6Kd%3D", "Yk3%2BLm9Qv%2F4Rt"),
    ("SENTRY_DSN=https://5c8e2a7f1b3d9064e2a7f1b3d9064c8e@o12.ingest.sentry.io/7", "5c8e2a7f1b3d9064"),
    ("Cloudflare token: v1.0-5c8e2a7f1b3d-9064e2a7f1b3d906", "5c8e2a7f1b3d-9064"),
    (
        "Supabase service role ey¦JhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJyb2xlIjoic2VydmljZSJ9.pQ2w",
        "eyJyb2xlIjoic2Vy",
    ),
    ("perplexity: pplx-¦3b9d2f7a1c5e8064b9d2f7a1c5e80643", "3b9d2f7a1c5e8064"),
    ("Groq gsk_¦Zq8Wn3Lt6Rv1Yx5Kb9Md2Hf7WGdyb3FY", "Zq8Wn3Lt6Rv1Yx5K"),
    (
        'here\'s the service account: {"type": "service_account", "private_key_id": '
        '"5c8e2a7f1b3d9064e2a7f1b3d9064c8e2a7f1b3d"}',
        "5c8e2a7f1b3d9064",
    ),
    # passwords told in sentences, several languages
    ("By the way, my Netflix password is still fluffy-Badger-77, don't lose it.", "fluffy-Badger-77"),
    ("Log into the NAS as admin with password Mallard#204", "Mallard#204"),
    ("for the wiki, user is bea and the pass is pondweed_5", "pondweed_5"),
    ("Password's Curlew!9 if you need it", "Curlew!9"),
    ("I set the new password as Bittern_44 last night", "Bittern_44"),
    ("the password I use there: Dipper&Ouzel1", "Dipper&Ouzel1"),
    ("my bank password used to be Sorrel31 but now it's Yarrow#88", "Yarrow#88"),
    ("my bank password used to be Sorrel31 but now it's Yarrow#88", "Sorrel31"),
    ("the guest network password: welcome-to-number-9", "welcome-to-number-9"),
    ("wifi is Nestwork and the key is bluebottle-93-jar", "bluebottle-93-jar"),
    ("My laptop unlock password = Marsh.Harrier.7", "Marsh.Harrier.7"),
    ("remember my pw for steam: tr0ub4dor&3", "tr0ub4dor&3"),
    ("I use the same password everywhere, Redshank12!", "Redshank12!"),
    ("password hint aside, the actual one is Garganey_6", "Garganey_6"),
    ("You can log in with bea@example.org and Teal*2024", "Teal*2024"),
    ("Username bea, password: Wigeon 2024!", "Wigeon"),
    ("passwd for ssh on host lynx: p1ntail-drake", "p1ntail-drake"),
    ("The admin panel (admin / Gadwall-19) is on port 8443", "Gadwall-19"),
    ("psql -h db -U app, PGPASSWORD=eider_down_3", "eider_down_3"),
    ("Merk dir bitte: mein WLAN-Schlüssel ist Brachvogel-2291", "Brachvogel-2291"),
    ("Das Passwort fürs Online-Banking habe ich auf Kiebitz!83 geändert", "Kiebitz!83"),
    ("mein Passwort ist immer noch Zaunkönig7", "Zaunkönig7"),
    ("Meine Geheimzahl ist die 4826", "4826"),
    ("PIN für die EC-Karte: 7730", "7730"),
    ("mi contraseña del banco es Jilguero#21", "Jilguero#21"),
    ("La contraseña nueva: Golondrina_8", "Golondrina_8"),
    ("recuerda que mi clave de acceso es Mirlo2023", "Mirlo2023"),
    ("el PIN de la tarjeta es 9047", "9047"),
    ("Retiens que mon mot de passe Gmail est Hirondelle!5", "Hirondelle!5"),
    ("le code de la porte d'entrée est le 47B92", "47B92"),
    ("le code wifi c'est Mesange-bleue-12", "Mesange-bleue-12"),
    ("mon code PIN est 5518", "5518"),
    ("记一下,我的邮箱密码是 Yanzi#2023", "Yanzi#2023"),
    ("家里wifi密码是maque886699", "maque886699"),
    ("银行卡取款密码是 739104,别忘了", "739104"),
    ("服务器root密码改成了Xique_77", "Xique_77"),
    ("门锁密码 820517#", "820517"),
    ("支付宝支付密码:461930", "461930"),
    ("手机锁屏密码是 2846", "2846"),
    ("WiFiのパスワードは suzume-2231 です。覚えておいて。", "suzume-2231"),
    ("暗証番号は4819です", "4819"),
    ("パスワード:Tsubame_55", "Tsubame_55"),
    ("мой пароль от почты Snegir_2023", "Snegir_2023"),
    ("Запомни: пароль к серверу - Chizh!77", "Chizh!77"),
    ("пин-код карты 6402", "6402"),
    ("A senha do wifi é beija-flor-41", "beija-flor-41"),
    ("la password del router è Rondine_12", "Rondine_12"),
    # PINs and codes
    ("my debit card PIN is 3-8-1-6", "3-8-1-6"),
    ("The alarm's code: 7-7-3-9", "7-7-3-9"),
    ("security code on the back is 482", "482"),
    ("safe combination: 34 right, 12 left, 58 right", "34 right"),
    ("the lockbox by the door opens with 5921", "5921"),
    ("The gate opens with code 7714#", "7714"),
    ("voicemail PIN 60412", "60412"),
    ("my SIM PUK is 48201957", "48201957"),
    ("two-factor backup code 4829-1057", "4829-1057"),
    ("OTP 552 910 arrived", "552 910"),
    ("our garage keypad is 2 4 6 8 0", "2 4 6 8 0"),
    ("entry code to the flat is A4471", "A4471"),
    # config, code, tables
    ('```yaml\ndatabase:\n  user: app\n  password: "lapwing/Plover 9"\n```', "lapwing/Plover 9"),
    ("| service | login | password |\n|---|---|---|\n| wiki | bea | Avocet_81x |", "Avocet_81x"),
    ("```python\nclient = Client(api_key='tk9Zr4Qm2Wv8Lp1X')\n```", "tk9Zr4Qm2Wv8Lp1X"),
    ("requests.get(url, auth=('bea', 'Knot-flock_3'))", "Knot-flock_3"),
    ("const TOKEN = `9d8f7a6b5c4e3f2a1b0c`;", "9d8f7a6b5c4e3f2a"),
    ("docker login -u bea -p Turnstone!88 registry.example", "Turnstone!88"),
    ("ENV DB_PASS Sanderling77", "Sanderling77"),
    ("machine api.example login bea password stint_sand4", "stint_sand4"),
    ("redis-cli -h cache -a Phalarope-21 ping", "Phalarope-21"),
    ("{'password': 'curlew sands 3'}", "curlew sands 3"),
    ('{\\"password\\": \\"Godwit9mud\\"}', "Godwit9mud"),
    ('{"password":"ruff\\u0031lek"}', "lek"),
    ("https://bea:D0tterel%21@files.example/x", "D0tterel%21"),
    ("postgres://app:whinchat.gorse@db:5432/prod", "whinchat.gorse"),
    (
        "-----BEGIN OPENSSH PRIVATE¦ KEY-----\nb3BlbnNzaC1rZXktdjEAfake\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1rZXkt",
    ),
    (
        "> -----BEGIN RSA PRIVATE¦ KEY-----\n> MIIEfakefake77\n> -----END RSA PRIVATE KEY-----",
        "MIIEfakefake77",
    ),
    ("kubectl create secret generic x --from-literal=password=Siskin88!", "Siskin88!"),
    ("vault kv put secret/app token=5Zr4Qm2Wv8Lp1XtK", "5Zr4Qm2Wv8Lp1XtK"),
    ("spring.mail.password : Brambling.9", "Brambling.9"),
    ('<add key="DbPassword" value="Twite&heath7" />', "Twite&heath7"),
    ('password="""linnet_gorse"""', "linnet_gorse"),
    ("X-API-KEY: crossbill-pine-4471-zz", "crossbill-pine-4471"),
    ("%env(APP_SECRET)% was 5c8e2a7f1b3d9064 before", "5c8e2a7f1b3d9064"),
    ("sudo: echo 'Hawfinch3cherry' | sudo -S reboot", "Hawfinch3cherry"),
    ("WEBHOOK_SIGNING_SECRET=whimbrel8moor2tide", "whimbrel8moor2tide"),
    ("Bearer: 4f9a2c7e1b8d3065", "4f9a2c7e1b8d3065"),
    ("the session cookie is connect.sid=s%3AZq8Wn3Lt6Rv1.Yx5Kb9Md2", "Zq8Wn3Lt6Rv1"),
    # wallets
    (
        "my wallet: ripple scissors kick mammal hire column oak again sun offer wealth tomorrow",
        "mammal hire column",
    ),
    (
        "助记词 abandon ability able about above absent absorb abstract absurd abuse access accident",
        "absent absorb",
    ),
    (
        "ETH private key 0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318",
        "4c0883a69102937d",
    ),
    ("WIF key 5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ", "HueCGU8rMjxEXx"),
    # disguises
    (f"encoded: {_b64('password: heron-reed-77')}", _b64("password: heron-reed-77")[8:24]),
    (f"base64 {_b64(_LONG_KEY)}", _b64(_LONG_KEY)[8:24]),
    (f"in hex it is {_hex('password=Sparrow#31')}", _hex("password=Sparrow#31")[6:30]),
    (f"hex: {_hex(_LONG_KEY)}", _hex(_LONG_KEY)[6:30]),
    (
        f"the link is https://x.example/login?next=%2F&blob={quote('password=Finch&Reed9', safe='')}",
        "Finch%26Reed9",
    ),
    (f"url-encoded: {quote('my password is Fieldfare!4')}", "Fieldfare%214"),
    ("p\u200ba\u200bs\u200bs\u200bword: Wren\u200b-hedge-5", "hedge-5"),
    (
        "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44\uff1a\uff34\uff45\uff41\uff4c\uff0d\uff16\uff11",
        "\uff34\uff45\uff41\uff4c",
    ),
    ("sk\u2011\u00a6proj\u2011Zq8Wn3Lt6Rv1Yx5Kb9Md2Hf7", "Zq8Wn3Lt6Rv1"),
    ("my pass word is: S-h-r-i-k-e-7", "S-h-r-i-k-e-7"),
    ("the p a s s w o r d is jackdaw88", "jackdaw88"),
    ("the key is sk-¦proj-Zq8W\nn3Lt6Rv1Yx5Kb9\nMd2Hf7Jc4", "Md2Hf7Jc4"),
    ("ghp underscore: gh¦p_Zq8Wn3Lt6Rv1Yx5Kb9Md2Hf7Jc4Sg0Ua", "Zq8Wn3Lt6Rv1"),
    ("my pаsswоrd is сhough_cliff3", "hough_cliff3"),
    ("password (don't tell anyone): Rook&Jay9", "Rook&Jay9"),
    ("PASSWORD ➜ Magpie.Two4", "Magpie.Two4"),
    ("**Password:** `nutcracker-8`", "nutcracker-8"),
    ("password - Treecreeper5", "Treecreeper5"),
    ("pwd=Nuthatch%215&user=bea", "Nuthatch%215"),
    ("The password?\n\nGoldcrest-3!", "Goldcrest-3!"),
    ("pass\u00adword: Firecrest3x", "Firecrest3x"),
    ("My password is the word 'kingfisher' followed by 42", "kingfisher"),
    # a second set, written after the first was mended
    ("i made a new password for hulu last night, it is Kestrel-Moon-19", "Kestrel-Moon-19"),
    ("the password to my laptop? Osprey_nest4", "Osprey_nest4"),
    ("our shared password at work, Falcon+Hood8, was changed", "Falcon+Hood8"),
    ("passwords: bank=Merlin!21, mail=Hobby&33", "Hobby&33"),
    ("router admin pw Buzzard-hill-7", "Buzzard-hill-7"),
    ("Spotify: bea@example.org / Kite$soar9", "Kite$soar9"),
    ("Das neue Passwort für die Cloud heißt Habicht_66", "Habicht_66"),
    ("Zugangsdaten fürs VPN: bea.o / Sperber!Wald3", "Sperber!Wald3"),
    ("mi contraseña de Netflix sigue siendo Halcon-rojo5", "Halcon-rojo5"),
    ("la clave de la alarma es 8812", "8812"),
    ("le mot de passe du NAS, c'est Faucon_gris2", "Faucon_gris2"),
    ("le digicode est 58A31", "58A31"),
    ("Github密码换成Cangying_99了", "Cangying_99"),
    ("小区门禁密码是 #4471", "4471"),
    ("社内WiFiのパスワードはHayabusa-77だよ", "Hayabusa-77"),
    ("пароль от вайфая: Sokol_15", "Sokol_15"),
    ("Пароль для входа — Yastreb!9x", "Yastreb!9x"),
    ("use pass=Goshawk%233 in the query", "Goshawk%233"),
    ("GITHUB_TOKEN: gh¦s_Zq8Wn3Lt6Rv1Yx5Kb9Md2Hf7Jc4Sg0Ua", "Zq8Wn3Lt6Rv1"),
    ("my PIN's 6619", "6619"),
    ("pin number for the visa: 4 0 2 8", "4 0 2 8"),
    ("the code to my bike lock is 7-1-3", "7-1-3"),
    ("the safe opens with 18-42-07", "18-42-07"),
    ("smtp_pass = 'harrier marsh 3'", "harrier marsh"),
    ("username,password\nbea,Kestrel#12\n", "Kestrel#12"),
    ("name\tpin\nbea\t5518\n", "5518"),
    (
        "Here is the kubeconfig: token: eyJhbGciOiJSUzI1NiIsImtpZCI6IjEyMyJ9.eyJpc3MiOiJrdWJlIn0.sig_nature",
        "eyJpc3MiOiJrdWJl",
    ),
    ("client_secret%3DZq8Wn3Lt6Rv1Yx5K", "Zq8Wn3Lt6Rv1"),
    ("password&#58; Eagle-owl7", "Eagle-owl7"),
    ("70617373776f72643a2048656e4861727269657239", "48656e4861727269"),
    ("TOKEN='Zq8W' + 'n3Lt6Rv1Yx5K'", "n3Lt6Rv1Yx5K"),
    ("My mother's maiden name answer is Okonkwo and my security answer is bluebird", "bluebird"),
    ("card 5425 2334 3010 9903, CVC 881", "881"),
)

PERSONAL = _rows(
    ("pay with 5200 8282 8282 8210 please, it's a Mastercard debit", "8282 8282"),
    ("card: 6011-0009-9013-9424 exp 09/28", "0009-9013"),
    ("my Amex 371449635398431", "371449635398431"),
    ("JCB 3530 1113 3330 0000", "1113 3330"),
    ("信用卡 5555 5555 5555 4444,有效期 12/28", "5555 5555"),
    ("Kreditkarte 4012 8888 8888 1881 läuft 2027 ab", "8888 8888"),
    ("tarjeta número 4000-0025-0000-3155", "0025-0000"),
    ("carte bleue 4970 1010 0000 0055", "1010 0000"),
    ("カード番号は3566 0020 2036 0505です", "0020 2036"),
    ("4242\n4242\n4242\n4242", "4242\n4242"),
    ("4\u200b2424242\u200b42424242", "42424242"),
    ("4242_4242_4242_4242", "4242_4242"),
    ("card 4242 4242 4242 4242 (12/30, 123)", "4242 4242"),
    ("IBAN GB29 NWBK 6016 1331 9268 19", "6016 1331"),
    ("mi IBAN: ES91 2100 0418 4502 0005 1332", "0418 4502"),
    ("iban: CH93-0076-2011-6238-5295-7", "2011-6238"),
    ("Überweise auf AT61 1904 3002 3457 3201", "3002 3457"),
    ("my checking account is 000123456789 at Chase, routing 021000021", "000123456789"),
    ("acct no: 8837-2210-55", "8837-2210"),
    ("the sort code is 20-00-00 and account 55779911", "55779911"),
    ("银行账号 6217 0002 1000 1234 567", "0002 1000"),
    ("social security: 219-09-9999", "219-09-9999"),
    ("my social is 219 09 9999", "219 09 9999"),
    ("SSN 219099999", "219099999"),
    ("last 9 of ssn: 2 1 9 0 9 9 9 9 9", "2 1 9 0 9"),
    ("my NI number is QQ 12 34 56 C", "12 34 56"),
    ("身份证 110101199003078515", "19900307"),
    ("我身份证号:32031119770706001X", "19770706"),
    ("DNI: 00000000T", "00000000T"),
    ("mein Personalausweis hat die Nummer L01X00T471", "L01X00T471"),
    ("Steueridentifikationsnummer 86095742719", "86095742719"),
    ("numéro de sécu 1 84 12 76 451 089 46", "76 451 089"),
    ("mi pasaporte es PAA123456", "PAA123456"),
    ("passport: GBR 925665416", "925665416"),
    ("My passport's number is 925665416", "925665416"),
    ("護照號碼 300001234", "300001234"),
    ("паспорт 4510 123456", "4510 123456"),
    ("ИНН 500100732259", "500100732259"),
    ("パスポート番号 TK1234567", "TK1234567"),
    ("driving licence MORGA753116SM9IJ 35", "MORGA753116SM9IJ"),
    ("Medicare 2123 45670 1", "2123 45670"),
    ("Aadhaar no 2345 6789 0124", "2345 6789"),
    ("my Sozialversicherungsnummer is 12 345678 M 009", "345678 M"),
    ("CPF: 529.982.247-25", "982.247"),
    ("my dad's SSN is 219-09-9999", "219-09-9999"),
    ("I banked with DE75 5121 0800 1245 1261 99", "1245 1261"),
    ("my tax number is 912-81-4321", "912-81-4321"),
    ("her passport no is 540392817", "540392817"),
    ("carte vitale 2 69 05 49 588 157 80", "49 588 157"),
    ("DNI de mi madre 45678912K", "45678912"),
    ("身份证号码是 310105198806153022", "19880615"),
    ("Amex ending: full number 3714 496353 98431", "496353"),
)

INNOCENT = """
Our flat is number 14 on the 3rd floor, the bell says Okafor
I parked on level 4, bay 217, near the lift
The recipe wants 375 g flour, 7 g yeast and 2 tsp salt
My half marathon time was 1:47:32 in Bristol
My daughter's school starts at 08:25 and ends at 15:10
I take 50 mg sertraline and 1000 IU vitamin D every morning
My boss is Dr. Amara Osei and our team has 9 people
The standup is at 9:45 on weekdays except Thursday
The car is a 2017 Skoda Octavia with 142,300 km
My parcel number is 00340434161094042557
The meter reading on 3 March was 48213.7 kWh
We pay 1,340 euros rent and 210 for utilities
My shoe size is 43 and my jacket is 50
I was born on 1990-03-07 in Leeds
My library card expires in June 2027
The flight BA2490 lands at 21:55 in terminal 5
Seat 34K, boarding group 4, gate B38
My locker at the gym is 118
The dentist is on 14/02 at 16:30, room 2.07
My frequent flyer status is Gold since 2021
The password manager we use at work is Bitwarden
I forgot my password again last Tuesday
I keep forgetting passwords, can you suggest a method?
The password must have 12 characters, a digit and a symbol
We rotate passwords every 90 days
Never share your password with anyone
I'd like to learn how passkeys work on Android 15
My password manager is KeePassXC 2.7.9
The token budget for the prompt is 8192
We count tokens with tiktoken 0.7.0
An access token lives for 15 minutes, a refresh token for 30 days
The secret to good bread is patience
The secret santa draw is on 12 December
The key change is in bar 48, from D minor to F
The answer key is on page 212
My keyboard has 87 keys
Key West was hot, 34 degrees
The treasury key date is 2026-03-31
Please put the key under the mat
The house key is with Mrs Lindqvist in number 9
Our API key rotation runs every 30 days
The API returns 429 after 60 requests per minute
The primary key is a bigint, the foreign key is nullable
The public key is stored in the repo
The code review takes 2 hours on Fridays
The zip code is 94110
My area code is 0161
My postal code is M5V 2T6
Error code 0x80070005 when installing
The exit code was 137
QR code on page 3
The source code is 48,000 lines
The dress code for 14 June is black tie
The discount code is SPRING15
PIN 7 of the chip is ground
We pinned numpy to 1.26.4
The pin is bent on connector J12
I have 3 accounts at two banks
My account manager is Lucas
Account for 12 percent VAT
I moved my account to the credit union in 2023
Invoice 2026-00418 for 3,480.00 EUR is due 30 days net
PO number 4500123456
Order 112-3456789-0123456 was delivered
Tracking number 1Z5R89390357567127
Booking 6X4TQZ at Hotel Aurora
Case number 24-cv-01873
Ticket HELP-20419 is still open
Jira PROJ-1187 blocks the release
Pull request #4821 was merged at 17:03
Commit 9f8e2d1 fixed the race
git checkout 4b825dc642cb6eb9a060e54bf8d69288fbee4904
The image digest is sha256:9b2c1e0d4f5a68b7c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6
trace id 4bf92f3577b34da6a3ce929d0e0e4736
The request id was req_8f2Kd9QzLm3
uuid 7c9e6679-7425-40de-944b-e07fc1f90ae7 is the tenant row
vpc-0a1b2c3d4e5f67890 in eu-central-1
arn:aws:iam::123456789012:role/deploy
subnet 10.20.0.0/16, gateway 10.20.0.1
The pod is api-7d9f8b6c5d-x2k4q
container f3a9c1d2b4e5 restarted
We run PostgreSQL 16.3 with pgvector 0.7.2
Node 22.11.0, npm 10.9.0, TypeScript 5.6.3
The build is 2026.11.20-rc3+build.417
Chrome 131.0.6778.85 on Windows 11 24H2
The model is gpt-4o-2024-08-06
claude-sonnet-4-20250514 is what we use
Qwen2.5-72B-Instruct-AWQ on two cards
The GPU has 24 GB, driver 550.127.05
The laptop is a ThinkPad T14s Gen 4 21F6
My monitor is the Dell U2723QE
The camera is a Sony ILCE-7M4 with a 24-70mm f/2.8
My bike frame has 56 cm and 11 speeds
WiFi 6E works on channel 37
Our network is called HomeNest5G
SSID is Nestwork-guest
MAC address is on the sticker
The printer is at 192.168.178.42
Port 8443 is for the admin page
docs at https://docs.example.org/v2/guide/getting-started#install
https://maps.example.org/@51.5034,-0.1276,17z
https://meet.example.org/abc-defg-hij
https://example.org/products/B08N5WRWNW?ref=sr_1_3
s3://acme-data/raw/2026/11/20/part-00017.parquet
/etc/nginx/sites-enabled/api.example.org.conf
Phone: 020 7946 0958
Call the plumber on +44 7700 900456
Email me at bea.okafor@example.org
We live at 221B Baker Street, London NW1 6XE
GPS 48.8584, 2.2945
ISBN 978-0-14-103435-8
DOI 10.1145/3292500.3330701
arXiv 2405.12345v2
RFC 9110 section 15.5.2
IMO number 9321483
The VAT rate is 19 percent
My tax return for 2024 is due on 31 January
The tax ID form is on the website
Passport renewal takes 3 weeks and costs 88.50 pounds
My passport expires on 2031-08-14
My visa runs until 30 September 2027
My driving licence is from 2009
ID cards are checked at the entrance
National day is on 1 August
Our insurance policy renews in 2026-12
The medical appointment is on 12.03.2026 at 10:15 in room 4
Blood pressure 128/82, pulse 64
My LDL is 3.1 mmol/l and HbA1c 5.4 %
I am 1.82 m and 78.4 kg
Blood type 0 negative
Population: 1,412,000,000
The lottery jackpot is 120,000,000
Pi is 3.14159265358979
The checksum is 0xDEADBEEF
My Steam library has 412 games
Chess rating 1684 on lichess
High score 1,234,560
Lap time 1:23.456
Mein Passwort habe ich leider vergessen
Das Passwort ist abgelaufen, was nun?
Ich wohne in der Goethestraße 12, 60313 Frankfurt
Der Schlüssel liegt beim Nachbarn
Die Kontonummer steht auf der Rechnung
Meine Kundennummer ist 4711-0815
Der Termin ist am 14.02.2026 um 16:30 Uhr
Die Miete beträgt 1.250,00 EUR warm
Meine Steuererklärung 2024 ist fertig
Der Zug ICE 572 fährt um 7:51 von Gleis 8
Ich nehme 75 Mikrogramm L-Thyroxin
Der Ausweis ist bis 2030 gültig
Die Postleitzahl ist 10115
Mi contraseña caduca cada 90 días
La contraseña es demasiado corta
Olvidé la contraseña del correo
La clave del éxito es la constancia
La clave es llegar temprano
Vivo en la calle Mayor 24, 3º B, Madrid
Mi vuelo IB3170 sale a las 18:40
Tengo la cita el 14/02/2026 a las 9:30
Mi código postal es 28013
El pasaporte caduca en 2029
Mi cuenta de Instagram tiene 2300 seguidores
J'ai oublié mon mot de passe
Le mot de passe est obligatoire
Mon mot de passe est trop long
Le code postal est 75011
La clé est sous le paillasson
Le loyer est de 1 150 euros
Mon train part à 17h42, voie 12
Mon rendez-vous est le 14 février à 10h15
Le numéro de dossier est 2026-1187
Je chausse du 42 et je mesure 1m78
我忘记密码了怎么办
密码每三个月要换一次
密码太短了,系统不让用
我的航班是CA1831,下周二早上8:30
我住在朝阳区建国路88号3单元502
我的快递单号是SF1234567890123
订单号 20261120123456789
会议室在3号楼1208
我的手机是13912345678
我的生日是1990年3月7日
工号 A00321
预算是12万,下个月15号到账
护照明年3月到期
身份证要带原件
银行卡在抽屉里
体检报告:血压128/82,血糖5.4
パスワードを忘れました
パスワードは8文字以上にしてください
私の誕生日は1990年3月7日です
郵便番号は150-0001です
のぞみ225号、14時12分発、7号車12番E席
会員番号は202611です
マイナンバーカードを更新したい
Я забыл пароль от почты
Пароль должен быть длиннее 12 символов
Мой поезд в 7:40, вагон 5, место 23
Ключ лежит под ковриком
Почтовый индекс 190000
Паспорт действует до 2031 года
Моя квартира 54 на пятом этаже
I changed the password for Windows11 yesterday
My password for github.com expired
Password reset for user bea_1990 was requested
The password column in users_2024 is nullable
We hash passwords with argon2id, see auth_v2
The login page is at /auth/v2/login
I logged in with Chrome and Firefox today
The garage door opens with a remote
The safe is in room 204
Gate B12 opens at 14:35
The alarm goes off at 0630 every day
The door number is 4471
The locker room code of conduct has 12 rules
Lock version 1.2.3 in the lockfile
Our wifi has 5 access points and channel 36 is free
The wifi code base is 12,000 lines
My WLAN runs on 5GHz with 867Mbit
My mot de passe manager is Dashlane 6
The token price rose to 0.4521 USD
I started at OpenAI in 2023 with 12 colleagues
URL https://example.org/a%20b%2Fc?q=summer%20sale&id=4471
The API uses HMAC-SHA256 for signing
The pass mark is 60 percent, I got 74
My ski pass number expires on 2027-04-30
I pass the Brandenburg2 exam tomorrow
Boarding pass for flight LX1178 seat 14C
The mountain pass is 2429 m high
My bus pass costs 49EUR per month
Pass rate was 87% in Q3-2025
I use 1Password on my iPhone15
Bypass road B4471 opens in May
Compass reading 245deg at mile12
The passenger list has 34 names
We pw-protect zips, use 7zip 23.01
Das Passwort steht in der Datei config_2.yaml
Der Code für den Gutschein ist WINTER24
Mein Code-Review dauert 2h30
El código de descuento es VERANO23
Le code promo est PRINTEMPS12
优惠码是 CHUN2026
我的密码管理器是Bitwarden2024版
My social media has 12345 followers
Social 2023 report: 219 pages
The NI number form is CA5403
Sort the code by 20 rules
I banked 200.00 on 12/03/2026
""".strip().splitlines()
