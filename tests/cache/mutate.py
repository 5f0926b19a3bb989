#!/usr/bin/python3
"""Writes a source file with one fault of faults.txt in it.

mutate.py FAULTS ROOT NAME OUTPUT
"""
import sys


def faults(path):
	"""[(title, name, file, [(sign, line)])] in the file's order."""
	out, title = [], None
	for number, line in enumerate(open(path), 1):
		line = line.rstrip("\n")
		if not line or line.startswith("#"):
			continue
		if line.startswith(": "):
			title = line[2:]
		elif line[0] in "+-":
			out[-1][3].append((line[0], line[2:].strip()))
		else:
			name, file = line.split()
			if title is None:
				sys.exit(f"{path}:{number}: {name} has no title")
			out.append((title, name, file, []))
			title = None
	return out


def hunks(edit):
	"""Runs of lines to take out, each with the lines put in their place."""
	out, last = [], "+"
	for sign, line in edit:
		if sign == "-" and last == "+":
			out.append(([], []))
		out[-1][sign == "+"].append(line)
		last = sign
	return out


def mutate(lines, old, new):
	bare = [line.strip() for line in lines]
	at = [i for i in range(len(bare)) if bare[i:i + len(old)] == old]
	if len(at) != 1:
		sys.exit(f"the lines {old} are there {len(at)} times, not once")
	return lines[:at[0]] + new + lines[at[0] + len(old):]


def main():
	path, root, name, output = sys.argv[1:]
	found = [f for f in faults(path) if f[1] == name]
	if len(found) != 1:
		sys.exit(f"{name}: {len(found)} faults of that name")
	lines = open(f"{root}/{found[0][2]}").read().split("\n")
	for old, new in hunks(found[0][3]):
		lines = mutate(lines, old, new)
	with open(output, "w") as f:
		f.write("\n".join(lines))


if __name__ == "__main__":
	main()
