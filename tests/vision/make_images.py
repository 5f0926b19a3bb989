#!/usr/bin/env python3
"""Makes tests/golden/_images: small images of each kind, and beside each the pixels that the Python Imaging Library (9.4)
sees in it, as NAME.rgb (width and height in decimal, a line, then rows of red, green and blue).  Also resample.txt: sizes
and CRCs of its resampling.  By hand, where Pillow is; the tests read what it wrote."""
import struct
import sys
import zlib

from PIL import Image, ImageOps

out = sys.argv[1]


def picture(w, h, mode="RGB"):
    im = Image.new("RGB", (w, h))
    for y in range(h):
        for x in range(w):
            v = (x * 255 // w, y * 255 // h, (x * y * 7) % 256)
            if (x // 5 + y // 4) % 3 == 0:
                v = (255 - v[1], v[0], 40)
            im.putpixel((x, y), v)
    if mode == "RGBA":
        im = im.convert("RGBA")
        im.putalpha(Image.linear_gradient("L").resize((w, h)))
        return im
    return im.convert(mode)


def seen(name, im=None):
    im = ImageOps.exif_transpose(im or Image.open(f"{out}/{name}")).convert("RGB")
    with open(f"{out}/{name}.rgb", "wb") as f:
        f.write(b"%d %d\n" % im.size + im.tobytes())


def save(name, im, **opts):
    im.save(f"{out}/{name}", **opts)
    seen(name)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png16(name, w, h, colour, samples):
    rows = b"".join(b"\0" + b"".join(struct.pack(">H", samples(x, y, c)) for x in range(w) for c in range(colour[1]))
                    for y in range(h))
    with open(f"{out}/{name}", "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 16, colour[0], 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def adam7(name, im):
    w, h = im.size
    rows = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        for y in range(y0, h, dy):
            if x0 < w:
                rows += b"\0" + b"".join(bytes(im.getpixel((x, y))) for x in range(x0, w, dx))
    with open(f"{out}/{name}", "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 1))
                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    seen(name)


def exif(o):
    e = Image.Exif()
    e[0x0112] = o
    return e


W, H = 23, 17
save("rgb.png", picture(W, H))
save("rgba.png", picture(W, H, "RGBA"))
save("gray.png", picture(W, H, "L"))
save("gray_alpha.png", picture(W, H, "LA"))
save("bits1.png", picture(W, H, "1"))
save("palette.png", picture(W, H).quantize(11))
save("palette_clear.png", picture(W, H).quantize(11), transparency=3)
save("turned6.png", picture(W, H), exif=exif(6))
adam7("interlaced.png", picture(W, H))
png16("rgb16.png", W, H, (2, 3), lambda x, y, c: (x * 2771 + y * 3001 * c) % 65536)
seen("rgb16.png")
png16("gray16.png", W, H, (0, 1), lambda x, y, c: (x * 2771 + y * 300) % 65536)
seen("gray16.png", Image.frombytes("L", (W, H), bytes((x * 2771 + y * 300) % 65536 >> 8 for y in range(H) for x in range(W))))
save("plain.jpg", picture(W, H), quality=90, subsampling=0)
save("half.jpg", picture(W, H), quality=85, subsampling=2)
save("progressive.jpg", picture(W, H), quality=85, progressive=True)
save("gray.jpg", picture(W, H, "L"), quality=90)
save("cmyk.jpg", picture(W, H, "CMYK"), quality=90)
for o in range(1, 9):
    save(f"turned{o}.jpg", picture(W, H), quality=90, exif=exif(o))
save("lossy.webp", picture(W, H), quality=80)
save("lossless.webp", picture(W, H), lossless=True)
save("alpha.webp", picture(W, H, "RGBA"), lossless=True, exact=True)
save("turned8.webp", picture(W, H), lossless=True, exif=exif(8))
save("moving.webp", picture(W, H), lossless=True, save_all=True, append_images=[picture(W, H).rotate(180)])
save("plain.gif", picture(W, H).quantize(16), interlace=0)
save("interlaced.gif", picture(W, H).quantize(16), interlace=1)
save("clear.gif", picture(W, H).quantize(16), transparency=2)
save("moving.gif", picture(W, H).quantize(16), save_all=True, append_images=[picture(W, H).rotate(180).quantize(16)])
# A frame smaller than the canvas.
raw = bytearray(open(f"{out}/plain.gif", "rb").read())
raw[6:10] = struct.pack("<HH", W + 5, H + 4)
at = raw.index(b",\0\0\0\0" + struct.pack("<HH", W, H))
raw[at + 1:at + 5] = struct.pack("<HH", 3, 2)
open(f"{out}/part.gif", "wb").write(raw)
seen("part.gif")
for mode in ("RGB", "L", "1", "P", "RGBA"):
    save(f"{mode.lower()}.bmp", picture(W, H).quantize(16) if mode == "P" else picture(W, H, mode))
rows = b"".join(b"".join(struct.pack("<H", (x % 32) << 11 | (y * 3 % 64) << 5 | (x + y) % 32) for x in range(W)) + b"\0\0"
                for y in range(H))
open(f"{out}/masks565.bmp", "wb").write(
    b"BM" + struct.pack("<IHHI", 66 + len(rows), 0, 0, 66) + struct.pack("<IiiHHIIiiII", 40, W, -H, 1, 16, 3, len(rows), 0, 0, 0, 0)
    + struct.pack("<III", 0xf800, 0x7e0, 0x1f) + rows)
seen("masks565.bmp")

with open(f"{out}/resample.txt", "w") as f:
    for name, im in (("rgb.png", picture(W, H)), ("moving.webp", picture(W, H))):
        for size in ((W, H), (40, 40), (7, 5), (W, 5), (1, 1), (61, 3), (224, 16), (2, 300)):
            for kind, how in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)):
                f.write(f"{name} {size[0]} {size[1]} {kind} {zlib.crc32(im.resize(size, how).tobytes()):08x}\n")
