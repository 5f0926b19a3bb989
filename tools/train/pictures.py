"""Generator of the pictures weft-tiny learns to see, and of questions about them: a pure function of the random state.

    /usr/bin/python3 tools/train/pictures.py OUT_DIR [count]      some pictures as PNG, with questions and answers

A scene is one of: one to three different shapes in different places; up to six shapes of one kind; a digit.
Places and sizes are fractions of the picture, so that a scene can be drawn at any size.
"""
import json
import math
import os
import random
import struct
import sys
import zlib

import numpy as np

SHAPES = {"circle": "circles", "square": "squares", "triangle": "triangles", "star": "stars", "ring": "rings", "cross": "crosses"}
COLOURS = {"red": (214, 40, 40), "green": (40, 160, 60), "blue": (40, 80, 210), "yellow": (245, 215, 40), "orange": (245, 140, 20), "purple": (135, 50, 170),
           "black": (20, 20, 20), "white": (250, 250, 250)}
PLACES = {"top left": (.2, .2), "top": (.5, .2), "top right": (.8, .2), "left": (.2, .5), "middle": (.5, .5), "right": (.8, .5), "bottom left": (.2, .8),
          "bottom": (.5, .8), "bottom right": (.8, .8)}
UNKNOWN = "I don't know."


# ---------------------------------------------------------------- drawing
def arc(cx, cy, rx, ry, begin, end, n=9):
    """Points of a part of an ellipse; degrees, 0 to the right, 90 down."""
    return [(cx + rx * math.cos(math.radians(begin + (end - begin) * i / n)), cy + ry * math.sin(math.radians(begin + (end - begin) * i / n))) for i in range(n + 1)]


# strokes of the digits in a box of width 1 and height 1.6, y down
DIGITS = [
    [arc(.5, .8, .5, .8, 0, 360, 16)],
    [[(.15, .35), (.55, 0), (.55, 1.6)]],
    [arc(.5, .48, .48, .48, 190, 395) + [(0, 1.6), (1, 1.6)]],
    [arc(.48, .42, .44, .42, 200, 450), arc(.48, 1.18, .48, .42, 270, 520)],
    [[(.75, 1.6), (.75, 0), (0, 1.1), (1, 1.1)]],
    [[(.92, 0), (.18, 0), (.1, .7)] + arc(.48, 1.1, .5, .5, 225, 500)],
    [arc(.95, .95, .92, .95, 268, 190, 5) + arc(.5, 1.1, .48, .5, 190, 550, 14)],
    [[(0, 0), (1, 0), (.35, 1.6)]],
    [arc(.5, .4, .4, .4, 90, 450, 12), arc(.5, 1.2, .48, .4, 270, 630, 12)],
    [arc(.5, .5, .48, .5, 10, 370, 14) + arc(.05, .65, .92, .95, 350, 448, 5)],
]


def distance(kind, x, y, r, extra):
    """Signed distance to the shape's edge in the units of x and y, negative inside; r: half of its size."""
    if kind == "circle":
        return np.hypot(x, y) - r
    if kind == "ring":
        return np.abs(np.hypot(x, y) - .76 * r) - .22 * r
    if kind == "square":
        return np.maximum(np.abs(x), np.abs(y)) - .86 * r
    if kind == "cross":
        a, b, w = np.abs(x), np.abs(y), .3 * r
        return np.minimum(np.maximum(a - w, b - r), np.maximum(a - r, b - w))
    if kind == "triangle":
        y = y - .22 * r
        k = math.sqrt(3) / 2
        return np.maximum(np.maximum(y, k * x - .5 * y), -k * x - .5 * y) - .6 * r
    if kind == "star":
        k1x, k1y, k2 = math.cos(math.pi / 5), -math.sin(math.pi / 5), -math.cos(math.pi / 5)
        x, y = np.abs(x), -y
        d = 2 * np.maximum(k1x * x + k1y * y, 0)
        x, y = x - d * k1x, y - d * k1y
        d = 2 * np.maximum(k2 * x + k1y * y, 0)
        x, y = np.abs(x - d * k2), y - d * k1y - r
        bax, bay = .5 * -k1y, .5 * k1x - 1
        h = np.clip((x * bax + y * bay) / (bax * bax + bay * bay), 0, r)
        return np.hypot(x - bax * h, y - bay * h) * np.sign(y * bax - x * bay)
    # a digit: the distance to its strokes
    best = None
    for stroke in DIGITS[kind]:
        p = (np.array(stroke, np.float32) - (.5, .8)).astype(np.float32) * (r / .8)
        a, d = p[:-1], p[1:] - p[:-1]
        px, py = x[None] - a[:, 0, None, None], y[None] - a[:, 1, None, None]
        dx, dy = d[:, 0, None, None], d[:, 1, None, None]
        t = np.clip((px * dx + py * dy) / (dx * dx + dy * dy + 1e-9), 0, 1)
        s = np.hypot(px - t * dx, py - t * dy).min(0)
        best = s if best is None else np.minimum(best, s)
    return best - extra * r


def draw(scene, w, h):
    """-> uint8 [h, w, 3], edges smoothed"""
    im = np.empty((h, w, 3), np.float32)
    im[:] = scene["ground"]
    u = min(w, h)
    for it in scene["items"]:
        cx, cy, r = it["x"] * w, it["y"] * h, it["r"] * u
        lo_x, hi_x = max(0, int(cx - 1.3 * r - 2)), min(w, int(cx + 1.3 * r + 3))
        lo_y, hi_y = max(0, int(cy - 1.3 * r - 2)), min(h, int(cy + 1.3 * r + 3))
        x = (np.arange(lo_x, hi_x, dtype=np.float32) + .5 - cx)[None, :]
        y = (np.arange(lo_y, hi_y, dtype=np.float32) + .5 - cy)[:, None]
        c, s = math.cos(it["turn"]), math.sin(it["turn"])
        a = np.clip(.5 - distance(it["kind"], c * x + s * y, c * y - s * x, r, it.get("thick")), 0, 1)[..., None]
        part = im[lo_y:hi_y, lo_x:hi_x]
        part += a * (np.array(it["rgb"], np.float32) - part)
    if scene["noise"]:
        im += np.random.RandomState(scene["seed"]).normal(0, scene["noise"], im.shape)
    return np.clip(np.rint(im), 0, 255).astype(np.uint8)


def png(im):
    h, w, _ = im.shape
    rows = np.concatenate([np.zeros((h, 1), np.uint8), im.reshape(h, 3 * w)], 1).tobytes()
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


# ---------------------------------------------------------------- scenes
def held(shape, colour):
    """Pairs that no training picture shows."""
    return (shape, colour) in {("circle", "purple"), ("square", "yellow"), ("triangle", "blue"), ("star", "red"), ("ring", "orange"), ("cross", "green")}


def ground(r):
    """A background, and the colours that stand out from it."""
    kind = r.random()
    if kind < .7:
        v = r.randint(225, 255)
        return [v + r.randint(-8, 0) for _ in range(3)], [c for c in COLOURS if c != "white"]
    v = r.randint(90, 130) if kind < .85 else r.randint(40, 70)
    return [v + r.randint(-8, 8) for _ in range(3)], [c for c in COLOURS if c != "black"]


def item(r, kind, colour, x, y, size):
    turn = r.uniform(-.25, .25) if kind in ("square", "triangle", "star") else r.uniform(-.12, .12)
    return {"kind": kind, "colour": colour, "rgb": [min(255, max(0, v + r.randint(-18, 18))) for v in COLOURS[colour]], "x": x, "y": y, "r": size, "turn": turn}


def pairs(r, n, colours, test):
    """n pairs of different shapes and colours; held-out pairs in test pictures only."""
    while True:
        p = list(zip(r.sample(sorted(SHAPES), n), r.sample(colours, n)))
        if test or not any(held(*x) for x in p):
            return p


def scene(r, test=False, kind=None, alone=0.25):
    """alone: share of those with one shape among the scenes of different shapes"""
    g, colours = ground(r)
    s = {"kind": kind or r.choices(["shapes", "count", "digit"], [.55, .25, .2])[0], "ground": g, "noise": r.choice([0, 0, r.uniform(0, 6)]), "seed": r.randrange(1 << 30)}
    s["items"] = items = []
    if s["kind"] == "shapes":
        n = 1 if r.random() < alone else r.choice([2, 2, 3])
        for (shape, colour), place in zip(pairs(r, n, colours, test), r.sample(sorted(PLACES), n)):
            size = r.uniform(.12, .24) if n == 1 else r.uniform(.105, .15)
            x, y = PLACES[place]
            items.append(item(r, shape, colour, x + r.uniform(-.04, .04), y + r.uniform(-.04, .04), size))
            items[-1]["place"] = place
    elif s["kind"] == "count":
        (shape, colour), n = pairs(r, 1, colours, test)[0], r.randint(2, 6)
        size, at = r.uniform(.08, .125), []
        while len(at) < n:
            p = (r.uniform(size, 1 - size), r.uniform(size, 1 - size))
            if all(math.hypot(p[0] - q[0], p[1] - q[1]) > 2.3 * size for q in at):
                at.append(p)
        for x, y in at:
            items.append(item(r, shape, colour, x, y, size * r.uniform(.9, 1.05)))
    else:
        it = item(r, r.randrange(10), r.choice(colours), r.uniform(.38, .62), r.uniform(.42, .58), r.uniform(.24, .38))
        it["thick"] = r.uniform(.1, .2)
        items.append(it)
    return s


# ---------------------------------------------------------------- questions
ASK = {
    "colour": ["What colour is the {s}?", "Which colour does the {s} have?", "Tell me the colour of the {s}."],
    "colours": ["What colour are the {s}?", "Which colour do the {s} have?", "Tell me the colour of the {s}."],
    "shape": ["Which shape is {c}?", "What is {c}?", "Tell me what is {c}."],
    "where": ["Where is the {s}?", "Tell me where the {s} is.", "In which place is the {s}?"],
    "at": ["What is in the {p}?", "Which shape is in the {p}?", "What do you see in the {p}?"],
    "count": ["How many {s} are there?", "What is the number of {s}?", "Count the {s}."],
    "digit": ["Which digit is it?", "What digit do you see?", "Which digit is in the picture?"],
    "describe": ["What is in the picture?", "What do you see?", "Describe the picture."],
}
# in the words that weft-tiny has for such facts
SAY = {"colour": "The colour of the {s} is {c}.", "colours": "The colour of the {s} is {c}.", "shape": "The {s} is {c}.", "where": "The {s} is in the {p}.", "at": "The {s} is in the {p}.",
       "count": "The number of {s} is {n}.", "digit": "The digit is {n}."}


def article(text):
    return ("an " if text[0] in "aeiou" else "a ") + text


def questions(r, s):
    """Every question about the scene -> list of (kind, question, answer)."""
    items, out = s["items"], []

    def ask(kind, **kw):
        out.append((kind, r.choice(ASK[kind]).format(**kw), SAY[kind].format(**kw)))

    if s["kind"] == "digit":
        d, c = items[0]["kind"], items[0]["colour"]
        ask("digit", n=d)
        ask("colour", s="digit", c=c)
        seen = f"{article(c)} {d}"
    elif s["kind"] == "count":
        shape, c, n = items[0]["kind"], items[0]["colour"], len(items)
        ask("count", s=SHAPES[shape], n=n)
        ask("colours", s=SHAPES[shape], c=c)
        seen = f"{n} {c} {SHAPES[shape]}"
    else:
        for it in items:
            kw = {"s": it["kind"], "c": it["colour"], "p": it["place"]}
            for kind in ("colour", "shape", "where", "at"):
                ask(kind, **kw)
        if len(items) > 1:
            ask("count", s="shapes", n=len(items))
        out.append(("unknown", r.choice(ASK["colour"]).format(s=r.choice([x for x in sorted(SHAPES) if x not in [it["kind"] for it in items]])), UNKNOWN))
        names = [f"{article(it['colour'])} {it['kind']}" for it in sorted(items, key=lambda it: list(PLACES).index(it["place"]))]
        seen = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
    out.append(("describe", r.choice(ASK["describe"]), f"I see {seen}."))
    return out


def main():
    folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 12
    os.makedirs(folder, exist_ok=True)
    r = random.Random(7)
    for i in range(count):
        s = scene(r, True)
        open(f"{folder}/{i}.png", "wb").write(png(draw(s, *r.choice([(128, 128), (320, 200), (256, 256)]))))
        print(i, json.dumps(questions(r, s)))


if __name__ == "__main__":
    main()
