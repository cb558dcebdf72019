"""Everyday things that are called by few names: `asked=told`, in English, a line each.

Asked for are the words before the sign, in the singular or the plural; told is a memory that has a word
beginning with one of these, or with one of those behind the sign: "=" is "or is told by". A thing
belongs here only if whoever tells of it cannot but use one of the words; what is told by a brand, a name or a
number alone has to list them or stay out. Words of several meanings stay out too: glosses name them all, so
that a Chinese "动手" (to begin) would ask for a wrist.
"""

ROWS = """\
parking permit|parking space|parking fine|parking ticket=park|garage|permit|fine
motorbike|motorcycle|scooter|moped=motor|scooter|moped|vespa|yamaha|honda|ducati|bike
caravan|camper van=caravan|camper|van\\b
toll|petrol station|fuel card=toll|petrol|fuel|gas
cruise=cruise|ship|ferr|boat
suitcase|luggage=suitcase|luggage|bag
travel agency|tour guide|tour operator=travel agen|tour|guide|agency
campsite|campground=camp|tent
souvenir=souvenir|brought back
road trip=road trip|driv|trip
layover|stopover|terminal=layover|stopover|terminal|flight|airport
frequent flyer|air miles=frequent|miles|airline|flight
honeymoon=honeymoon|wedding|marri
residence permit|work permit|green card=permit|green card|resid|visa
citizenship|nationality=citizen|national|passport|born in|from
christening|baptism|godmother|godfather|godparent=christen|bapti|godm|godf|godp|godchild
bridesmaid|best man=bridesmaid|best man|wedding
stepmother|stepfather|stepson|stepdaughter=step
great-aunt|great-uncle=great-|aunt|uncle
fiance=fianc|engaged|partner|marri
ex-wife|ex-husband|my ex=ex-|ex\\b|divorc|separat|former
divorce=divorc|separat|ex-
birthplace|place of birth|where was i born|where were you born=child|grew up|hometown|born|birth|\
native|from|raised|origin
graduation|prom=graduat|prom\\b|degree|ceremony
thesis|dissertation=thesis|dissertation|phd|master
exam result|final grade|school report=exam|grade|mark|score|result|report|pass
scholarship=scholar|grant|stipend
classroom|class teacher|form teacher|head teacher|headmaster=class|teach|head
piano|violin|guitar|trumpet|saxophone|flute|clarinet=piano|violin|guitar|trumpet|sax|flute|clarinet|\
instrument|\
cornet|cello|viola|play
driving lesson|driving test|driving instructor|driving school=driv|licen[cs]e|学车|驾
language course|language school|language class=language|course|lesson|class
promotion=promot|raise|deputy|lead|senior|head of
notice period=notice|contract|quit|resign
job interview|my interview|interview=interview|job|applic|offer|hir
job title=title|engineer|manager|works? as|nurse|designer|director|lead|head|is an?\\b
payslip|pay rise|pay raise|year-end=pay|raise|salar|bonus|earn
overtime=overtime|hours
sick leave|sick day=sick|ill|leave
parental leave|maternity leave|paternity leave=parental|matern|patern|leave|baby
business card|employee number|staff number|badge number|employee id=card|badge|staff|employee
locker=locker
company car=company car|car\\b|fleet
retirement=retir|pension
sales target|sales quota=sales|target|quota|revenue
dental|root canal|wisdom tooth|braces=dent|tooth|teeth|filling|canal|braces|crown|orthodon
optician|eye doctor|eye test|ophthalmologist|optometrist=optic|eye|glasses|lens|ophthal|optom|vision|sight
dermatologist|cardiologist|gynaecologist|gynecologist|urologist|neurologist|oncologist|psychiatrist|\
surgeon|\
orthopaedist|paediatrician|pediatrician|midwife|child doctor=dermat|cardio|gyn|uro|neuro|onco|psych|\
surg|ortho|paed|\
pediat|midwi|doctor|dr\\b|clinic|hospital|specialist|consultant
physiotherapist|physiotherapy|chiropractor|osteopath=physio|chiro|osteo|rehab|therap
pharmacy|chemist=pharmac|chemist|drugstore
hearing aid=hear|ear
iron level|vitamin d|blood test|blood count|test result|thyroid|platelet=iron|vitamin|blood|test|\
thyroid|lab|level
bmi|body fat=bmi|weigh|fat\\b
x-ray|mri|ultrasound|ct scan|scan result=x-ray|mri|ultrasound|scan|imaging
covid|flu=covid|flu\\b|corona|virus
contraceptive|birth control=contracep|birth control|pill
due date=due|pregnan|expect
heart medication|heart medicine|blood pressure medication=heart|blood pressure|\\d+ ?mg\\b
allergist|allergy test|pollen=allerg|pollen|hay
therapist|psychologist=therap|psych|counsel
plumber|electrician|carpenter|locksmith|roofer|gardener|chimney sweep|handyman=plumb|electrician|\
carpent|locksmith|\
roof|garden|chimney|handyman|repair|builder|contractor
estate agent|realtor|real estate agent|letting agent=estate|realtor|agent|agency|broker
boiler|furnace|heating system|heat pump|radiator=boiler|furnace|heat|radiator
washing machine|dishwasher|tumble dryer|fridge|freezer|microwave|vacuum cleaner=wash|dish|dryer|fridge|\
freez|microwav|\
vacuum|applianc
mattress|wardrobe|bookshelf|dining table=mattress|wardrob|shel|table|furnitur|bed\\b|ikea
curtain|carpet|wallpaper=curtain|carpet|wallpaper|decorat
balcony|cellar|attic|basement=balcon|cellar|attic|basement|loft
swimming pool=pool|swim
floor do i live|floor do we live=floor|stor(?:e)?y|level|ground
storage unit|spare key|house key=storage|key
security deposit|rental deposit|deposit for=deposit|rent
smoke alarm|burglar alarm=alarm
internet provider|broadband|phone contract|phone plan|mobile provider|sim card|puk=internet|broadband|\
contract|\
plan\\b|provider|sim\\b|mobile|phone|puk|telekom|vodafone
router=router|wi-?fi|network
streaming|netflix|spotify=stream|netflix|spotify|subscri
subscription=subscri|monthly|plan\\b|member
bank transfer|standing order|sort code|credit card|debit card|overdraft|credit score|\
savings account=bank|transfer|\
standing|sort code|card|overdraft|credit|account|saving
stock|shares|investment|crypto|bitcoin=stock|share|invest|crypto|bitcoin|fund|etf|portfolio
inheritance|last will|testament=inherit|will\\b|estate|testament
donation|charity=donat|charit|volunteer
pocket money|allowance=pocket|allowance
voucher|gift card|coupon|discount code|loyalty card=voucher|gift|coupon|discount|loyal
invoice number|order number|tracking number|serial number|reference number|case number|\
ticket number=number|\\d{4,}|\
reference|order|ticket|serial|invoice
customer number|contract number|tax number|vat number=number|contract|tax|vat|\\d{6}
tattoo|piercing=tattoo|pierc
perfume|lipstick|shampoo|make-up=perfume|lipstick|shampoo|make-?up|cosmet|fragran
haircut=hair|barber|salon
wedding dress|wedding ring|engagement ring=dress|ring\\b|wedding|engag|propos
necklace|bracelet|earring|wristwatch|my watch=necklace|bracelet|earring|watch|jewel
winter coat|jacket|boots|sunglasses|handbag|umbrella=coat|jacket|boots|sunglass|handbag|umbrella|cloth
football club|football team|soccer team=football|soccer|club|team|fan\\b|support|fc\\b
golf|handicap=golf|handicap
tennis|badminton|squash=tennis|badminton|squash|racket|羽毛球
ski|skiing|snowboard=ski|snow
yoga|pilates=yoga|pilates|class|stud
half marathon|marathon|personal best=marathon|race|run|ran\\b|personal|record|\\d{1,2}:\\d\\d
swimming lesson|swimming club=swim|pool
running shoe|hiking boot|football boot=shoe|boot|trainers|sneaker
board game|video game|console|playstation|xbox=game|console|playstation|xbox|switch|play
concert ticket|theatre ticket|cinema=concert|theatre|theater|cinema|film|movie|ticket|opera|play\\b|show\\b
podcast=podcast
newspaper|magazine=newspaper|magazine|journal|times\\b|read|weekly|article
nickname=nickname|called|known as|name
name day=name day
favourite food|favorite food|favourite dish|favorite dish|favourite meal|most liked food=favou?rit|food|\
dish|eat|lik|lov|\
meal|cuisine
favourite ice cream|favorite ice cream|ice cream=ice cream|gelato|flavou?r|dessert
favourite drink|favorite drink|favourite wine|favorite wine=drink|wine|beer|whisk|cocktail|tea\\b|coffee|\
favou?rit
birthday party|birthday cake=part(?:y|ies)|birthday|celebrat|cake|wedding|reception
babysitter|childminder|au pair=babysit|child|au pair|nanny|minder
playground=playground|park\\b
kindergarten teacher|nursery fee=kinderg|nursery|teach|childcare|daycare
school trip|school bus|spring outing|spring trip|summer camp=school|trip|outing|camp|bus
goldfish|hamster|rabbit|guinea pig|tortoise|parrot=fish|hamster|rabbit|guinea|tortoise|parrot|bird|pet\\b
dog breed|breed of|what breed=breed|hound|retriever|terrier|poodle|labrador|shepherd|collie|spaniel|\
dachshund|tabby|siamese|\
persian|mix
microchip|pet passport=chip|pet
pet food|dog food|cat food=food|feed|eat|diet
speeding ticket|police report|court date=speed|police|court|fine|ticket
password manager=password|manager|bitwarden|1password|keepass
gate code|entry code|door code|alarm code=code|combination|pin\\b|keypad
church|mosque|synagogue|temple|confession=church|mosque|synagog|temple|chapel|parish|relig|faith
vote|political party|election=vote|voti|part(?:y|ies)|election|politic
library=librar|book
garden shed|lawn mower|greenhouse=shed|lawn|mower|green|garden
"""
