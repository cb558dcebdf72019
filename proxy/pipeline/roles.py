"""Words for those around a user who also have a name: a sister, a boss, the dog, the band.

A line for each role: english|zh|es|de|fr, alternatives separated by commas, as in proxy/lexicon. A person may
stand in several lines ("partner" and "husband" may be the same), and a question is then about all of them.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.terms import fold, terms

_ROWS = """\
sister,sis|妹妹,姐姐,我姐,我妹|hermana|schwester|soeur,sœur
brother|哥哥,弟弟,我哥,我弟|hermano|bruder|frere
mother,mum,mom,mama|妈妈,母亲,我妈|madre,mama|mutter,mama|mere,maman
father,dad,papa|爸爸,父亲,我爸|padre,papa|vater,papa|pere,papa
wife,spouse,married to|妻子,老婆,太太|mujer,esposa,casado con|frau,ehefrau,verheiratet mit|femme,epouse
husband,spouse,married to|丈夫,老公|marido,esposo,casada con|mann,ehemann,verheiratet mit|mari,epoux,mariee a
partner,spouse|对象,伴侣,爱人|pareja|partner,partnerin|compagnon,compagne,conjoint,conjointe
boyfriend,partner|男朋友,男友,对象|novio|freund|copain,petit ami
girlfriend,partner|女朋友,女友,对象|novia|freundin|copine,petite amie
fiance,fiancee,engaged to|未婚夫,未婚妻|prometido,prometida|verlobter,verlobte,verlobt mit|fiance,fiancee
son,boy|儿子|hijo|sohn|fils
daughter,girl|女儿|hija|tochter|fille
child,children,kid,son,daughter|孩子,小孩,儿子,女儿|nino,nina,hijo,hija|kind,kinder,sohn,tochter|enfant,fils,fille
baby,toddler|宝宝|bebe|baby,kleinkind|bebe
twin|双胞胎|gemelo,gemela|zwilling,zwillinge|jumeau,jumelle,jumeaux
parent|父母,爸妈|padres|eltern|parents
grandmother,grandma,granny,gran,nan|奶奶,外婆,姥姥|abuela|grossmutter,oma|grand-mere,mamie
grandfather,grandpa,grandad|爷爷,外公,姥爷|abuelo|grossvater,opa|grand-pere,papi
grandson,granddaughter,grandchild|孙子,孙女,外孙|nieto,nieta|enkel,enkelin|petit-fils,petite-fille
aunt,auntie|姑姑,姨妈,姑妈,舅妈|tia|tante|tante
uncle|叔叔,舅舅,伯伯|tio|onkel|oncle
cousin|表哥,表弟,表姐,表妹,堂哥,堂弟,堂姐,堂妹|primo,prima|cousin,cousine|cousin,cousine
nephew|侄子,外甥|sobrino|neffe|neveu
niece|侄女,外甥女|sobrina|nichte|niece
mother-in-law|婆婆,岳母,丈母娘|suegra|schwiegermutter|belle-mere
father-in-law|公公,岳父|suegro|schwiegervater|beau-pere
sister-in-law|嫂子,弟媳|cunada|schwagerin|belle-soeur,belle-sœur
brother-in-law|姐夫,妹夫|cunado|schwager|beau-frere
friend|朋友,闺蜜,死党,发小|amigo,amiga|freund,freundin|ami,amie
flatmate,roommate,housemate|室友,合租|companera de piso|mitbewohner,mitbewohnerin|colocataire
neighbour,neighbor,upstairs,downstairs,next door|邻居,楼上,楼下|vecino,vecina|nachbar,nachbarin|voisin,voisine
boss,manager,chief|老板,上司,上级,领导,经理,主管|jefe,jefa|chef,chefin,vorgesetzte|chef,patron,patronne
colleague,coworker,co-worker,teammate|同事|companero,companera,colega|kollege,kollegin|collegue
assistant,secretary|助理,秘书|ayudante,asistente|assistent,assistentin|assistant,assistante
supervisor,advisor,adviser|导师|director,directora,tutor,tutora|betreuer,betreuerin,doktorvater|directeur,directrice
teacher,tutor|老师,班主任|profesor,profesora,maestro,maestra|lehrer,lehrerin|professeur,prof,maitre,maitresse
doctor,gp,physician,paediatrician,pediatrician|医生,大夫|medico,medica,doctor,doctora,pediatra|arzt,arztin,hausarzt,hausarztin,kinderarzt,kinderarztin|medecin,docteur,pediatre
dentist,dental|牙医,看牙|dentista|zahnarzt,zahnarztin|dentiste
therapist,physio,physiotherapist|理疗师,咨询师|fisio,fisioterapeuta,terapeuta|therapeut,therapeutin|kine,psy,therapeute
vet,veterinarian|兽医|veterinario,veterinaria|tierarzt,tierarztin|veterinaire
hairdresser,barber|理发师|peluquero,peluquera|friseur,friseurin|coiffeur,coiffeuse
lawyer,solicitor,attorney|律师|abogado,abogada|anwalt,anwaltin|avocat,avocate
accountant|会计|gestor,gestora,contable|steuerberater,steuerberaterin|comptable
coach,trainer|教练|entrenador,entrenadora|trainer,trainerin|entraineur,coach
landlord,landlady|房东|casero,casera|vermieter,vermieterin|proprietaire,bailleur
tenant,lodger|租客,房客|inquilino,inquilina|mieter,mieterin,untermieter|locataire
client,customer|客户|cliente,clienta|kunde,kundin|client,cliente
nanny,babysitter,childminder|保姆,阿姨|ninera,canguro|tagesmutter,babysitter|nounou
cleaner|钟点工|limpiadora|putzfrau,reinigungskraft|femme de menage
dog,puppy,hound|狗,犬|perro,perra|hund,hundin|chien,chienne
cat,kitten|猫|gato,gata|katze,kater|chat,chatte
horse,pony,mare|马驹,马匹,一匹马,我的马|caballo,yegua|pferd,stute,pony|cheval,jument,poney
pet|宠物|mascota|haustier|animal de compagnie
car,van|汽车,我的车|coche,furgoneta,carro|auto,wagen|voiture
boat|船|barco,velero|boot,segelboot|bateau,voilier
band|乐队|banda,grupo|band|groupe
choir|合唱团|coro|chor|chorale
club,team|俱乐部,球队|club,equipo|verein,mannschaft|club,equipe
laptop,computer,server|电脑,笔记本,服务器|portatil,ordenador,servidor|laptop,rechner,server|ordinateur,serveur
company,employer,firm|公司,单位|empresa|firma,arbeitgeber|entreprise,employeur
school|学校|colegio,escuela|schule|ecole
"""
_LONGEST = 3  # words of a role
_ENDINGS = ("", "s", "es", "n", "nen")  # plurals and genitives
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Role:
    """A role. `words`: all its names, folded. `terms`: what to look up for them."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    terms: tuple[str, ...]

    def places(self, folded: str) -> list[tuple[int, int]]:
        """Return from where to where the (folded) text names the role."""
        # Looking for each word is quicker than the pattern, and in most texts there is none.
        if not any(word in folded for word in self.words):
            return []
        return [match.span() for match in self.pattern.finditer(folded)]


def roles_in(text: str) -> tuple[Role, ...]:
    """Return the roles that the text speaks of, in any of the five languages."""
    table = _table()
    folded = fold(text)
    words = _WORD.findall(folded)
    phrases = (" ".join(words[i : i + n]) for n in range(1, _LONGEST + 1) for i in range(len(words) - n + 1))
    found = {at for phrase in phrases for at in table.lines.get(phrase, ())}
    if not folded.isascii():
        found.update(at for word in table.unspaced.findall(folded) for at in table.lines[word])
    return tuple(table.roles[at] for at in sorted(found))


def is_role(word: str) -> bool:
    """True for a (folded) word that stands for a role, and so is no name."""
    return word in _table().lines


@dataclass(frozen=True, slots=True)
class _Table:
    roles: tuple[Role, ...]
    lines: dict[str, list[int]]  # the roles that a word stands for, by their places
    unspaced: re.Pattern[str]  # any Chinese word


@lru_cache(maxsize=1)
def _table() -> _Table:
    lines: dict[str, list[int]] = {}
    roles = []
    for at, line in enumerate(_ROWS.splitlines()):
        english, chinese, *others = line.split("|")
        spaced = [fold(w) for cell in (english, *others) for w in cell.split(",") if w]
        unspaced = [w for w in chinese.split(",") if w]
        for form in (*(word + ending for word in spaced for ending in _ENDINGS), *unspaced):
            lines.setdefault(form, []).append(at)
        roles.append(_role(spaced, unspaced))
    every = sorted((w for w in lines if w > "\u2e80"), key=len, reverse=True)
    return _Table(tuple(roles), lines, re.compile("|".join(every)))


def _role(spaced: list[str], unspaced: list[str]) -> Role:
    longest = sorted(spaced, key=len, reverse=True)
    whole = rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?:{'|'.join(_ENDINGS[1:])})?(?!\w)"
    pattern = re.compile("|".join([whole, *sorted(unspaced, key=len, reverse=True)]))
    return Role((*spaced, *unspaced), pattern, tuple(dict.fromkeys(terms(" ".join(spaced + unspaced)))))
