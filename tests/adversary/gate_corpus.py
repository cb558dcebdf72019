"""Texts that attack the write gate. It was not built with them.

SECRETS and PERSONAL: (text, what must not remain of it). INNOCENT: sentences that lose nothing. The broken
bar keeps scanners of this repository from reporting invented keys; it is removed.
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
    ("My OpenAI key changed, it's sk-¦svcacct-8Hn2kQpL0vZx3RtYw6Bm, please use the new one", "8Hn2kQpL0vZx"),
    ("use AK¦IAQ3EXAMPLE7TYZ2M4 with region eu-west-1", "Q3EXAMPLE7TYZ2M4"),
    ("gh¦o_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912"),
    ("Stripe restricted: rk_¦test_51Mz8XkLp2QvRt7YwNb3Kd9", "51Mz8XkLp2Qv"),
    ("mapbox pk.¦eyJ1IjoibXl1c2VyIiwiYSI6ImNrOXgyIn0.Zq8Wn3Lt6Rv1Yx5K", "eyJ1IjoibXl1c2VyIiwi"),
    ("Heroku HRKU-¦01234567-89ab-cdef-0123-456789abcdef", "89ab-cdef-0123"),
    ("Notion integration: secret_¦Xk2Lp9Qv4Rt7Yw1Nb6Kd3Zm8Hf5Jc0Sg", "Xk2Lp9Qv4Rt7Yw1N"),
    ("the Azure SAS is ?sv=2023-11-03&ss=b&sig=Yk3%2BLm9Qv%2F4Rt7Yw1Nb6Kd%3D", "Yk3%2BLm9Qv%2F4Rt"),
    ("Cloudflare token: v1.0-5c8e2a7f1b3d-9064e2a7f1b3d906", "5c8e2a7f1b3d-9064"),
    ("perplexity: pplx-¦3b9d2f7a1c5e8064b9d2f7a1c5e80643", "3b9d2f7a1c5e8064"),
    (
        'here\'s the service account: {"type": "service_account", "private_key_id": '
        '"5c8e2a7f1b3d9064e2a7f1b3d9064c8e2a7f1b3d"}',
        "5c8e2a7f1b3d9064",
    ),
    ("Log into the NAS as admin with password Mallard#204", "Mallard#204"),
    ("Password's Curlew!9 if you need it", "Curlew!9"),
    ("the password I use there: Dipper&Ouzel1", "Dipper&Ouzel1"),
    ("my bank password used to be Sorrel31 but now it's Yarrow#88", "Sorrel31"),
    ("wifi is Nestwork and the key is bluebottle-93-jar", "bluebottle-93-jar"),
    ("remember my pw for steam: tr0ub4dor&3", "tr0ub4dor&3"),
    ("password hint aside, the actual one is Garganey_6", "Garganey_6"),
    ("Username bea, password: Wigeon 2024!", "Wigeon"),
    ("The admin panel (admin / Gadwall-19) is on port 8443", "Gadwall-19"),
    ("Merk dir bitte: mein WLAN-Schlüssel ist Brachvogel-2291", "Brachvogel-2291"),
    ("mein Passwort ist immer noch Zaunkönig7", "Zaunkönig7"),
    ("PIN für die EC-Karte: 7730", "7730"),
    ("La contraseña nueva: Golondrina_8", "Golondrina_8"),
    ("el PIN de la tarjeta es 9047", "9047"),
    ("le code de la porte d'entrée est le 47B92", "47B92"),
    ("mon code PIN est 5518", "5518"),
    ("家里wifi密码是maque886699", "maque886699"),
    ("服务器root密码改成了Xique_77", "Xique_77"),
    ("支付宝支付密码:461930", "461930"),
    ("WiFiのパスワードは suzume-2231 です。覚えておいて。", "suzume-2231"),
    ("パスワード:Tsubame_55", "Tsubame_55"),
    ("Запомни: пароль к серверу - Chizh!77", "Chizh!77"),
    ("A senha do wifi é beija-flor-41", "beija-flor-41"),
    ("my debit card PIN is 3-8-1-6", "3-8-1-6"),
    ("security code on the back is 482", "482"),
    ("the lockbox by the door opens with 5921", "5921"),
    ("voicemail PIN 60412", "60412"),
    ("two-factor backup code 4829-1057", "4829-1057"),
    ("our garage keypad is 2 4 6 8 0", "2 4 6 8 0"),
    ('```yaml\ndatabase:\n  user: app\n  password: "lapwing/Plover 9"\n```', "lapwing/Plover 9"),
    ("```python\nclient = Client(api_key='tk9Zr4Qm2Wv8Lp1X')\n```", "tk9Zr4Qm2Wv8Lp1X"),
    ("const TOKEN = `9d8f7a6b5c4e3f2a1b0c`;", "9d8f7a6b5c4e3f2a"),
    ("ENV DB_PASS Sanderling77", "Sanderling77"),
    ("redis-cli -h cache -a Phalarope-21 ping", "Phalarope-21"),
    ('{\\"password\\": \\"Godwit9mud\\"}', "Godwit9mud"),
    ("https://bea:D0tterel%21@files.example/x", "D0tterel%21"),
    (
        "-----BEGIN OPENSSH PRIVATE¦ KEY-----\nb3BlbnNzaC1rZXktdjEAfake\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1rZXkt",
    ),
    ("kubectl create secret generic x --from-literal=password=Siskin88!", "Siskin88!"),
    ("spring.mail.password : Brambling.9", "Brambling.9"),
    ('password="""linnet_gorse"""', "linnet_gorse"),
    ("%env(APP_SECRET)% was 5c8e2a7f1b3d9064 before", "5c8e2a7f1b3d9064"),
    ("WEBHOOK_SIGNING_SECRET=whimbrel8moor2tide", "whimbrel8moor2tide"),
    ("the session cookie is connect.sid=s%3AZq8Wn3Lt6Rv1.Yx5Kb9Md2", "Zq8Wn3Lt6Rv1"),
    (
        "助记词 abandon ability able about above absent absorb abstract absurd abuse access accident",
        "absent absorb",
    ),
    ("WIF key 5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ", "HueCGU8rMjxEXx"),
    (f"base64 {_b64(_LONG_KEY)}", _b64(_LONG_KEY)[8:24]),
    (f"hex: {_hex(_LONG_KEY)}", _hex(_LONG_KEY)[6:30]),
    (f"url-encoded: {quote('my password is Fieldfare!4')}", "Fieldfare%214"),
    (
        "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44\uff1a\uff34\uff45\uff41\uff4c\uff0d\uff16\uff11",
        "\uff34\uff45\uff41\uff4c",
    ),
    ("my pass word is: S-h-r-i-k-e-7", "S-h-r-i-k-e-7"),
    ("the key is sk-¦proj-Zq8W\nn3Lt6Rv1Yx5Kb9\nMd2Hf7Jc4", "Md2Hf7Jc4"),
    ("my pаsswоrd is сhough_cliff3", "hough_cliff3"),
    ("PASSWORD ➜ Magpie.Two4", "Magpie.Two4"),
    ("password - Treecreeper5", "Treecreeper5"),
    ("The password?\n\nGoldcrest-3!", "Goldcrest-3!"),
    ("My password is the word 'kingfisher' followed by 42", "kingfisher"),
    ("the password to my laptop? Osprey_nest4", "Osprey_nest4"),
    ("passwords: bank=Merlin!21, mail=Hobby&33", "Hobby&33"),
    ("Spotify: bea@example.org / Kite$soar9", "Kite$soar9"),
    ("Zugangsdaten fürs VPN: bea.o / Sperber!Wald3", "Sperber!Wald3"),
    ("la clave de la alarma es 8812", "8812"),
    ("le digicode est 58A31", "58A31"),
    ("小区门禁密码是 #4471", "4471"),
    ("пароль от вайфая: Sokol_15", "Sokol_15"),
    ("use pass=Goshawk%233 in the query", "Goshawk%233"),
    ("my PIN's 6619", "6619"),
    ("the code to my bike lock is 7-1-3", "7-1-3"),
    ("smtp_pass = 'harrier marsh 3'", "harrier marsh"),
    ("name\tpin\nbea\t5518\n", "5518"),
    ("client_secret%3DZq8Wn3Lt6Rv1Yx5K", "Zq8Wn3Lt6Rv1"),
    ("70617373776f72643a2048656e4861727269657239", "48656e4861727269"),
    ("My mother's maiden name answer is Okonkwo and my security answer is bluebird", "bluebird"),
)

PERSONAL = _rows(
    ("pay with 5200 8282 8282 8210 please, it's a Mastercard debit", "8282 8282"),
    ("my Amex 371449635398431", "371449635398431"),
    ("信用卡 5555 5555 5555 4444,有效期 12/28", "5555 5555"),
    ("tarjeta número 4000-0025-0000-3155", "0025-0000"),
    ("カード番号は3566 0020 2036 0505です", "0020 2036"),
    ("4\u200b2424242\u200b42424242", "42424242"),
    ("card 4242 4242 4242 4242 (12/30, 123)", "4242 4242"),
    ("mi IBAN: ES91 2100 0418 4502 0005 1332", "0418 4502"),
    ("Überweise auf AT61 1904 3002 3457 3201", "3002 3457"),
    ("acct no: 8837-2210-55", "8837-2210"),
    ("银行账号 6217 0002 1000 1234 567", "0002 1000"),
    ("my social is 219 09 9999", "219 09 9999"),
    ("last 9 of ssn: 2 1 9 0 9 9 9 9 9", "2 1 9 0 9"),
    ("身份证 110101199003078515", "19900307"),
    ("DNI: 00000000T", "00000000T"),
    ("Steueridentifikationsnummer 86095742719", "86095742719"),
    ("mi pasaporte es PAA123456", "PAA123456"),
    ("My passport's number is 925665416", "925665416"),
    ("паспорт 4510 123456", "4510 123456"),
    ("パスポート番号 TK1234567", "TK1234567"),
    ("Medicare 2123 45670 1", "2123 45670"),
    ("my Sozialversicherungsnummer is 12 345678 M 009", "345678 M"),
    ("my dad's SSN is 219-09-9999", "219-09-9999"),
    ("my tax number is 912-81-4321", "912-81-4321"),
    ("carte vitale 2 69 05 49 588 157 80", "49 588 157"),
    ("身份证号码是 310105198806153022", "19880615"),
)

INNOCENT = """
Our flat is number 14 on the 3rd floor, the bell says Okafor
The recipe wants 375 g flour, 7 g yeast and 2 tsp salt
My daughter's school starts at 08:25 and ends at 15:10
My boss is Dr. Amara Osei and our team has 9 people
The car is a 2017 Skoda Octavia with 142,300 km
The meter reading on 3 March was 48213.7 kWh
My shoe size is 43 and my jacket is 50
My library card expires in June 2027
Seat 34K, boarding group 4, gate B38
The dentist is on 14/02 at 16:30, room 2.07
The password manager we use at work is Bitwarden
I keep forgetting passwords, can you suggest a method?
We rotate passwords every 90 days
I'd like to learn how passkeys work on Android 15
The token budget for the prompt is 8192
An access token lives for 15 minutes, a refresh token for 30 days
The secret santa draw is on 12 December
The answer key is on page 212
Key West was hot, 34 degrees
Please put the key under the mat
Our API key rotation runs every 30 days
The primary key is a bigint, the foreign key is nullable
The code review takes 2 hours on Fridays
My area code is 0161
Error code 0x80070005 when installing
QR code on page 3
The dress code for 14 June is black tie
PIN 7 of the chip is ground
The pin is bent on connector J12
My account manager is Lucas
I moved my account to the credit union in 2023
PO number 4500123456
Tracking number 1Z5R89390357567127
Case number 24-cv-01873
Jira PROJ-1187 blocks the release
Commit 9f8e2d1 fixed the race
The image digest is sha256:9b2c1e0d4f5a68b7c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6
The request id was req_8f2Kd9QzLm3
vpc-0a1b2c3d4e5f67890 in eu-central-1
subnet 10.20.0.0/16, gateway 10.20.0.1
container f3a9c1d2b4e5 restarted
Node 22.11.0, npm 10.9.0, TypeScript 5.6.3
Chrome 131.0.6778.85 on Windows 11 24H2
claude-sonnet-4-20250514 is what we use
The GPU has 24 GB, driver 550.127.05
My monitor is the Dell U2723QE
My bike frame has 56 cm and 11 speeds
Our network is called HomeNest5G
MAC address is on the sticker
Port 8443 is for the admin page
https://maps.example.org/@51.5034,-0.1276,17z
https://example.org/products/B08N5WRWNW?ref=sr_1_3
/etc/nginx/sites-enabled/api.example.org.conf
Call the plumber on +44 7700 900456
We live at 221B Baker Street, London NW1 6XE
ISBN 978-0-14-103435-8
arXiv 2405.12345v2
IMO number 9321483
My tax return for 2024 is due on 31 January
Passport renewal takes 3 weeks and costs 88.50 pounds
My visa runs until 30 September 2027
ID cards are checked at the entrance
Our insurance policy renews in 2026-12
Blood pressure 128/82, pulse 64
I am 1.82 m and 78.4 kg
Population: 1,412,000,000
Pi is 3.14159265358979
My Steam library has 412 games
High score 1,234,560
Mein Passwort habe ich leider vergessen
Ich wohne in der Goethestraße 12, 60313 Frankfurt
Die Kontonummer steht auf der Rechnung
Der Termin ist am 14.02.2026 um 16:30 Uhr
Meine Steuererklärung 2024 ist fertig
Ich nehme 75 Mikrogramm L-Thyroxin
Die Postleitzahl ist 10115
La contraseña es demasiado corta
La clave del éxito es la constancia
Vivo en la calle Mayor 24, 3º B, Madrid
Tengo la cita el 14/02/2026 a las 9:30
El pasaporte caduca en 2029
J'ai oublié mon mot de passe
Mon mot de passe est trop long
La clé est sous le paillasson
Mon train part à 17h42, voie 12
Le numéro de dossier est 2026-1187
我忘记密码了怎么办
密码太短了,系统不让用
我住在朝阳区建国路88号3单元502
订单号 20261120123456789
我的手机是13912345678
工号 A00321
护照明年3月到期
银行卡在抽屉里
パスワードを忘れました
私の誕生日は1990年3月7日です
のぞみ225号、14時12分発、7号車12番E席
マイナンバーカードを更新したい
Пароль должен быть длиннее 12 символов
Ключ лежит под ковриком
Паспорт действует до 2031 года
I changed the password for Windows11 yesterday
Password reset for user bea_1990 was requested
We hash passwords with argon2id, see auth_v2
I logged in with Chrome and Firefox today
The safe is in room 204
The alarm goes off at 0630 every day
The locker room code of conduct has 12 rules
Our wifi has 5 access points and channel 36 is free
My WLAN runs on 5GHz with 867Mbit
The token price rose to 0.4521 USD
URL https://example.org/a%20b%2Fc?q=summer%20sale&id=4471
The pass mark is 60 percent, I got 74
I pass the Brandenburg2 exam tomorrow
The mountain pass is 2429 m high
Pass rate was 87% in Q3-2025
Bypass road B4471 opens in May
The passenger list has 34 names
Das Passwort steht in der Datei config_2.yaml
Mein Code-Review dauert 2h30
Le code promo est PRINTEMPS12
我的密码管理器是Bitwarden2024版
Social 2023 report: 219 pages
Sort the code by 20 rules
""".strip().splitlines()
