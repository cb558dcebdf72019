"""The words that `world` knows, as tables per language. Data only; folded, as in `phrases`.

What stands here can belong to nobody in particular. Words that name a pet or a person as often as a kind
("pepper", "rose", "olive") stay out, and so do things that people own ("car", "house").
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Matters of science, history and language: asked about, they are the world's.
MATTERS = _words(
    """
    photosynthesis mitochondria mitochondrion ribosome chromosome chromosomes dna rna enzyme enzymes
    molecule molecules atom atoms electron electrons proton neutron isotope isotopes osmosis evolution
    bacterium antibodies entropy enthalpy thermodynamics gravity gravitation relativity quantum friction
    inertia magnetism electromagnetism momentum velocity wavelength planet planets galaxy galaxies comet
    comets asteroid asteroids supernova nebula constellation constellations eclipse equinox solstice
    tectonics tectonic earthquake earthquakes volcano volcanoes tsunami tsunamis hurricane hurricanes
    tornado tornadoes glacier glaciers monsoon stratosphere ozone lightning thunder rainbow rainbows
    hydrogen helium lithium nitrogen oxygen sodium potassium uranium plutonium radium neon argon ethanol
    methane ammonia polymer polymers catalyst alkali photon photons hypotenuse pythagoras pythagorean
    theorem polygon hexagon pentagon octagon parallelogram rhombus logarithm factorial fibonacci pi
    trigonometry dynasty empire emperor pharaoh pharaohs renaissance reformation crusades crusade
    colonialism feudalism medieval neolithic paleolithic dinosaurs dinosaur fossil fossils mammoth
    neanderthal neanderthals sumerians revolution treaty armistice cold-war holocaust apartheid
    capitalism socialism fascism gdp recession keynesian monopoly oligopoly stoicism existentialism
    utilitarianism taoism confucianism shinto continent continents hemisphere equator peninsula
    archipelago strait time-zones nobel oscars olympics olympic mundial offside sonnet impressionism
    cubism baroque pancreas femur vertebrae neurons neuron aorta cerebellum cornea retina polymorphism
    turing pronoun adjective adverb noun metaphor simile onomatopoeia alliteration palindrome etymology
    synonym synonyms antonym antonyms idiom gravitacion fotosintesis entropia atomo atomos molecula
    planeta planetas galaxia satelite satelites terremoto terremotos volcan volcanes huracan huracanes
    hidrogeno helio oxigeno nitrogeno plomo sodio potasio dinosaurio dinosaurios dinastia imperio pib
    continente continentes hemisferio olimpiadas bacterias penicilina termodinamica lunas teorema
    budismo mitocondria evolucion photosynthese entropie atome molekul molekule planeten galaxie
    galaxien satelliten erdbeben vulkan vulkane wasserstoff sauerstoff stickstoff blei natrium kalium
    dinosaurier dynastie kaiserreich bip kontinent kontinente aquator fussball-wm weltmeisterschaft
    volleyballmannschaft bakterium bakterien penizillin thermodynamik mitochondrien schwerkraft
    warmepumpe lichtgeschwindigkeit planete planetes seisme seismes volcans hydrogene oxygene azote
    plomb dinosaures bacterie bacteries penicilline thermodynamique lunes theoreme bouddhisme
    mitochondrie gravite
    """
)

# Kinds of animals, plants, food, illnesses, games, techniques:
# the world's where they are the subject, in general.
KINDS = _words(
    """
    os huesos knochen cat cats dog dogs hamster hamsters rabbit rabbits horse horses cow cows pig pigs
    sheep goat goats chicken chickens duck ducks goose geese bird birds parrot parrots penguin penguins
    owl owls eagle eagles falcon sparrow swan pigeon pigeons fish shark sharks whale whales dolphin
    dolphins octopus octopuses squid crab crabs lobster shrimp snail snails spider spiders scorpion bee
    bees wasp wasps ant ants butterfly butterflies moth mosquito mosquitoes flies beetle worm worms
    snake snakes lizard lizards crocodile crocodiles turtle turtles tortoise frog frogs toad toads
    elephant elephants giraffe giraffes lion lions tiger tigers leopard cheetah cheetahs bear bears wolf
    wolves fox foxes deer moose kangaroo kangaroos koala koalas panda pandas monkey monkeys gorilla
    gorillas chimpanzee chimpanzees rat rats mouse mice squirrel squirrels hedgehog hedgehogs bat bats
    camel camels llama zebra zebras rhino rhinos hippo hippos seal seals walrus otter otters ferret
    ferrets gecko goldfish salmon tuna mammal mammals reptile reptiles insect insects amphibian
    amphibians human humans body blood heart brain skin lungs bones bone muscle muscles tooth teeth tree
    trees oak bamboo cactus mushroom mushrooms fern algae moss seed seeds leaves flower flowers plant
    plants tomato tomatoes potato potatoes banana bananas apple apples grape grapes avocado avocados
    lemon lemons strawberry strawberries peanut peanuts rice wheat corn soybeans garlic onion onions
    cinnamon coffee tea milk chocolate sugar salt eggs egg bread cheese wine beer vinegar yogurt tofu
    water ice steam air sound heat sand stone glass plastic paper steel iron copper gold silver aluminum
    aluminium tin zinc diamond diamonds marble concrete rubber leather silk cotton wool petrol gasoline
    diesel snow rain clouds cloud rivers mountains stars star oceans sea sky sun moon earth batteries
    magnets magnet lasers laser engine engines transistor transistors airplanes rockets microwave
    microwaves refrigerators gato gatos perro perros conejo conejos caballo caballos vaca vacas pajaro
    pajaros pinguino pinguinos abeja abejas arana aranas serpiente serpientes tiburon tiburones ballena
    ballenas delfin delfines elefante elefantes leon leones tigre tigres oso osos lobo lobos tortuga
    tortugas rana ranas mariposa mariposas hormiga hormigas tomate platano platanos manzana uva agua
    hielo luz sonido sangre corazon hierro cobre oro cielo tierra cuerpo aves katze katzen hund hunde
    kaninchen pferd pferde kuh kuhe vogel pinguin pinguine biene bienen spinne spinnen schlange
    schlangen hai haie wal wale delfine elefant elefanten lowe lowen baren wolfe schildkrote
    schildkroten frosche schmetterlinge ameisen kartoffel banane bananen apfel trauben wasser eis licht
    schall blut herz eisen kupfer himmel mond erde sonne mensch menschen tiere chat chats chien chiens
    lapin lapins cheval chevaux vache vaches oiseau oiseaux manchot manchots pingouin pingouins abeille
    abeilles araignee araignees serpent serpents requin requins baleine baleines dauphin dauphins ours
    loup loups tortue tortues grenouille grenouilles papillons fourmis pomme raisin eau glace lumiere
    sang coeur cuivre ciel lune terre soleil corps bacteria orbit satellite satellites tides tide
    element elements gases alloy derivative integral algebra geometry calculus constitution communism
    inflation philosophy buddhism hinduism islam christianity judaism soccer football volleyball
    basketball baseball cricket rugby badminton tennis chess hockey cello violin viola oboe haiku
    symphony opera concerto virus viruses vaccine vaccines antibiotic antibiotics scurvy malaria
    tuberculosis cholera influenza diabetes kidney kidneys liver tcp udp http https dns ipv4 ipv6 tls
    algorithm algorithms recursion compiler compilers semaphore mutex hashing blockchain cryptography
    inflacion voleibol futbol baloncesto vacuna vacunas algoritmo filosofia celula celulas viren impfung
    impfungen algorithmus monde zelle zellen volley handball vaccin vaccins algorithme philosophie
    cellule
    """
)

# Names that everybody knows: no name of the user's is taken for one of them without being meant.
KNOWN_NAMES = _words(
    """
    africa african america american americas antarctica antarctic arctic asia asian europe european
    eurasia oceania atlantic pacific mediterranean baltic caribbean himalayas alps andes sahara nile
    danube rhine volga mississippi everest kilimanjaro fuji vesuvius etna titicaca baikal afghanistan
    albania algeria argentina argentine australia australian austria austrian bangladesh belgium belgian
    bolivia brazil brazilian britain british bulgaria cambodia cameroon canada canadian chile china
    chinese colombia congo croatia cuba czech denmark danish ecuador egypt egyptian england english
    estonia ethiopia finland finnish france french germany german ghana greece greek greenland hungary
    hungarian iceland india indian indonesia iran iraq ireland irish israel italy italian jamaica japan
    japanese kazakhstan kenya korea korean kuwait laos latvia lebanon libya lithuania luxembourg
    malaysia mali malta mexico mexican mongolia mongolian morocco mozambique myanmar nepal netherlands
    dutch nigeria norway norwegian pakistan panama paraguay peru philippines poland polish portugal
    portuguese qatar romania romanian russia russian rwanda saudi arabia scotland scottish senegal
    serbia singapore slovakia slovenia somalia spain spanish sudan sweden swedish switzerland swiss
    syria taiwan tanzania thailand thai tunisia turkish uganda ukraine uruguay usa us uk eu un nato
    venezuela vietnam vietnamese wales yemen zambia zimbabwe alaska arizona california colorado florida
    hawaii illinois massachusetts michigan minnesota nevada oregon pennsylvania texas utah wisconsin
    euro euros dollar celsius fahrenheit kelvin einstein shakespeare mozart beethoven bach galileo
    copernicus napoleon caesar cleopatra gandhi mandela churchill stalin lenin mao hitler columbus
    magellan aristotle plato socrates confucius picasso rembrandt michelangelo vinci monet gogh dickens
    tolstoy dostoevsky cervantes goethe kafka orwell tolkien hemingway austen titanic nobel oscar
    olympic olympics christmas easter ramadan earth uranus moon sun inca incas maya mayan aztec aztecs
    roman romans rome viking vikings ottoman byzantine persian mongol mongols soviet victorian tcp udp
    http https dns html css sql json xml api gdp dna rna nasa ph ceo cpu gpu ram ssd usb python java
    javascript typescript rust golang linux unix windows macos git github excel latex francia alemania
    italia brasil suiza japon inglaterra espana europa egipto grecia rusia frankreich deutschland
    italien mongolei brasilien schweiz spanien asien afrika amerika osterreich agypten griechenland
    russland allemagne italie mongolie bresil suisse angleterre espagne asie afrique amerique chine
    egypte grece russie
    """
)

# With one of these, a question is about something going on in somebody's life, or wants advice.
LIVED = _words(
    """
    trip flight flights hotel hotels booking booked reservation appointment meeting meetings call
    interview wedding birthday anniversary party dinner lunch breakfast visit visiting commute team
    office client clients customer customers boss colleague colleagues coworker project sprint release
    deadline budget invoice rent lease landlord contract doctor dentist vet therapist nurse medication
    prescription school teacher class exam homework neighbor neighbour friend friends wife husband
    partner kid kids child son daughter mom mum dad mother father brother sister grandma grandpa aunt
    uncle cousin family parents baby roommate girlfriend boyfriend car garage kitchen bedroom apartment
    flat house garden password gate keys key wifi router server staging deploy deployment repo
    repository pipeline ticket recommend recommended recommendation suggest suggestion should best good
    better nice favorite favourite prefer preferred cheap gift present plan planned planning plans
    decide decided chose chosen picked agreed bought ordered paid saved tonight yesterday tomorrow today
    monday tuesday wednesday thursday friday saturday sunday weekend next last week month ago recently
    viaje vuelo hotel reserva cita reunion boda cumpleanos cena equipo oficina cliente jefe presupuesto
    alquiler medico dentista veterinario escuela profesor amigo mujer marido hijo hija madre padre
    hermano hermana coche casa piso cocina debo regalo mejor recomienda ayer manana hoy proximo semana
    reise flug buchung termin besprechung hochzeit geburtstag essen abendessen buro kunde chef miete
    vertrag arzt zahnarzt tierarzt schule lehrer freund freundin frau mann sohn tochter mutter vater
    bruder schwester auto haus wohnung kuche soll sollte geschenk beste besten gestern heute morgen
    nachste woche voyage vol reservation rendez-vous reunion mariage anniversaire diner equipe bureau
    client patron loyer bail medecin dentiste veterinaire ecole professeur ami femme mari fils fille
    mere pere frere soeur voiture maison appartement cuisine dois cadeau meilleur meilleure hier demain
    aujourd'hui prochain semaine
    """
)

# Words that come before the first word of matter in a question.
OPENERS = _words(
    """
    what what's whats which who who's whose when where why how is are was were do does did can could
    will would has have a an the of to in on at for many much long far tall high big fast heavy old deep
    hot cold often large average typical normal adult healthy wild domestic please explain describe
    define tell me about give list name some three five there really kind type types que cual cuales
    quien cuando donde como cuanto cuanta cuantos cuantas por es son el la los las un una unos unas de
    del se puede pueden hay tiene tienen vive viven explica a en was wer wo wann wie warum welche
    welcher welches weshalb ist sind hat haben der die das den dem ein eine einen einer eines kann
    konnen darf durfen gibt es alt viel viele lange schnell schwer gross hoch wird werden leben qui quoi
    quand ou comment pourquoi combien quel quelle quels quelles est est-ce qu'est-ce que c'est sont le
    la les l' un une des du de d' peut peuvent il y a vit vivent explique
    """
)

UNITS = _words(
    """
    gram grams kilogram kilograms kg kilo kilos ounce ounces pound pounds ton tons stone liter liters
    litre litres milliliter milliliters millilitre millilitres ml cup cups pint pints gallon gallons
    teaspoon teaspoons tablespoon tablespoons meter meters metre metres centimeter centimeters
    centimetre centimetres cm millimeter millimeters mm kilometer kilometers kilometre kilometres km
    inch inches foot feet yard yards mile miles acre acres hectare hectares second seconds minute
    minutes hour hours day days week weeks year years byte bytes kilobyte kilobytes megabyte megabytes
    gigabyte gigabytes bit bits fahrenheit celsius kelvin joule joules calorie calories watt watts gramo
    gramos libra libras onza onzas litro litros metro metros milla millas kilometro kilometros pulgada
    pulgadas gramm pfund unze unzen liter meter meile meilen kilometer zoll gramme grammes livre livres
    once onces litre mille milles kilometres pouce pouces
    """
)

# What is asked of a country or a city, and of nobody's life.
OF_PLACES = _words(
    """
    language languages legal illegal law laws statute country countries river rivers mountain mountains
    lake desert island capital population currency president king queen emperor minister introduced
    founded independence flag anthem border borders area states provinces religion zones time-zones war
    battle speak spoken wall tower idioma idiomas habla moneda rio montana ciudad pais paises capital
    poblacion presidente muro sprache sprachen spricht wahrung fluss berg land lander hauptstadt
    bevolkerung einwohner mauer langue langues parle parle-t-on monnaie utilise-t-on fleuve montagne
    ville pays capitale population mur
    """
)
