"""kernel_texts.py OUTPUT MODULES CLANG: writes the kernels of MODULES as C strings, and as PTX where CLANG is a compiler ('': none).

$WEFT_PTX_CACHE: a folder that keeps PTX for other builds of the same kernels by the same compiler (script/test has four)."""
import functools
import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def flat(path, seen):
    """The text of path with its headers in place, each once."""
    if path in seen:
        return ''
    seen.add(path)
    return re.sub(r'^#include "([^"]+)".*\n', lambda m: flat(path.parent / m[1], seen), path.read_text(), flags=re.M)


def literal(text):
    lines = text.replace('\\', '\\\\').replace('"', '\\"').split('\n')
    return '\n'.join(f'\t"{line}\\n"' for line in lines)


@functools.cache
def version(clang):
    return subprocess.run([clang, '--version'], text=True, stdout=subprocess.PIPE, check=True).stdout


def ptx(clang, name, options, source):
    """Flags: docs/gpu.md.  The first line names the module, for the library of the tests that stands in for the driver."""
    flags = ['--target=nvptx64-nvidia-cuda', '-x', 'cl', '-cl-std=CL1.2', '-O3', '-ffp-contract=off',
             '-cl-fp32-correctly-rounded-divide-sqrt', '-Xclang', '-target-feature', '-Xclang', '+ptx70', '-Xclang',
             '-target-cpu', '-Xclang', 'sm_80', '-nogpulib', '-Wno-unused-command-line-argument']
    cache = os.environ.get('WEFT_PTX_CACHE')
    if cache:
        key = hashlib.sha256('\0'.join([Path(__file__).read_text(), version(clang), name, *options, source]).encode()).hexdigest()
        kept = Path(cache) / key
        if kept.exists():
            return kept.read_text()

    def run(*more):
        out = subprocess.run([clang, *flags, *options, *more, '-o', '-', '-'], input=source, text=True, stdout=subprocess.PIPE)
        if out.returncode:
            sys.exit(f'{clang} does not compile the kernels of {name}')
        return out.stdout
    text = run('-S')
    # clang does not pass on how many threads a group has; without it the driver saves registers for groups of 1,024.
    for threads, kernel in re.findall(r'reqd_work_group_size\(([\d *()]+), 1, 1\)\)\) void (\w+)\(', run('-E', '-P')):
        text, n = re.subn(rf'(\.entry {kernel}\([^)]*\)\n)', rf'\g<1>.reqntid {eval(threads)}, 1, 1\n', text)
        assert n == 1, kernel
    text = f'// {name}\n{text}'
    if cache:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f'.{os.getpid()}')
        part.write_text(text)
        part.rename(kept)  # whole, beside another build
    return text


def main():
    output, modules, clang = sys.argv[1:4]

    def entry(line):
        name, file, *options = line.split()
        source = flat(Path(modules).parent / file, set())
        there = literal(ptx(clang, name, options, source)) if clang else '\tNULL'
        return f'{{ "{name}", "{" ".join(options)}",\n{literal(source)},\n{there} }},\n'

    lines = [line for line in Path(modules).read_text().splitlines() if line and not line.startswith('#')]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = list(pool.map(entry, lines))
    Path(output).write_text('#include "backend/device/device.h"\n\nconst struct device_text device_texts[] = {\n'
                            + ''.join(texts) + '{ NULL, NULL, NULL, NULL },\n};\n')


main()
