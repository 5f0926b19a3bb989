#!/usr/bin/python3
"""Runs each faulty checkcache; fails when one finds nothing wrong with itself.

checkfaults.py PROGRAM...     the first has no fault and must pass
"""
import os
import re
import signal
import subprocess
import sys

LIVES = ["--lives", "400", "--ops", "300"]
ON_CPU = ["--cpu", "1", "--lives", "31", "--ops", "150"]    # of faults named cpu-...


def how(run):
	"""What the program died of; None: it did not, or not of a check."""
	text = run.stdout + run.stderr
	found = re.search(r"^(FAILED: .*|.*[Aa]ssertion `.*|.*ERROR: AddressSanitizer.*|.*runtime error.*)$", text, re.M)
	if found and run.returncode in (1, -signal.SIGABRT):
		return found.group(1)
	return None


def main():
	env = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=1")
	bad = 0
	for i, program in enumerate(sys.argv[1:]):
		lives = ON_CPU if os.path.basename(program).startswith("cpu-") else LIVES
		run = subprocess.run([program] + lives, capture_output=True, text=True, env=env)
		why = how(run)
		if i == 0 and run.returncode:
			sys.exit(f"without a fault: exit {run.returncode}\n{run.stdout}{run.stderr}")
		if i and not why:
			bad += 1
			print(f"NOT FOUND {os.path.basename(program)}: exit {run.returncode}\n{run.stdout}{run.stderr}")
		elif i:
			print(f"{os.path.basename(program)}: {why}")
	print(f"{len(sys.argv) - 2 - bad} of {len(sys.argv) - 2} faults found")
	sys.exit(bad > 0)


main()
