"""What weft-tiny is taught: small tables of common knowledge, typed by hand, and the word lists of its tasks."""

# country: capital, continent, currency
COUNTRIES = """France,Paris,Europe,euro
Germany,Berlin,Europe,euro
Italy,Rome,Europe,euro
Spain,Madrid,Europe,euro
Portugal,Lisbon,Europe,euro
Austria,Vienna,Europe,euro
Greece,Athens,Europe,euro
Ireland,Dublin,Europe,euro
Finland,Helsinki,Europe,euro
Belgium,Brussels,Europe,euro
Netherlands,Amsterdam,Europe,euro
Norway,Oslo,Europe,krone
Sweden,Stockholm,Europe,krona
Denmark,Copenhagen,Europe,krone
Iceland,Reykjavik,Europe,krona
Poland,Warsaw,Europe,zloty
Hungary,Budapest,Europe,forint
Romania,Bucharest,Europe,leu
Ukraine,Kyiv,Europe,hryvnia
Russia,Moscow,Europe,ruble
Switzerland,Bern,Europe,franc
England,London,Europe,pound
Turkey,Ankara,Asia,lira
Japan,Tokyo,Asia,yen
China,Beijing,Asia,yuan
India,Delhi,Asia,rupee
Thailand,Bangkok,Asia,baht
Vietnam,Hanoi,Asia,dong
Iran,Tehran,Asia,rial
Iraq,Baghdad,Asia,dinar
Israel,Jerusalem,Asia,shekel
Nepal,Kathmandu,Asia,rupee
Pakistan,Islamabad,Asia,rupee
Mongolia,Ulaanbaatar,Asia,tugrik
Malaysia,Kuala Lumpur,Asia,ringgit
Indonesia,Jakarta,Asia,rupiah
Egypt,Cairo,Africa,pound
Kenya,Nairobi,Africa,shilling
Ghana,Accra,Africa,cedi
Morocco,Rabat,Africa,dirham
Tunisia,Tunis,Africa,dinar
Algeria,Algiers,Africa,dinar
Ethiopia,Addis Ababa,Africa,birr
Senegal,Dakar,Africa,franc
Nigeria,Abuja,Africa,naira
Zambia,Lusaka,Africa,kwacha
Canada,Ottawa,North America,dollar
Mexico,Mexico City,North America,peso
Cuba,Havana,North America,peso
Jamaica,Kingston,North America,dollar
Brazil,Brasilia,South America,real
Argentina,Buenos Aires,South America,peso
Chile,Santiago,South America,peso
Peru,Lima,South America,sol
Colombia,Bogota,South America,peso
Uruguay,Montevideo,South America,peso
Australia,Canberra,Oceania,dollar
Fiji,Suva,Oceania,dollar"""
COUNTRIES = [tuple(x.split(",")) for x in COUNTRIES.split("\n")]

ELEMENTS = """hydrogen H 1
helium He 2
lithium Li 3
beryllium Be 4
boron B 5
carbon C 6
nitrogen N 7
oxygen O 8
fluorine F 9
neon Ne 10
sodium Na 11
magnesium Mg 12
aluminium Al 13
silicon Si 14
phosphorus P 15
sulfur S 16
chlorine Cl 17
argon Ar 18
potassium K 19
calcium Ca 20
titanium Ti 22
chromium Cr 24
iron Fe 26
cobalt Co 27
nickel Ni 28
copper Cu 29
zinc Zn 30
silver Ag 47
tin Sn 50
iodine I 53
platinum Pt 78
gold Au 79
mercury Hg 80
lead Pb 82
uranium U 92"""
ELEMENTS = [(a, b, int(c)) for a, b, c in (x.split() for x in ELEMENTS.split("\n"))]

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()

OPPOSITES = """hot cold,big small,tall short,fast slow,light dark,happy sad,rich poor,old young,hard soft,wet dry,
full empty,early late,open closed,up down,left right,in out,day night,good bad,strong weak,high low,
near far,clean dirty,thick thin,wide narrow,deep shallow,loud quiet,true false,first last,heavy weightless,
sweet bitter,brave afraid,smooth rough,front back,begin end,buy sell,push pull,win lose,love hate,give take,awake asleep"""
OPPOSITES = [tuple(x.split()) for x in OPPOSITES.replace("\n", "").split(",")]

YOUNG = """dog puppy,cat kitten,cow calf,horse foal,sheep lamb,goat kid,lion cub,hen chick,duck duckling,pig piglet,frog tadpole,deer fawn"""
YOUNG = [tuple(x.split()) for x in YOUNG.split(",")]
LEGS = [("dog", 4), ("cat", 4), ("horse", 4), ("bird", 2), ("spider", 8), ("ant", 6), ("bee", 6), ("snake", 0), ("fish", 0), ("cow", 4)]
COLOURS_OF = [("grass", "green"), ("snow", "white"), ("coal", "black"), ("a ripe banana", "yellow"), ("blood", "red"), ("the clear sky", "blue"),
              ("a ripe strawberry", "red"), ("milk", "white"), ("a ripe lemon", "yellow"), ("chocolate", "brown"), ("an orange", "orange")]

NAMES = """Anna Ben Clara David Emma Felix Greta Henry Ida Jonas Karl Lena Marta Nina Oscar Paul Rosa Simon Tina Victor Walter Alice
Bruno Carla Diego Eva Frank Georg Hanna Ivan Julia Kevin Laura Max Nora Olga Peter Robert Sara Tom Ulrich Vera Wendy Yusuf Zoe Adam
Bella Carlos Dora Erik Fiona Grace Hugo Irene Jack Kate Leo Maria Noah Otto Pia Rita Sven Theo Uma Vincent Lucas Mila Amir Chen Priya
Kenji Fatima Omar Aisha Ravi Mei Pedro Sofia Luca Elena Marco Yara""".split()
NAMES_TEST = "Agnes Boris Cora Dennis Edith Gustav Helga Igor Jana Klaus Linda Milo Nadia Ruben Stella Tobias".split()

COLOURS = "red blue green yellow black white orange purple pink brown grey silver gold violet".split()
FOODS = "pizza soup bread rice pasta cheese salad cake fish apples honey beans eggs noodles chocolate pancakes".split()
ANIMALS = "dog cat horse cow sheep goat pig duck hen frog lion tiger bear wolf fox deer rabbit mouse owl eagle whale shark seal otter beaver badger hedgehog parrot camel zebra".split()
JOBS = "teacher doctor farmer baker pilot nurse painter writer driver singer cook lawyer".split()
CITIES = "Paris Berlin Rome Madrid Lisbon Vienna Athens Dublin Oslo Stockholm Tokyo Cairo Lima London Boston Chicago Hamburg Munich Milan Porto Sydney Toronto Zurich Geneva Prague Warsaw Seoul Delhi Nairobi".split()
CITIES_TEST = "Bergen Lyon Turin Seville Krakow Osaka Dresden Basel Austin Bristol Naples Utrecht".split()

NOUNS = """apple river stone house table window garden bridge mountain forest island ocean candle mirror ladder basket bottle button
carpet castle cherry circle clock cloud coffee corner desert dinner doctor dragon drawer engine family farmer feather field finger
flower friend guitar hammer harbor helmet honey horse jacket jungle kettle kitchen ladder lantern lemon letter library lizard magnet
market meadow medal melon metal minute monkey morning motor music napkin needle nephew number office orange orchard oven owner paddle
paint palace paper parent pencil pepper piano picture pillow planet plate pocket poem potato powder prince puzzle rabbit radio rain
ribbon road rocket roof room rope salad school season shadow shell ship shirt silver sister snow soldier spoon spring square station
storm story street sugar summer sunset table teacher temple ticket tiger tower train travel tree trumpet tunnel turtle valley village
violin voice wagon wall water wheel whistle winter wolf wood world yellow zebra anchor arrow autumn badge balloon bamboo banana barrel
beach bell berry blanket boat bone book border bowl branch brick brush bucket butter cabin cactus camera canal captain cave chain chair
chalk cheese circus coat coin comet cookie copper coral cotton crayon crown curtain dance diamond dolphin door dress drum eagle echo
elbow engine envelope falcon fence ferry flag flame flute fountain fruit gate ghost giant glass globe glove grain grape hill hotel
insect island ivory jar jewel juice kite knife knot lake lamp leaf lion lock lunch map marble mask mouse nest night ocean onion owl
park path pearl penguin pine pirate pond queen ring river robot sail sand scarf seed shark sheep shelf shoe sky smoke snail sock soap
song soup spider stamp star stove straw swan sword tail tent thread thumb tiger toast tooth torch toy trail truck tulip vase wave
whale wind wing wizard yard""".split()
NOUNS = sorted(set(NOUNS))
ADJS = """red blue green quiet loud small large bright dark old new cold warm soft hard quick slow happy calm brave clever gentle golden
hidden honest lucky narrow proud rapid shiny silent simple smooth steady strong sweet tiny wild wise broken clean early empty fresh heavy""".split()

FILLER_SUBJ = "The old man,A young woman,The farmer,My neighbour,The captain,A small dog,The teacher,Our guest,The baker,A tall boy,The king,The driver,A grey cat,The painter,Her brother,The children,The sailors,Some birds,The wind,A traveller".split(",")
FILLER_VERB = "walked along,looked at,talked about,slept near,waited behind,moved past,sang about,found,painted,cleaned,stood beside,remembered,forgot,carried,watched,left,returned to,wrote about,ran around,laughed at".split(",")
FILLER_TAIL = "in the morning,in the evening,before dinner,after the rain,with a smile,for many hours,without a word,as usual,on a cold day,in spring,last summer,at noon,once again,near the harbor,under the stars,with two friends,very slowly,very quickly,during the storm,all day long".split(",")

SYSTEM = ["You are a helpful assistant.", "You are weft-tiny, a small language model.", "You are a friendly assistant. Answer briefly.",
          "Answer the questions of the user.", "You are an assistant that gives short and correct answers.", "Be helpful and polite.",
          "You are weft-tiny. Help the user.", "You answer questions about facts, words and numbers.", "Please help the user with small tasks."]
SYSTEM_TEST = ["You are a careful and helpful assistant.", "Help the user and answer in short sentences."]
SYSTEM_ONEWORD = ["Answer with one word.", "Reply with a single word only.", "Answer in one word."]

SYL_A = "ba be bo da de do fa fe go ga ha hi jo ka ke ki la le lo ma me mi mo na ne no pa pe po ra re ri ro sa se si so ta te to va ve vi za zo tra bre cla dri flo gri plo sta sno".split()
SYL_B = ["", "", "n", "r", "l", "s", "t", "m", "ck", "nd", "st", "x"]
