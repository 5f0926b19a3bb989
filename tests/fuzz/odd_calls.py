"""Odd calls by the thousand: parts of every form of tool calls and random bytes, put together at random, through the
target `split`, which reads each whole and in pieces, and cut short.

    odd_calls.py REPLAY_SPLIT [COUNT] [SEED]
"""
import os
import random
import subprocess
import sys
import tempfile

PARTS = """<tool_call> </tool_call> <function=f> </function> <parameter=s> <parameter=i> </parameter> {"name":"f","arguments": {"s":"x","i":1} { } [ ] " ' \\ , :
f(s='x',i=1) <|tool_call> call:f{ <|"|> <tool_call|> <|tool_call_start|> [f(s= <|tool_call_end|> <arg_key>s</arg_key> <arg_value> </arg_value> [TOOL_CALLS]
f[ARGS] [CALL_ID] <｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> <｜tool▁sep｜> <｜tool▁call▁end｜> <｜tool▁calls▁end｜> <｜DSML｜function_calls> <｜DSML｜invoke
name="f"> <｜DSML｜parameter string="true"> </｜DSML｜parameter> <|channel|>commentary to=functions.f <|message|> <|call|> <|tool_calls_section_begin|>
<|tool_call_begin|>functions.f:0 <|tool_call_argument_begin|> <minimax:tool_call> <invoke <seed:tool_call> <function_calls> </function_calls> <think> </think>
<|START_ACTION|> <|END_ACTION|> <|tools_prefix|> <TOOLCALL> <|python_tag|> é true None 1e9 -0""".split() + ["\n", " ", "\x00", "\t"]


def main():
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    r = random.Random(seed)
    with tempfile.TemporaryDirectory() as d:
        for i in range(n):
            text = bytes([r.randrange(256)])    # which forms are spoken
            for _ in range(r.randrange(1, 40)):
                text += r.choice(PARTS).encode() if r.random() < 0.85 else bytes(r.randrange(256) for _ in range(r.randrange(1, 8)))
            with open(os.path.join(d, "%d" % i), "wb") as f:
                f.write(text)
        run = subprocess.run([sys.argv[1], d], stdout=subprocess.PIPE, text=True)
    print("seed %d: %s" % (seed, run.stdout.strip()))
    sys.exit(run.returncode and 1)


main()
