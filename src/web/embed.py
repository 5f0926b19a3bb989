"""Writes the page's files into a C source, plain and compressed: embed.py OUT FILE... -- [NAME=LIBRARY...]

libraries.js says which libraries there are: its list is filled in here."""
import gzip
import hashlib
import json
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
SLOT = b"const embedded = [];"


def parts(arguments):
    """(name, bytes) of each file, libraries last."""
    own, libraries = arguments[:arguments.index("--")], arguments[arguments.index("--") + 1:]
    libraries = [a.split("=", 1) for a in libraries]
    there = json.dumps([name for name, _ in libraries]).encode()
    for path in own:
        name = os.path.basename(path)
        with open(path, "rb") as f:
            data = f.read()
        if name == "libraries.js":
            assert data.count(SLOT) == 1, "libraries.js has no place for the list of libraries"
            data = data.replace(SLOT, b"const embedded = " + there + b";")
        yield "" if name == "index.html" else name, TYPES[os.path.splitext(name)[1]], data
    for name, path in libraries:
        with open(path, "rb") as f:
            yield name, TYPES[".js"], f.read()


def main(target, arguments):
    files = list(parts(arguments))
    with open(target, "w") as out:
        out.write('#include "web/web.h"\n\n')
        for i, (_, _, data) in enumerate(files):
            for form, bytes_of in (("file", data), ("gzip", gzip.compress(data, 9, mtime=0))):
                out.write("static const unsigned char %s%d[] = {\n" % (form, i))
                for at in range(0, len(bytes_of), 20):
                    out.write("".join("%d," % b for b in bytes_of[at:at + 20]) + "\n")
                out.write("};\n")
        out.write("\nconst struct web_file web_files[] = {\n")
        for i, (name, kind, data) in enumerate(files):
            tag = hashlib.sha256(data).hexdigest()[:16]
            out.write('\t{ "%s", "%s", "%s", { { file%d, sizeof file%d }, { gzip%d, sizeof gzip%d } } },\n' % (name, kind, tag, i, i, i, i))
        out.write("\t{ 0 },\n};\n")


main(sys.argv[1], sys.argv[2:])
