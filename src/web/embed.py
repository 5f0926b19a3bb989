"""Writes the page's files into a C source: embed.py OUT FILE... -- [NAME=LIBRARY...] [icons=DIR]

Files are written plain and compressed; libraries compressed alone, since only browsers ask for them, and they are large.
libraries.js says which libraries there are, and icons.js what icons look like: both are filled in here."""
import gzip
import hashlib
import json
import os
import sys
from xml.etree import ElementTree

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
SLOTS = {"libraries.js": b"const embedded = [];", "icons.js": b"const drawings = {};"}
ICONS = """arrow-clockwise arrow-down check-lg chevron-left chevron-right clipboard download gear list mic paperclip pencil play
plus-lg send stop-fill trash upload x-lg""".split()


def drawing(path):
    """[element, attributes] of each part of an SVG of 16 by 16 units; what has parts in parts is refused."""
    root = ElementTree.parse(path).getroot()
    assert root.get("viewBox") == "0 0 16 16" and not any(len(part) for part in root), path + " is not a flat icon of 16 by 16 units"
    return [[part.tag.split("}")[1], part.attrib] for part in root]


def parts(arguments):
    """(name, type, bytes, whether it is a library) of each file, libraries last."""
    own, libraries = arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:]
    libraries = dict(a.split("=", 1) for a in libraries)
    icons = libraries.pop("icons", None)
    values = {"libraries.js": list(libraries),
              "icons.js": {name: drawing(os.path.join(icons, name + ".svg")) for name in ICONS} if icons else {}}
    for path in own:
        name = os.path.basename(path)
        with open(path, "rb") as f:
            data = f.read()
        if name in SLOTS:
            assert data.count(SLOTS[name]) == 1, name + " has no place for what the build found"
            data = data.replace(SLOTS[name], SLOTS[name][:-3] + json.dumps(values[name]).encode() + b";")
        yield "" if name == "index.html" else name, TYPES[os.path.splitext(name)[1]], data, False
    for name, path in libraries.items():
        with open(path, "rb") as f:
            yield name, TYPES[".js"], f.read(), True


def main(target, arguments):
    files = list(parts(arguments))
    with open(target, "w") as out:
        out.write('#include "web/web.h"\n\n')
        for i, (_, _, data, library) in enumerate(files):
            for form, bytes_of in [("file", data)] * (not library) + [("gzip", gzip.compress(data, 9, mtime=0))]:
                out.write("static const unsigned char %s%d[] = {\n" % (form, i))
                for at in range(0, len(bytes_of), 20):
                    out.write("".join("%d," % b for b in bytes_of[at:at + 20]) + "\n")
                out.write("};\n")
        out.write("\nconst struct web_file web_files[] = {\n")
        for i, (name, kind, data, library) in enumerate(files):
            tag = hashlib.sha256(data).hexdigest()[:16]
            plain = "{ 0 }" if library else "{ file%d, sizeof file%d }" % (i, i)
            out.write('\t{ "%s", "%s", "%s", { %s, { gzip%d, sizeof gzip%d } } },\n' % (name, kind, tag, plain, i, i))
        out.write("\t{ 0 },\n};\n")


main(sys.argv[1], sys.argv[2:])
