"""Writes the page's files into a C source: embed.py OUT FILE..."""
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

with open(sys.argv[1], "w") as out:
    out.write('#include "web/web.h"\n\n')
    for i, path in enumerate(sys.argv[2:]):
        data = open(path, "rb").read()
        out.write("static const unsigned char file%d[] = {\n" % i)
        for at in range(0, len(data), 20):
            out.write("".join("%d," % b for b in data[at:at + 20]) + "\n")
        out.write("};\n")
    out.write("\nconst struct web_file web_files[] = {\n")
    for i, path in enumerate(sys.argv[2:]):
        name = os.path.basename(path)
        out.write('\t{ "/%s", "%s", file%d, sizeof file%d },\n' %
                  ("" if name == "index.html" else name, TYPES[os.path.splitext(name)[1]], i, i))
    out.write("\t{ 0 },\n};\n")
