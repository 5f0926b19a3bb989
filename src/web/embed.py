"""Writes the page's files into a C source: embed.py OUT FILE... -- [NAME=LIBRARY...]

Files are written plain and compressed; libraries compressed alone, since only browsers ask for them, and they are large.
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
    """(name, type, bytes, whether it is a library) of each file, libraries last."""
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
        yield "" if name == "index.html" else name, TYPES[os.path.splitext(name)[1]], data, False
    for name, path in libraries:
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
