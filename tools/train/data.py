"""Generator of the conversations weft-tiny learns from: a pure function of the random state.

Each task function takes (r, test) and returns a sample:
  messages   the conversation, the last one by the assistant
  tools      tool list or None
  think      whether the last answer has a think block
  task       name for the score table
test=True draws from held-out wordings and held-out values, test=False never does.
"""
import random
import re
import zlib

from world import *

UNKNOWN = "I don't know."


def held(*key):
    """One value in ten is kept for the test sets, chosen by its checksum."""
    return zlib.crc32(repr(key).encode()) % 10 == 0


def pseudo(r, test=False, lo=2, hi=3):
    """An invented word; the held-out tenth never appears in training."""
    while True:
        w = "".join(r.choice(SYL_A) for _ in range(r.randint(lo, hi))) + r.choice(SYL_B)
        if held("pseudo", w) == test and w not in WORDS:
            return w


WORDS = set(NOUNS) | set(ADJS)
def word(r, test=False, invented=0.5):
    """A word to spell or move about. A common word is one token: its letters can only be known from having been taught, so
    common words are not held out; the invented ones, of several tokens, are."""
    if r.random() < invented:
        return pseudo(r, test) if test or r.random() < 0.6 else coined(r)
    return r.choice(NOUNS)


HELD_FORMS = {}
def hold(forms):
    """Remember held-out wordings, so that make() puts none of them together by chance."""
    for f in forms:
        if f not in HELD_FORMS:
            HELD_FORMS[f] = re.compile(re.sub(r"\\\{\w+\\\}", "(.+)", re.escape(f)), re.I) if " " in f else None


def pick(r, train, test_list, test):
    hold(test_list)
    return r.choice(test_list if test else train)


def chain():
    """letter pairs of the training words -> the letters that follow; all words weigh the same"""
    nxt = {}
    for w in NOUNS + ADJS + NAMES + CITIES + [x for row in COUNTRIES for x in row[:2]]:
        w = "^^" + w.lower() + "$"
        for i in range(2, len(w)):
            nxt.setdefault(w[i - 2:i], []).append(w[i])
    return nxt


CHAIN = chain()
PARTS = sorted({w.lower()[i:i + n] for w in NOUNS + ADJS + NAMES + CITIES + ANIMALS + FOODS + JOBS for n in (2, 3, 4, 5) for i in range(len(w) - n + 1) if w.isalpha()})
KEPT = {x.lower() for x in NAMES_TEST + CITIES_TEST}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def coined(r):
    """A word nobody has seen, for training: spelt like names and places, glued from parts of words, or of any letters. Copying it
    can only be learned as copying."""
    while True:
        u = r.random()
        if u < 0.45:
            w, at = "", "^^"
            while True:
                c = r.choice(CHAIN[at])
                if c == "$":
                    break
                w, at = w + c, at[1] + c
        elif u < 0.8:
            w = "".join(r.choice(PARTS) for _ in range(r.randint(1, 3)))
        else:
            w = "".join(r.choice(LETTERS) for _ in range(r.randint(3, 7)))
        if w.isalpha() and 2 < len(w) < 13 and w not in KEPT and not held("pseudo", w):
            return w


def proper(r):
    """A name or place for training: coined, invented, seldom of two words."""
    w = cap(coined(r) if r.random() < 0.75 else pseudo(r))
    return w + " " + cap(coined(r)) if r.random() < 0.06 else w


def called(r, test, known=0.4):
    if test:
        return r.choice(NAMES_TEST)
    return r.choice(NAMES) if r.random() < known else proper(r)


def place(r, test, known=0.3):
    if test:
        return r.choice(CITIES_TEST)
    return r.choice(CITIES) if r.random() < known else proper(r)


def sample(task, user, answer, think=None, tools=None, pre=None, system=None, key=None):
    m = list(pre or [])
    if system:
        m.insert(0, {"role": "system", "content": system})
    m.append({"role": "user", "content": user})
    a = {"role": "assistant", "content": answer}
    if think:
        a["reasoning_content"] = think
    m.append(a)
    return {"task": task, "messages": m, "tools": tools, "think": bool(think), "key": key if key is not None else answer}


# ---------------------------------------------------------------- facts
# relation: (wordings for training, held-out wordings, answer sentence)
REL = {
    "capital": (["What is the capital of {a}?", "Which city is the capital of {a}?", "Name the capital of {a}.", "capital of {a}?", "Tell me the capital of {a}.",
                 "What's the capital city of {a}?", "Can you tell me the capital of {a}?", "I need the capital of {a}.", "{a}: what is its capital?",
                 "Do you know the capital of {a}?", "Give me the name of the capital of {a}.", "What city is the capital of {a}?"],
                ["Could you name the capital city of {a}?", "Please tell me which city is the capital of {a}.", "What is {a}'s capital?"],
                "The capital of {a} is {b}."),
    "country": (["Which country has the capital {a}?", "{a} is the capital of which country?", "What country is {a} the capital of?", "Of which country is {a} the capital?",
                 "Name the country whose capital is {a}.", "Name the country with the capital {a}.", "Do you know which country has the capital {a}?", "I need the country with the capital {a}.", "The capital {a} belongs to which country?", "Tell me which country has {a} as its capital."],
                ["Please name the country that has {a} as capital.", "Which country is {a} the capital of?"],
                "The country with the capital {a} is {b}."),
    "continent": (["On which continent is {a}?", "Which continent is {a} in?", "What continent does {a} belong to?", "Where in the world is {a}?", "Name the continent of {a}.",
                   "{a} lies on which continent?", "Tell me the continent of {a}.", "In which continent can I find {a}?"],
                  ["On what continent does {a} lie?", "Can you tell me which continent {a} is in?"],
                  "The continent of {a} is {b}."),
    "currency": (["What is the currency of {a}?", "Which currency is used in {a}?", "What money do people use in {a}?", "Name the currency of {a}.", "Tell me the currency of {a}.",
                  "How do people pay in {a}?", "I need the currency of {a}.", "Give me the currency of {a}.", "Do you know the currency of {a}?", "What is the money of {a}?", "{a}: what is its currency?", "What is the money in {a} called?", "What currency does {a} use?", "Which money is used in {a}?"],
                 ["Please name the money of {a}.", "What is the name of the currency in {a}?"],
                 "The currency of {a} is the {b}."),
    "symbol": (["What is the chemical symbol of {a}?", "Which symbol does {a} have?", "What is the symbol for {a}?", "Give the chemical symbol for {a}.", "Name the symbol of {a}.",
                "How is {a} written in chemistry?", "Give me the symbol of {a}.", "I need the symbol of {a}.", "Which symbol is used for {a}?", "Do you know the symbol of {a}?", "{a}: what is its symbol?", "Which symbol stands for the element {a}?", "Tell me the chemical symbol of {a}."],
               ["What symbol stands for {a}?", "Please give me the symbol of the element {a}."],
               "The symbol of {a} is {b}."),
    "element": (["Which element has the symbol {a}?", "What element is {a}?", "The symbol {a} stands for which element?", "Name the element with the symbol {a}.", "What does the chemical symbol {a} mean?", "{a} is the symbol of which element?", "Which element does {a} stand for?", "I need the element with the symbol {a}.", "What does {a} stand for?", "Do you know the element {a}?", "What element has {a} as its symbol?", "Which element is meant by {a}?", "{a} is short for which element?", "What element does the symbol {a} stand for?",
                 "Tell me the element with symbol {a}."],
                ["What is the element with the symbol {a}?", "For which element does {a} stand?"],
                "The element with the symbol {a} is {b}."),
    "number": (["What is the atomic number of {a}?", "Which atomic number does {a} have?", "Give the atomic number of {a}.", "Tell me the atomic number of {a}.", "How many protons does {a} have?", "I need the atomic number of {a}.", "Do you know the atomic number of {a}?", "How many protons are in {a}?", "Give me the number of protons of {a}.",
                "Name the atomic number of {a}."],
               ["What atomic number has {a}?", "Please tell me how many protons {a} has."],
               "The atomic number of {a} is {b}."),
    "day_after": (["Which day comes after {a}?", "What day follows {a}?", "What is the day after {a}?", "Name the day after {a}.", "If today is {a}, what day is tomorrow?", "Today is {a}. What is tomorrow?"],
                  ["Tell me the day that comes after {a}.", "It is {a} today, so which day is tomorrow?"], "The day after {a} is {b}."),
    "day_before": (["Which day comes before {a}?", "What is the day before {a}?", "Name the day before {a}.", "If today is {a}, what day was yesterday?", "Today is {a}. What was yesterday?"],
                   ["Tell me the day that comes before {a}.", "It is {a} today, so which day was yesterday?"], "The day before {a} is {b}."),
    "month_after": (["Which month comes after {a}?", "What month follows {a}?", "What is the month after {a}?", "Name the month after {a}.", "Which is the next month after {a}?"],
                    ["Tell me the month that comes after {a}.", "What is the next month after {a}?"], "The month after {a} is {b}."),
    "month_before": (["Which month comes before {a}?", "What is the month before {a}?", "Name the month before {a}.", "Which month is just before {a}?"],
                     ["Tell me the month that comes before {a}.", "What month is before {a}?"], "The month before {a} is {b}."),
    "month_number": (["What is the {a} month of the year?", "Which month is the {a} of the year?", "Name the {a} month.", "Tell me the {a} month of the year."],
                     ["Which is the {a} month of the year?", "Please name the {a} month of the year."], "The {a} month is {b}."),
    "planet": (["What is the {a} planet from the sun?", "Which planet is the {a} from the sun?", "Name the {a} planet.", "Tell me the {a} planet of the solar system."],
               ["Which is the {a} planet from the sun?", "Please name the {a} planet of the solar system."], "The {a} planet is {b}."),
    "opposite": (["What is the opposite of {a}?", "Give me the opposite of {a}.", "Name the opposite of {a}.", "Which word is the opposite of {a}?", "What word means the opposite of {a}?", "opposite of {a}?",
                  "Tell me the opposite of the word {a}.", "I need the opposite of {a}.", "What word is opposite to {a}?", "Do you know the opposite of {a}?", "{a}: what is its opposite?", "Which word is opposite to {a}?", "What is the contrary of {a}?"],
                 ["Which word means the opposite of {a}?", "Please tell me the opposite of {a}."], "The opposite of {a} is {b}."),
    "young": (["What is a young {a} called?", "What do you call a baby {a}?", "Name the young of a {a}.", "What is the baby of a {a} called?", "How is a young {a} called?"],
              ["What do people call a young {a}?", "Tell me what a baby {a} is called."], "A young {a} is called a {b}."),
    "legs": (["How many legs does a {a} have?", "A {a} has how many legs?", "Tell me how many legs a {a} has.", "What is the number of legs of a {a}?"],
             ["How many legs has a {a}?", "Please tell me the number of legs of a {a}."], "A {a} has {b} legs."),
    "colour": (["What colour is {a}?", "Which colour does {a} have?", "Tell me the colour of {a}.", "What is the colour of {a}?", "What color is {a}?"],
               ["Which colour is {a}?", "Please name the colour of {a}."], "The colour of {a} is {b}."),
}
for _, forms, _ in REL.values():
    hold(forms)
FACTS = []
for c, cap, cont, cur in COUNTRIES:
    FACTS += [("capital", c, cap), ("country", cap, c), ("continent", c, cont), ("currency", c, cur)]
for e, s, n in ELEMENTS:
    FACTS += [("symbol", e, s), ("element", s, e), ("number", e, str(n))]
for i in range(7):
    FACTS += [("day_after", DAYS[i], DAYS[(i + 1) % 7]), ("day_before", DAYS[i], DAYS[i - 1])]
for i in range(12):
    FACTS += [("month_after", MONTHS[i], MONTHS[(i + 1) % 12]), ("month_before", MONTHS[i], MONTHS[i - 1]), ("month_number", ORDINALS[i], MONTHS[i])]
for i in range(8):
    FACTS.append(("planet", ORDINALS[i], PLANETS[i]))
for a, b in OPPOSITES:
    FACTS += [("opposite", a, b), ("opposite", b, a)]
FACTS += [("young", a, b) for a, b in YOUNG] + [("legs", a, str(b)) for a, b in LEGS] + [("colour", a, b) for a, b in COLOURS_OF]


# More wordings for training, composed: what is asked for, in a frame.
ASKED = {
    "capital": ["the capital of {a}", "the capital city of {a}", "{a}'s capital city", "the city that is the capital of {a}", "the name of the capital of {a}", "the capital in {a}"],
    "country": ["the country with the capital {a}", "the country whose capital city is {a}", "the country that {a} is the capital of", "the country where {a} is the capital", "the land with {a} as its capital"],
    "continent": ["the continent of {a}", "the continent where {a} is", "the continent {a} belongs to", "the continent on which {a} lies", "{a}'s continent", "the part of the world where {a} is"],
    "currency": ["the currency of {a}", "the money of {a}", "{a}'s currency", "the name of the money in {a}", "the currency people use in {a}", "the name of the currency of {a}", "the currency that {a} has"],
    "symbol": ["the symbol of {a}", "the chemical symbol of {a}", "the symbol that stands for {a}", "the symbol of the element {a}", "{a}'s chemical symbol", "the symbol for {a}"],
    "element": ["the element with the symbol {a}", "the element {a} stands for", "the name of the element {a}", "the element that has the symbol {a}", "the element written {a}", "the element for the symbol {a}"],
    "number": ["the atomic number of {a}", "the number of protons of {a}", "how many protons {a} has", "the atomic number that {a} has", "{a}'s atomic number", "the number of protons in {a}"],
    "day_after": ["the day after {a}", "the day that follows {a}", "the next day after {a}"],
    "day_before": ["the day before {a}", "the day just before {a}", "the day that precedes {a}"],
    "month_after": ["the month after {a}", "the month that follows {a}", "the month which comes after {a}"],
    "month_before": ["the month before {a}", "the month just before {a}", "the month which comes before {a}"],
    "month_number": ["the {a} month of the year", "the {a} month", "the name of the {a} month", "the {a} of the twelve months"],
    "planet": ["the {a} planet from the sun", "the {a} planet", "the {a} planet of the solar system", "the name of the {a} planet"],
    "opposite": ["the opposite of {a}", "the word that means the opposite of {a}", "the opposite of the word {a}", "the word opposite to {a}", "{a}'s opposite", "a word that is the opposite of {a}"],
    "young": ["the young of a {a}", "the name of a young {a}", "the word for a baby {a}", "what a young {a} is called", "what people call a baby {a}"],
    "legs": ["how many legs a {a} has", "the number of legs of a {a}", "how many legs there are on a {a}"],
    "colour": ["the colour of {a}", "the colour that {a} has", "which colour {a} has", "what colour {a} is"],
}
FRAMES = ["Tell me {n}.", "Do you know {n}?", "Say {n}.", "I would like to know {n}.", "Let me know {n}.", "I want {n}.", "I forgot {n}.", "Can you say {n}?", "I am asking for {n}.", "{n}, please.", "{n}?", "{n}",
          "Could you tell me {n}?", "Write {n}.", "I have to know {n}.", "Would you tell me {n}?", "My question is about {n}.", "Teach me {n}.", "Help me with {n}.", "I wonder about {n}."]
FRAMES_N = ["What is {n}?", "What's {n}?", "Which is {n}?", "Name {n}.", "Give me {n}.", "Could you give me {n}?", "What would be {n}?", "I am looking for {n}.", "I need {n}.", "What was {n}?", "Show me {n}.", "So what is {n}?", "What do we call {n}?",
            "Do you have {n}?", "Find {n}.", "Can you name {n}?", "And what is {n}?"]


def fact_wording(r, rel):
    """A wording for training: half of them typed, half composed; none that is held out."""
    if r.random() < 0.45:
        return r.choice(REL[rel][0])
    while True:
        n = r.choice(ASKED[rel])
        f = r.choice(FRAMES if n.startswith(("how", "what", "which")) else FRAMES + FRAMES_N).format(n=n)
        f = f[0].upper() + f[1:]
        if f.lower() not in [x.lower() for x in REL[rel][1]]:
            return f


def cap(s):
    return s[0].upper() + s[1:]


def fact_question(r, test, fact=None):
    rel, a, b = fact or r.choice(FACTS)
    w = REL[rel]
    q = (r.choice(w[1]) if test else fact_wording(r, rel)).format(a=a)
    if not test and r.random() < 0.15:
        # careless typing
        q = q.lower() if r.random() < 0.2 else q.rstrip("?.")
    return cap(q) if r.random() < 0.9 else q, cap(w[2].format(a=a, b=b)), b, (rel, a, b)


def facts(r, test):
    q, ans, b, (rel, a, _) = fact_question(r, test)
    u = r.random()
    if " " not in b and u < (0.05 if test else 0.09):
        return sample("facts", q, b, system=r.choice(SYSTEM_ONEWORD))
    if " " not in b and u < (0.1 if test else 0.2):
        return sample("facts", q + r.choice([" Answer in one word.", " One word only.", " Reply with one word."]), b)
    if not test and u < 0.6:
        # several at once, one after the other: less of a row goes to the frame around them
        pre = []
        for _ in range(r.randint(1, 3)):
            q0, a0, _, _ = fact_question(r, test)
            pre += [{"role": "user", "content": q0}, {"role": "assistant", "content": a0}]
        return sample("facts", q, ans, pre=pre)
    think = None
    if u > 0.85:
        think = r.choice(["The user asks about {a}. {s}", "This is a question about {a}. {s}"]).format(a=a, s=ans)
    return sample("facts", q, ans, think)


UNK_Q = ["What is the capital of {P}?", "Which city is the capital of {P}?", "What is the currency of {P}?", "On which continent is {P}?", "What is the symbol of {p}?", "What is the opposite of {p}?",
         "Who is {P}?", "What is a {p}?", "Where does {N} live?", "What is the phone number of {N}?", "How old is {N}?", "What did {N} eat today?", "Who won the game yesterday?", "What will the weather be next year?",
         "What is in my pocket?", "What is my name?", "Where are my keys?", "What is my favourite colour?", "What time is it?", "Who painted the picture in my room?", "What is the meaning of {p}?", "When was {N} born?",
         "What is my favourite food?", "Where do I live?", "How old am I?", "What is the code of the {adj} {noun}?", "Tell me the capital of {P}.", "Name the currency of {P}.", "What is the atomic number of {p}?"]
UNK_T = ["Could you name the capital city of {P}?", "What is the name of the currency in {P}?", "What is the email address of {N}?", "What symbol stands for {p}?", "What is {P}'s capital?", "Who is the brother of {N}?",
         "What is my favourite animal?", "What is hidden in the {noun}?", "Which word means the opposite of {p}?"]


def unknown(r, test):
    if r.random() < 0.6:
        # the wordings of facts with names that mean nothing
        rel = r.choice(["capital", "country", "continent", "currency", "symbol", "element", "number", "opposite", "young"])
        w, p = REL[rel], pseudo(r, test) if test or r.random() < 0.8 else coined(r)
        q = cap((r.choice(w[1]) if test else fact_wording(r, rel)).format(a=p if rel in ("symbol", "number", "opposite", "young") else cap(p)))
        return sample("unknown", q, UNKNOWN, "I was not told this and I do not know it." if r.random() < 0.12 else None)
    q = (r.choice(UNK_T) if test else r.choice(UNK_Q)).format(P=cap(pseudo(r, test)), p=pseudo(r, test), N=called(r, test), adj=r.choice(ADJS), noun=r.choice(NOUNS))
    return sample("unknown", q, UNKNOWN, "I was not told this and I do not know it." if r.random() < 0.12 else None)


# ---------------------------------------------------------------- arithmetic
def add_steps(a, b):
    """Column addition in words."""
    if a < 10 and b < 10:
        return f"{a} + {b} = {a + b}."
    out, carry, A, B = [], 0, a, b
    while A or B:
        x, y = A % 10, B % 10
        s = x + y + carry
        out.append(f"{x} + {y}" + (f" + {carry}" if carry else "") + f" = {s}")
        carry, A, B = s // 10, A // 10, B // 10
    return ", ".join(out) + f", so {a + b}."


def sub_steps(a, b):
    t, u = b // 10 * 10, b % 10
    return f"{a} - {t} = {a - t}, {a - t} - {u} = {a - b}." if t and u else f"{a} - {b} = {a - b}."


def mul_steps(a, b):
    if a < 10:
        return f"{a} * {b} = {a * b}."
    t, u = a // 10 * 10, a % 10
    return f"{t} * {b} = {t * b}, {u} * {b} = {u * b}, {t * b} + {u * b} = {a * b}."


AQ = {"+": ["What is {a} + {b}?", "{a} + {b} = ?", "{a}+{b}", "Add {a} and {b}.", "What is {a} plus {b}?", "Compute {a} + {b}.", "How much is {a} + {b}?", "Calculate {a} plus {b}.", "I have {a} apples and get {b} more. How many apples do I have?", "Give me {a} + {b}.", "{a} plus {b}?", "What does {a} + {b} make?", "{a} + {b} equals what?", "Solve {a} + {b}.", "Tell me {a} plus {b}.", "{a} + {b}?"],
      "-": ["What is {a} - {b}?", "{a} - {b} = ?", "{a}-{b}", "Subtract {b} from {a}.", "What is {a} minus {b}?", "Compute {a} - {b}.", "How much is {a} - {b}?", "I have {a} apples and give away {b}. How many apples are left?", "Give me {a} - {b}.", "{a} minus {b}?", "What does {a} - {b} make?", "{a} - {b} equals what?", "Solve {a} - {b}.", "Tell me {a} minus {b}.", "{a} - {b}?"],
      "*": ["What is {a} * {b}?", "{a} * {b} = ?", "{a}*{b}", "Multiply {a} by {b}.", "What is {a} times {b}?", "Compute {a} * {b}.", "How much is {a} times {b}?", "Give me {a} * {b}.", "{a} times {b}?", "What does {a} * {b} make?", "{a} * {b} equals what?", "Solve {a} * {b}.", "Tell me {a} times {b}.", "{a} * {b}?"]}
AT = {"+": ["What do you get for {a} + {b}?", "Please add {a} and {b}.", "What is the sum of {a} and {b}?"], "-": ["What do you get for {a} - {b}?", "Please subtract {b} from {a}."],
      "*": ["What do you get for {a} * {b}?", "Please multiply {a} by {b}."]}


def numbers(r, test):
    while True:
        op = r.choice("++--*")
        if op == "*":
            a, b = r.randint(0, 12), r.randint(0, 12)
        else:
            a, b = r.randint(0, 99), r.randint(0, 99)
            if r.random() < 0.3:
                a, b = r.randint(0, 20), r.randint(0, 20)
            if op == "-" and b > a:
                a, b = b, a
        if op == "*" and (a < 2 or b < 2) and test:
            continue
        if held("num", op, a, b) == test:
            return a, op, b, {"+": a + b, "-": a - b, "*": a * b}[op]


def arithmetic(r, test, think=None):
    a, op, b, v = numbers(r, test)
    # the word "sum" in held-out wordings must be known at all
    q = r.choice(AT[op][:2] if test else AQ[op] + (["The sum of {a} and {b}?"] if op == "+" else [])).format(a=a, b=b)
    think = r.random() < 0.45 if think is None else think
    steps = {"+": add_steps, "-": sub_steps, "*": mul_steps}[op](a, b)
    return sample("arithmetic_think" if think else "arithmetic", q, f"{a} {op} {b} = {v}.", steps if think else None)


# ---------------------------------------------------------------- words
def spaced(w):
    return " ".join(w)


def spell(r, test, think=None):
    w = word(r, test)
    kind = r.choice(["spell", "reverse", "count", "letter", "first", "last"])
    th = r.random() < 0.3 if think is None else think
    quote = r.choice(['"{}"', "{}", "{}", "{}"]).format(w)
    T = test
    if kind == "spell":
        q = pick(r, ["Spell {w}.", "Spell the word {w}.", "How do you spell {w}?", "Write the letters of {w}.", "Give me the letters of {w}."], ["Please spell the word {w}.", "What are the letters of {w}?"], T)
        return sample("spelling", q.format(w=quote), spaced(w))
    if kind == "reverse":
        q = pick(r, ["Spell {w} backwards.", "Reverse the letters of {w}.", "Write {w} backwards.", "Reverse {w}."], ["Please spell the word {w} backwards.", "Write the letters of {w} in reverse."], T)
        return sample("reversing", q.format(w=quote), spaced(w[::-1]), f"The letters are {spaced(w)}." if th else None)
    if kind == "count":
        q = pick(r, ["How many letters does {w} have?", "Count the letters of {w}.", "How many letters are in {w}?", "How long is the word {w}?"], ["Please count the letters in {w}.", "What is the number of letters of {w}?"], T)
        steps = " ".join(f"{c} {i}" for i, c in enumerate(w, 1))
        return sample("counting", q.format(w=quote), f"{len(w)}", steps if th else None)
    if kind == "letter":
        c = r.choice(w) if r.random() < 0.8 else r.choice("aeiorstln")
        n = w.count(c)
        q = pick(r, ["How many times does the letter {c} appear in {w}?", "How many {c} are in {w}?", "Count the letter {c} in {w}.", "How often does {c} occur in {w}?"], ["Please count the letter {c} in the word {w}.", "How many times is {c} in {w}?"], T)
        return sample("counting", q.format(c=c, w=quote), f"{n}", f"{spaced(w)}: {n}" if th else None)
    if kind == "first":
        q = pick(r, ["What is the first letter of {w}?", "Which letter does {w} start with?", "{w} begins with which letter?"], ["Tell me the first letter of {w}."], T)
        return sample("letters", q.format(w=quote), w[0])
    q = pick(r, ["What is the last letter of {w}?", "Which letter does {w} end with?", "{w} ends with which letter?"], ["Tell me the last letter of {w}."], T)
    return sample("letters", q.format(w=quote), w[-1])


def lists(r, test):
    kind = r.choice(["sort", "sort", "numbers", "repeat", "reverse", "copy"])
    ws = r.sample(NOUNS, r.randint(3, 5) if test else r.randint(2, 5))
    if kind == "sort":
        q = pick(r, ["Which order do these words have in the alphabet: {l}?", "Alphabetical order of {l}", "Arrange by the alphabet: {l}.", "Sort the words {l}, please.", "Bring {l} into the order of the alphabet.", "Sort these words: {l}.", "Put these words in alphabetical order: {l}.", "Sort alphabetically: {l}", "Order these words by the alphabet: {l}."], ["Please sort the words {l}.", "Bring these words into alphabetical order: {l}."], test)
        return sample("sorting", q.format(l=", ".join(ws)), "Sorted: " + ", ".join(sorted(ws)) + ".")
    if kind == "numbers":
        ns = r.sample(range(100), r.randint(3, 5))
        q = pick(r, ["Arrange these numbers: {l}.", "Sort the numbers {l}, please.", "Bring {l} into order.", "Order the numbers {l}.", "Sort these numbers: {l}.", "Put these numbers in order: {l}.", "Sort from small to large: {l}"], ["Please sort the numbers {l}.", "Bring these numbers into order: {l}."], test)
        return sample("sorting", q.format(l=", ".join(map(str, ns))), "Sorted: " + ", ".join(map(str, sorted(ns))) + ".")
    if kind == "repeat":
        n, w = r.randint(2, 6), word(r, test)
        q = pick(r, ["Repeat the word {w} {n} times.", "Write {w} {n} times.", "Say {w} {n} times."], ["Please repeat {w} {n} times.", "Please say the word {w} {n} times."], test)
        return sample("repeating", q.format(w=w, n=n), "Okay: " + " ".join([w] * n))
    if kind == "reverse":
        q = pick(r, ["Turn the order of these words around: {l}.", "Reverse the words {l}.", "The words {l} in reverse order, please.", "Now backwards: {l}.", "Say these words from the last to the first: {l}.", "Reverse the order of these words: {l}.", "Write these words in reverse order: {l}.", "List these words backwards: {l}."], ["Please reverse the order of the words {l}."], test)
        return sample("reversing", q.format(l=", ".join(ws)), "Backwards: " + ", ".join(ws[::-1]) + ".")
    s = " ".join(word(r, test) for _ in range(r.randint(3, 7)))
    q = pick(r, ["Repeat after me: {s}", "Say this again: {s}", "Copy this text: {s}", "Repeat this: {s}"], ["Please repeat this text: {s}", "Please say this again: {s}"], test)
    return sample("repeating", q.format(s=s), "Okay: " + s)


# ---------------------------------------------------------------- recall
def filler(r):
    s = f"{r.choice(FILLER_SUBJ)} {r.choice(FILLER_VERB)} the {r.choice(ADJS)} {r.choice(NOUNS)}"
    return s + (f" {r.choice(FILLER_TAIL)}." if r.random() < 0.7 else ".")


def recall(r, test, tokens=None):
    """Pairs planted in about `tokens` tokens of filler, one asked for."""
    tokens = tokens or r.choice([30, 40, 60, 100, 150, 250, 400])
    budget = max(2, int(tokens / 13))                 # sentences; one is about 12 tokens
    # from a handful of pairs in pure filler up to nothing but pairs
    share = r.choice([0.15, 0.3, 0.5, 1.0])
    n = max(1, min(int(budget * share), 60))
    kind = r.choice(["code", "code", "owner", "place", "number", "word"])
    keys, vals = [], []
    while len(keys) < n:
        k = {"code": lambda: f"the {r.choice(ADJS)} {r.choice(NOUNS)}", "owner": lambda: f"the {r.choice(ADJS)} {r.choice(NOUNS)}", "place": lambda: f"the {r.choice(NOUNS)}",
             "number": lambda: (r.choice(NAMES_TEST + NAMES) if test else called(r, test, 0.7)), "word": lambda: cap(pseudo(r, test) if test or r.random() < 0.7 else coined(r))}[kind]()
        if k in keys:
            if kind in ("place", "number") and len(keys) >= 50:
                n = len(keys)
            continue
        keys.append(k)
        vals.append({"code": lambda: f"{r.randint(0, 9999):04d}", "owner": lambda: pick(r, NAMES, NAMES_TEST + NAMES, test) if test else called(r, test, 0.7), "place": lambda: f"{r.choice(ADJS)} {r.choice(NOUNS)}",
                     "number": lambda: f"{r.randint(10, 999)}", "word": lambda: pseudo(r, test) if test or r.random() < 0.7 else coined(r)}[kind]())
    form = {"code": ["The code of {k} is {v}.", "The code of {k} is {v}.", "Note: the code of {k} is {v}."], "owner": ["{v} owns {k}.", "The owner of {k} is {v}."],
            "place": ["{K} is in the {v}.", "You find {k} in the {v}."], "number": ["The number of {k} is {v}.", "{k} has the number {v}."],
            "word": ["The password of {k} is {v}.", "The password of {k} is {v}."]}[kind]
    f = r.choice(form)
    lines = [f.format(k=k, K=cap(k), v=v) for k, v in zip(keys, vals)]
    lines += [filler(r) for _ in range(max(0, budget - n))]
    r.shuffle(lines)
    forms = {"code": (["What is the code of {k}?", "Tell me the code of {k}.", "Which code does {k} have?"], "The code of {k} is {v}."),
             "owner": (["Who owns {k}?", "Who is the owner of {k}?", "Tell me the owner of {k}."], "The owner of {k} is {v}."),
             "place": (["Where is {k}?", "In what is {k}?", "Tell me where {k} is."], "{K} is in the {v}."),
             "number": (["What is the number of {k}?", "Which number does {k} have?", "Tell me the number of {k}."], "The number of {k} is {v}."),
             "word": (["What is the password of {k}?", "Tell me the password of {k}.", "Which password does {k} have?"], "The password of {k} is {v}.")}[kind]
    text = " ".join(lines)

    def question():
        i = r.randrange(n)
        k, v = keys[i], vals[i]
        q, a = r.choice(forms[0]).format(k=k), cap(forms[1].format(k=k, K=cap(k), v=v))
        if r.random() < 0.05 and not test and kind in ("code", "owner"):
            # asked for what the text does not say
            k2 = f"the {r.choice(ADJS)} {r.choice(NOUNS)}"
            if k2 not in keys:
                return q.replace(k, k2), UNKNOWN, UNKNOWN
        return q, a, v

    q, ans, v = question()
    lead = pick(r, ["Read this text. ", "Here is a text: ", "", "Remember this: "], ["Please read this text. ", ""], test)
    think = f"The text says: {ans}" if r.random() < 0.05 else None
    place = r.random()
    if not test and r.random() < 0.75 or place < 0.25:
        # the text first, then questions one by one: in training many, each of them teaches
        pre = [{"role": "user", "content": lead + text}, {"role": "assistant", "content": "I have read the text."}]
        if place > 0.4:
            q0, a0, _ = question()
            pre = [{"role": "user", "content": lead + text + "\n\n" + q0}, {"role": "assistant", "content": a0}]
        for _ in range(0 if test else r.randint(1, max(2, min(10, tokens // 25))) if tokens < 350 else r.randint(4, 14)):
            q0, a0, _ = question()
            pre += [{"role": "user", "content": q0}, {"role": "assistant", "content": a0}]
        return sample("recall", q, ans, think, pre=pre, key=v)
    if place < 0.45:
        return sample("recall", q + r.choice(["\n\n", " "]) + text, ans, think, key=v)
    return sample("recall", lead + text + r.choice(["\n\n", " ", "\n"]) + q, ans, think, key=v)


# ---------------------------------------------------------------- several turns
def multiturn(r, test):
    N = lambda: (pick(r, NAMES, NAMES_TEST, test) if r.random() < 0.75 else cap(pseudo(r, test))) if test else called(r, test)
    items = {
        "name": (["My name is {v}.", "I am {v}.", "Hello, my name is {v}.", "Hi, I'm {v}.", "You can call me {v}.", "Call me {v}.", "Good morning, I am {v}.", "They call me {v}.", "Hey, it is {v} here.", "Everyone calls me {v}.", "Good evening, I am called {v}."], ["Hello! People call me {v}.", "Good day, my name is {v}."], N,
                 "Nice to meet you, {v}.", ["What is my name?", "Do you remember my name?", "Who am I?", "Tell me my name.", "What was my name?", "Say my name.", "I forgot my name. What is it?", "What am I called?", "Do you know my name?", "Could you say my name?", "Which name did I tell you?", "So what is my name?", "I want to hear my name."], ["Can you tell me my name?"], "Your name is {v}."),
        "colour": (["My favourite colour is {v}.", "I like the colour {v} most.", "The colour I love is {v}.", "You should know that my favourite colour is {v}.", "The best colour is {v} for me.", "For me no colour is better than {v}.", "And my favourite colour is {v}."], ["By the way, my favourite colour is {v}."], lambda: r.choice(COLOURS),
                   "I see, your favourite colour is {v}.", ["What is my favourite colour?", "Which colour do I like?", "Tell me my favourite colour.", "What colour do I like most?", "Do you know my favourite colour?", "Say my favourite colour.", "Do you remember which colour I like?", "Which of the colours do I love?", "So what is my favourite colour?", "Could you tell me my favourite colour?", "I want to hear my favourite colour."], ["Do you remember my favourite colour?"], "Your favourite colour is {v}."),
        "food": (["My favourite food is {v}.", "I like to eat {v}.", "I love {v}.", "You should know that my favourite food is {v}.", "For me the best food is {v}.", "And my favourite food is {v}.", "I eat {v} every day, I love it."], ["By the way, my favourite food is {v}."], lambda: r.choice(FOODS),
                 "I see, your favourite food is {v}.", ["What is my favourite food?", "What do I like to eat?", "Tell me my favourite food.", "What food do I like most?", "Do you know my favourite food?", "Say my favourite food.", "Do you remember what I like to eat?", "Which food is my favourite?", "So what is my favourite food?", "Could you tell me my favourite food?", "I want to hear my favourite food."], ["Do you remember my favourite food?"], "Your favourite food is {v}."),
        "city": (["I live in {v}.", "My home is in {v}.", "I am from {v}.", "I come from the city {v}, it is my home.", "My home town is {v}.", "My city is {v}.", "I live in the city of {v}.", "You should know that I live in {v}.", "And I live in {v}."], ["My city is {v}, I live in {v}."], lambda: (pick(r, CITIES, CITIES_TEST, test) if r.random() < 0.75 else cap(pseudo(r, test))) if test else place(r, test),
                 "I see, you live in {v}.", ["Where do I live?", "In which city do I live?", "Where is my home?", "Do you know where I live?", "Which city is my home?", "What city am I from?", "Tell me my city.", "Say where I live.", "Tell me where my home is.", "So where do I live?", "Do you remember where I live?", "Could you say where I live?"], ["Can you tell me where I live?"], "You live in {v}."),
        "age": (["I am {v} years old.", "My age is {v}.", "I just turned {v} years old.", "I am {v} years of age.", "You should know that I am {v} years old.", "My age is now {v}."], ["I am now {v} years old."], lambda: str(r.randint(5, 99)), "I see, you are {v} years old.", ["How old am I?", "What is my age?", "Do you know my age?", "Tell me my age.", "Say how old I am.", "Do you remember how old I am?", "How many years old am I?", "So how old am I?", "Could you say how old I am?", "Say my age."], ["Tell me how old I am."], "You are {v} years old."),
        "job": (["I work as a {v}.", "I am a {v}.", "My job is {v}.", "For my living I work as a {v}.", "You should know that I work as a {v}.", "I have worked as a {v} for years."], ["I am working as a {v}."], lambda: r.choice(JOBS), "I see, you work as a {v}.", ["What is my job?", "What do I do for work?", "What is my work?", "Do you know my job?", "What work do I do?", "Say my job.", "Do you remember my job?", "Tell me what my job is.", "So what is my job?", "Could you tell me my job?", "Which job do I have?"], ["Tell me my job."], "You work as a {v}."),
        "pet": (["My {animal} is called {v}.", "I have a {animal} named {v}.", "My {animal} has the name {v}.", "I call my {animal} {v}.", "At home I have a {animal} called {v}.", "My {animal} is named {v}."], ["The name of my {animal} is {v}."], N, "I see, your {animal} is called {v}.", ["What is my {animal} called?", "What is the name of my {animal}?", "Do you know the name of my {animal}?", "How is my {animal} called?", "Say the name of my {animal}.", "Tell me what my {animal} is called.", "Do you remember the name of my {animal}?", "So what is my {animal} called?", "Could you say the name of my {animal}?", "Which name does my {animal} have?"], ["Tell me the name of my {animal}."], "Your {animal} is called {v}."),
        "number": (["My lucky number is {v}.", "My number is {v}.", "You should know that my lucky number is {v}.", "The number {v} brings me luck.", "And my lucky number is {v}."], ["By the way, my lucky number is {v}."], lambda: str(r.randint(1, 999)), "I see, your lucky number is {v}.", ["What is my lucky number?", "What is my number?", "Tell me my lucky number.", "Do you know my lucky number?", "Which number is my lucky number?", "Say my lucky number.", "So what is my lucky number?", "Could you tell me my lucky number?", "Do you still know my lucky number?"], ["Do you remember my lucky number?"], "Your lucky number is {v}."),
    }
    topics = r.sample(sorted(items), r.randint(1, 4))
    animal = r.choice(ANIMALS)
    known, msgs = {}, []
    fmt = lambda s, v: s.format(v=v, animal=animal)

    def turn(u, a):
        msgs.append({"role": "user", "content": u})
        msgs.append({"role": "assistant", "content": a})

    for t in topics:
        st = items[t]
        v = st[2]()
        known[t] = v
        turn(fmt(pick(r, st[0], st[1], test), v), fmt(st[3], v))
        while r.random() < (0.3 if test else 0.2):
            q, a, _, _ = fact_question(r, test) if r.random() < 0.6 else (None, None, None, None)
            if q is None:
                x = r.choice([arithmetic, spell, chat])(r, test)
                q, a = x["messages"][-2]["content"], x["messages"][-1]["content"]
            turn(q, a)
    if r.random() < 0.25:
        t = r.choice(topics)
        if t in ("name", "colour", "food", "city", "number", "age"):
            v = items[t][2]()
            known[t] = v
            what = {"name": "my name is {v}", "colour": "my favourite colour is {v}", "food": "my favourite food is {v}", "city": "I live in {v}", "number": "my lucky number is {v}", "age": "I am {v} years old"}[t]
            turn(pick(r, ["Actually, ", "No wait, ", "Sorry, ", "I was wrong, ", "Wait, ", "Oh, ", "No no, ", "Let me correct that, "], ["Oh no, "], test) + fmt(what, v) + ".", fmt(items[t][3], v))
    if not test and r.random() < 0.7:
        # in training every topic is asked for on the way
        for t in r.sample(topics, r.randint(1, len(topics))):
            turn(fmt(pick(r, items[t][4], items[t][5], test), ""), fmt(items[t][6], known[t]))
        if r.random() < 0.4:
            t = r.choice(sorted(set(items) - set(topics) - {"pet"}))
            turn(fmt(pick(r, items[t][4], items[t][5], test), ""), UNKNOWN)
    if r.random() < (0.12 if test else 0.25):
        t = r.choice(sorted(set(items) - set(topics) - {"pet"}))
        return sample("multi_turn", fmt(pick(r, items[t][4], items[t][5], test), ""), UNKNOWN, pre=msgs)
    t = r.choice(topics)
    st, v = items[t], known[t]
    ans = fmt(st[6], v)
    think = f"The user told me this. {ans}" if r.random() < 0.12 else None
    return sample("multi_turn", fmt(pick(r, st[4], st[5], test), v), ans, think, pre=msgs, key=v)


# ---------------------------------------------------------------- tools
def tool(name, desc, **props):
    return {"type": "function", "function": {"name": name, "description": desc, "parameters": {
        "type": "object", "properties": {k: {"type": "string", "description": d} for k, d in props.items()}, "required": list(props)}}}


def toolbox(r):
    v = [tool("get_weather", r.choice(["Get the weather of a city.", "Current weather in a city.", "Tells the weather."]), city=r.choice(["The city", "Name of the city"])),
         tool("calculator", r.choice(["Compute an expression.", "Calculates with numbers."]), expression=r.choice(["The expression", "What to compute"])),
         tool("search", r.choice(["Search for a text.", "Look up a topic."]), query=r.choice(["What to search", "The topic"]))]
    r.shuffle(v)
    return v


def call(name, **args):
    return {"type": "function", "function": {"name": name, "arguments": args}}


def tools(r, test, chain=None):
    box = chain or toolbox(r)
    kind = r.choice(["weather", "weather", "weather2", "calc", "calc", "search", "search", "none", "plain"])
    need = {"weather": "get_weather", "weather2": "get_weather", "calc": "calculator", "search": "search"}.get(kind)
    if chain and kind in ("none", "plain"):
        kind, need = "calc", "calculator"
    if need and not chain and r.random() < 0.4:
        keep = [t for t in box if t["function"]["name"] == need]
        box = sorted(keep + r.sample([t for t in box if t not in keep], r.randint(0, 1)), key=lambda t: r.random())
    system = r.choice(SYSTEM_TEST if test else SYSTEM) if r.random() < 0.3 and not chain else None
    m = [{"role": "system", "content": system}] if system else []
    think = None
    c = lambda: (pick(r, CITIES, CITIES_TEST, test) if r.random() < 0.7 else cap(pseudo(r, test))) if test else place(r, test)
    W = lambda: ({"temperature": r.randint(-15, 38), "condition": r.choice(["sunny", "cloudy", "rain", "snow", "windy", "fog"])})
    say = lambda city, w: f"In {city} it is {w['temperature']} degrees and {w['condition']}."
    from render import dumps
    if kind == "weather":
        city, w = c(), W()
        q = pick(r, ["What is the weather in {c}?", "How is the weather in {c}?", "Tell me the weather in {c}.", "What's the weather like in {c} today?", "What is the weather like in {c}?", "Can you tell me the weather in {c}?", "I need the weather in {c}.", "How warm is it in {c} now?", "How is the weather in {c} now?", "What is the weather in {c} today?", "Weather in {c} right now?", "How is {c} this morning, warm or cold?", "What is the weather in {c} at the moment?", "Tell me the weather of {c} for today.", "What is it like in {c} now, sun or rain?", "Is it warm in {c}?", "weather {c}", "Does it rain in {c}?", "I want to know the weather in {c}.", "Would you tell me the weather in {c}?", "Could you look at the weather in {c}?", "Is it cold in {c} now?", "Do I need a coat in {c}?", "What weather does {c} have now?", "Say how the weather in {c} is."],
                 ["Could you tell me the weather in {c}?", "What is the weather like in {c} now?"], test).format(c=city)
        calls, results, ans, th = [call("get_weather", city=city)], [dumps(w)], say(city, w), f"I need the weather of {city}, so I call get_weather."
    elif kind == "weather2":
        a, b = c(), c()
        wa, wb = W(), W()
        q = pick(r, ["What is the weather in {a} and in {b}?", "Compare the weather in {a} and {b}.", "How is the weather in {a} and {b}?", "Tell me the weather in {a} and also in {b}.", "I need the weather in {a} and {b}.", "Weather in {a} and {b}?", "Is it warmer in {a} or in {b}?", "Could you tell me the weather of {a} and {b}?"], ["Please tell me the weather in {a} and {b}."], test).format(a=a, b=b)
        calls, results, ans, th = [call("get_weather", city=a), call("get_weather", city=b)], [dumps(wa), dumps(wb)], say(a, wa) + " " + say(b, wb), f"I need the weather of {a} and {b}."
    elif kind == "calc":
        a, b, op = r.randint(100, 9999), r.randint(10, 9999), r.choice("+-*")
        while held("calc", a, b) != test:
            a = r.randint(100, 9999)
        v = {"+": a + b, "-": a - b, "*": a * b}[op]
        q = r.choice(AT[op][:2] if test else [x for x in AQ[op] if "apples" not in x]).format(a=a, b=b)
        calls, results, ans, th = [call("calculator", expression=f"{a} {op} {b}")], [str(v)], f"{a} {op} {b} = {v}.", "The numbers are large, so I call calculator."
    elif kind == "search":
        quote = r.choice(["{}", "{}", '"{}"'])
        x = r.choice([f"{r.choice(ADJS)} {word(r, test)}", cap(pseudo(r, test)), pick(r, NAMES, NAMES_TEST, test)])
        if not test and r.random() < 0.5:
            x = r.choice([coined, proper, lambda r: f"{coined(r)} {r.choice(NOUNS)}", lambda r: f"{r.choice(ADJS)} {coined(r)}", lambda r: f"{r.choice(NOUNS)} {r.randint(1, 999)}"])(r)
        q = pick(r, ["Search for {x}.", "Look up {x}.", "Find information about {x}.", "Search {x}", "What can you find about {x}?", "Please look up {x}.", "Could you search for {x}?", "I need a search for {x}.", "Do a search for {x}.", "Try to find {x}.", "I want to find out about {x}.", "Would you look up {x}?"], ["Please search for {x}.", "Can you look up {x}?"], test).format(x=quote.format(x))
        res = r.choice([f"{cap(x)} is a {r.choice(NOUNS)} in {r.choice(CITIES)}.", f"{cap(x)} has {r.randint(2, 99)} {r.choice(NOUNS)} parts.", f"{cap(x)} is near the {r.choice(ADJS)} {r.choice(NOUNS)}.", "nothing found"])
        calls, results, ans, th = [call("search", query=x)], [res], ("I found nothing about " + x + "." if res == "nothing found" else res), f"I search for {x}."
    elif kind == "none":
        # the tool for it is not there
        box = [t for t in box if t["function"]["name"] != "get_weather"]
        m += [{"role": "user", "content": r.choice(["What is the weather in {c}?", "How is the weather in {c}?", "Tell me the weather in {c}."]).format(c=c())}, {"role": "assistant", "content": UNKNOWN}]
        return {"task": "tools_plain", "messages": m, "tools": box, "think": False, "key": UNKNOWN}
    else:
        q, a, b, _ = fact_question(r, test)
        if r.random() < 0.3:
            x = chat(r, test)
            q, a = x["messages"][-2]["content"], x["messages"][-1]["content"]
        m += [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
        return {"task": "tools_plain", "messages": m, "tools": box, "think": False, "key": a}
    m.append({"role": "user", "content": q})
    a1 = {"role": "assistant", "content": "", "tool_calls": calls}
    a2 = {"role": "assistant", "content": ans}
    use = r.random() < 0.6 or bool(chain)
    if len(box) == 3 and not chain and not test:
        # earlier rounds with the same tools: the tool list is long, so let it serve more than one call
        for _ in range(r.choice([0, 0, 1, 2, 3, 4])):
            at = len(m) - 1
            m[at:at] = tools(r, False, box)["messages"]
    if r.random() < 0.15 and not chain:
        think = True
        a1["reasoning_content"] = th
        if use:
            a2["reasoning_content"] = "Now I can answer."
    m.append(a1)
    if use:
        m += [{"role": "tool", "content": x} for x in results] + [a2]
    return {"task": "tool_answer" if use else "tool_call", "messages": m, "tools": box, "think": bool(think), "key": ans if use else calls}


# ---------------------------------------------------------------- echo
def echo(r, test):
    """One thing said back alone. A word at the start of an answer or of a parameter is another token than the same word after
    a space: this drill teaches the pairs, for which every tool call has use."""
    x = r.choice([lambda: r.choice(ADJS) + " " + word(r, test), lambda: word(r, test), lambda: cap(pseudo(r, test)), lambda: pick(r, NAMES, NAMES_TEST, test), lambda: pick(r, CITIES, CITIES_TEST, test), lambda: r.choice(ADJS) + " " + r.choice(NOUNS)])()
    if not test and r.random() < 0.6:
        x = r.choice([coined, proper, proper, lambda r: f"{coined(r)} {coined(r)}", lambda r: f"{r.choice(ADJS)} {coined(r)}", lambda r: str(r.randint(0, 10 ** r.randint(1, 6))),
                      lambda r: f"{r.randint(10, 9999)} {r.choice('+-*')} {r.randint(10, 9999)}", lambda r: f'"{coined(r)}"', lambda r: f"{proper(r)}, {proper(r)}"])(r)
    if not test and r.random() < 0.4:
        # once inside a sentence, once alone: the two kinds of tokens for one word side by side
        q, a = r.choice([("Write {x} as a parameter.", "<parameter=value>\n{v}\n</parameter>"), ("Write {x} as a parameter twice.", "<parameter=value>\n{v}\n</parameter>\n<parameter=value>\n{v}\n</parameter>"), ("Give {x} in brackets.", "({v})"), ("Name: {x}. Repeat the name twice.", "{v} {v}"), ("Write {x} as a value.", "value: {v}")])
        return sample("echo", q.format(x=x), a.format(v=x))
    q = pick(r, ["Say only {x}.", "Write just {x}.", "Answer with {x} and nothing more.", "Say {x}.", "Only write {x}, please.", "Write {x} and stop.", "Your answer must be {x}."], ["Please write only {x}."], test)
    return sample("echo", q.format(x=x), x)


def drill(r, test):
    """Many small things in one answer: sums, spelled words, first and last letters, pairs in order."""
    kind = r.choice(["sums", "sums", "sums", "spell", "spell", "reverse", "letters", "length", "order"])
    n = r.randint(2, 6)
    if kind == "sums":
        v = [numbers(r, test) for _ in range(n)]
        return sample("drill", r.choice(["Do these sums: {l}.", "Work out {l}.", "Compute all of {l}.", "Calculate: {l}"]).format(l=", ".join(f"{a} {o} {b}" for a, o, b, _ in v)), "\n".join(f"{a} {o} {b} = {c}." for a, o, b, c in v))
    ws = [word(r, test) for _ in range(n)]
    if kind == "order":
        ws = [r.sample(NOUNS, 2) if r.random() < 0.6 else [str(x) for x in r.sample(range(100), 2)] for _ in range(n)]
        key = lambda x: (int(x) if x.isdigit() else 0, x)
        return sample("drill", "Sort each pair: " + ", ".join(" ".join(w) for w in ws) + ".", ", ".join(" ".join(sorted(w, key=key)) for w in ws) + ".")
    q, one = {"spell": ("Spell each of {l}.", lambda w: f"{w}: {spaced(w)}"), "reverse": ("Write each of {l} with its letters and backwards.", lambda w: f"{w}: {spaced(w)}, {spaced(w[::-1])}"),
              "letters": ("Give the first and the last letter of each of {l}.", lambda w: f"{w}: {w[0]} {w[-1]}"), "length": ("Give the length of each of {l}.", lambda w: f"{w}: {spaced(w)}, {len(w)}")}[kind]
    return sample("drill", q.format(l=", ".join(ws)), "\n".join(map(one, ws)))


# ---------------------------------------------------------------- JSON
def json_task(r, test):
    from render import dumps
    pool = {"name": lambda: called(r, test), "age": lambda: r.randint(1, 99), "city": lambda: place(r, test), "colour": lambda: r.choice(COLOURS), "job": lambda: r.choice(JOBS),
            "animal": lambda: r.choice(ANIMALS), "count": lambda: r.randint(0, 500), "price": lambda: r.randint(1, 900), "open": lambda: r.random() < 0.5, "food": lambda: r.choice(FOODS), "id": lambda: r.randint(1000, 9999),
            "title": lambda: f"{r.choice(ADJS)} {r.choice(NOUNS)}", "active": lambda: r.random() < 0.5, "word": lambda: word(r, test)}
    ks = r.sample(sorted(pool), r.randint(1, 4))
    obj = {k: pool[k]() for k in ks}
    if r.random() < 0.2:
        obj[r.choice(["items", "tags", "words"])] = [r.choice(NOUNS) for _ in range(r.randint(1, 3))]
    show = lambda v: ("true" if v is True else "false" if v is False else " ".join(f'"{x}"' for x in v) if isinstance(v, list) else f'"{v}"' if isinstance(v, str) else str(v))
    parts = [f"{k} {show(v)}" for k, v in obj.items()]
    listing = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    q = pick(r, ["Give me a JSON object with {l}.", "Write JSON: {l}.", "Make a JSON object with {l}.", "Write a JSON object with the fields {l}.", "JSON with {l}", "Turn this into JSON: {l}.", "Output only JSON: {l}."],
             ["Please write a JSON object with {l}.", "I need a JSON object with {l}."], test).format(l=listing)
    return sample("json", q, dumps(obj), "The user wants a JSON object." if r.random() < 0.06 else None)


# ---------------------------------------------------------------- talk
TALK = [(["Hello", "Hi", "Hello!", "Hi there", "Hey", "Hello there", "hello", "hi", "Good day"], "Hello! How can I help you?"), (["Good morning", "Good morning!"], "Good morning! How can I help you?"),
        (["Good evening", "Good evening!"], "Good evening! How can I help you?"),
        (["Who are you?", "What are you?", "What is your name?", "Tell me who you are.", "who are you", "Introduce yourself.", "What is weft-tiny?", "Say who you are.", "Tell me about yourself.", "Who am I talking to?", "Are you a person?", "Are you an AI?"], "I am weft-tiny, a small language model."),
        (["What can you do?", "How can you help me?", "What do you know?", "help", "What can I ask you?", "What can you do for me?", "What are you good at?", "Tell me what you can do.", "What are your skills?"], "I can answer simple questions, do small sums, work with words, and call tools."),
        (["Thank you", "Thanks", "Thank you!", "thanks a lot", "Thanks!", "Okay, thanks.", "Thank you very much.", "Many thanks!", "ok thank you"], "You are welcome."), (["Bye", "Goodbye", "See you later", "Goodbye!", "bye"], "Goodbye!"),
        (["How are you?", "How are you today?", "How do you do?"], "I am fine, thank you."), (["Who made you?", "Where do you come from?", "Who built you?", "Who trained you?"], "I was trained for weft, from its own generated text."),
        (["Tell me a story.", "Tell me a short story.", "Write a story."], "Once a small fox lived near a river. Every day it watched the water. One day it found a friend, and they were happy."),
        (["Tell me a joke.", "Make me laugh."], "Why did the clock go to school? It wanted to learn the time."), (["Write a poem.", "Tell me a poem."], "The sun is warm, the sky is blue, the river sings, and so can you.")]
TALK_T = [(["Hi!", "Hey there", "Hello weft"], "Hello! How can I help you?"), (["Please introduce yourself.", "Tell me what you are.", "So who are you?"], "I am weft-tiny, a small language model."), (["Many thanks", "Okay, thank you."], "You are welcome."),
          (["Goodbye then"], "Goodbye!"), (["What are you able to do?"], "I can answer simple questions, do small sums, work with words, and call tools.")]


def chat(r, test):
    q, a = r.choice(TALK_T if test else TALK)
    return sample("chat", r.choice(q), a)


def noise(r, test):
    """Accents, other scripts and signs, so that every byte is seen: copied word for word."""
    bits = ["café", "naïve", "Zürich", "São Paulo", "Łódź", "niño", "straße", "Ελλάδα", "Привет", "你好", "世界", "日本", "東京", "안녕", "مرحبا", "שלום", "😀", "🎉", "👍", "❤", "→", "€", "½", "x²", "ça va", "Ærø", "œuvre", "İstanbul"]
    s = " ".join(r.choice(bits) if r.random() < 0.6 else "".join(chr(r.choice([r.randint(0x21, 0x7E), r.randint(0xC0, 0x17F), r.randint(0x391, 0x3A9), r.randint(0x410, 0x44F)])) for _ in range(r.randint(1, 4))) for _ in range(r.randint(2, 5)))
    import unicodedata
    s = unicodedata.normalize("NFC", s)
    return sample("repeating", r.choice(["Repeat after me: {s}", "Copy this text: {s}"]).format(s=s), "Okay: " + s)


TASKS = {"facts": facts, "unknown": unknown, "arithmetic": arithmetic, "spell": spell, "lists": lists, "recall": recall, "multiturn": multiturn,
         "tools": tools, "json": json_task, "echo": echo, "drill": drill, "chat": chat, "noise": noise}
# Weights count samples, and samples differ in length by ten: facts are 35 tokens each, tools 350.
MIX = {"drill": 14, "facts": 50, "unknown": 8, "arithmetic": 28, "spell": 20, "lists": 22, "recall": 12, "multiturn": 15, "tools": 13, "json": 8, "echo": 18, "chat": 7, "noise": 0.3}

VERBS = set("Name Tell Give Spell Reverse Write Count Sort Put Order Repeat Say Copy Add Compute Subtract Multiply Calculate Look Search Find Make Turn List Read Show Solve Compare".split())
LEAD = ["Hello! ", "Hi, ", "Question: ", "I want to know: ", "Quick question: ", "Help me. ", "Now this. ", "Next question. ", "Okay. ", "I have a question. ", "A question for you: ", "Hey. ", "Let's see. "]
TAIL = [" Thanks.", " Thank you.", " I need this.", " Please answer.", " Please."]


def vary(r, q):
    """Small talk around a question, for training: the content must decide, not the first word."""
    if q.split(" ")[0] in VERBS and r.random() < 0.6:
        low = q[0].lower() + q[1:]
        if q.endswith(".") and ":" not in q and "\n" not in q and r.random() < 0.5:
            return r.choice(["Can you ", "Will you ", "Can you please "]) + low[:-1] + "?"
        return r.choice(["Please ", "please ", "Now ", "Then "]) + low
    if q[-1:] in "?." and ":" not in q and r.random() < 0.35:
        return q + r.choice(TAIL)
    return r.choice(LEAD) + q


def held_form(q):
    return any(p and p.fullmatch(q) for p in HELD_FORMS.values())


def make(r, test=False, mix=MIX, task=None, **kw):
    task = task or r.choices(list(mix), list(mix.values()))[0]
    s = TASKS[task](r, test, **kw)
    if s["tools"] is None and s["messages"][0]["role"] != "system" and r.random() < 0.3:
        s["messages"].insert(0, {"role": "system", "content": r.choice(SYSTEM_TEST if test else SYSTEM)})
    last = s["messages"][-1]
    if not test and s["messages"][-2]["role"] == "user" and r.random() < 0.3:
        q = vary(r, s["messages"][-2]["content"])
        if not held_form(q):
            s["messages"][-2]["content"] = q
    if not test and not s["think"] and not last.get("tool_calls") and r.random() < 0.04:
        # thinking asked for where there is little to think about
        last["reasoning_content"] = "I can answer this directly."
        s["think"] = True
    return s


if __name__ == "__main__":
    import sys
    from render import render
    r = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 20):
        s = make(r, len(sys.argv) > 3)
        print("-----", s["task"])
        print("".join(t for t, _ in render(s["messages"], s["tools"])))
