"""A server of one's own for the programs of this folder, and words for their prompts."""
import ctypes
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

WORDS = ("the of and to in is was for on that by this with are be from or as at it his not have an which you were but "
         "had they all one we can her has there been if more when will would who so no").split()


PR_SET_PDEATHSIG = 1


def dying_with(parent, libc=ctypes.CDLL(None)):
    """For preexec_fn: the process ends when the thread that starts it does, however that ends; parent: os.getpid() there."""
    def ask():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
    return ask


class Serving:
    """`weft serve MODEL OPTIONS` on a free port of this machine, from when it listens to close().

    A server that does not start ends the program; what it says goes to standard error.  It ends with the program, too,
    where that is killed."""

    def __init__(self, weft, model, *options):
        self.folder = tempfile.TemporaryDirectory()
        file = os.path.join(self.folder.name, "port")
        self.process = subprocess.Popen([weft, "serve", model, "--port", "0", "--port-file", file, "--log-level", "warn", *options],
                                        preexec_fn=dying_with(os.getpid()))
        while not (os.path.exists(file) and open(file).read().strip()):
            if self.process.poll() is not None:
                sys.exit("the server ended")
            time.sleep(0.02)
        self.port = int(open(file).read())

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def with_context(model, folder, n):
    """The model; or, if its folder says that it has fewer positions, one in `folder` that says n and is otherwise the same."""
    path = os.path.join(model, "config.json")
    if not os.path.exists(path):
        return model
    with open(path) as f:
        config = json.load(f)
    text = config.get("text_config", config)
    if text.get("max_position_embeddings", n) >= n:
        return model
    print("the model has %d positions: served as if it had %d" % (text["max_position_embeddings"], n))
    text["max_position_embeddings"] = n
    for name in os.listdir(model):
        if name != "config.json":
            os.symlink(os.path.abspath(os.path.join(model, name)), os.path.join(folder, name))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return folder


def request(port, path, body):
    """(connection, response) of a POST to this machine; a refused one ends the program."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=36000)
    c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        sys.exit("%s: %d: %s" % (path, r.status, r.read().decode()))
    return c, r


def post(port, path, body):
    c, r = request(port, path, body)
    got = json.loads(r.read())
    c.close()
    return got


def said(message):
    """What an answer's message says: texts and calls, without their ids."""
    return {k: message.get(k) for k in ("content", "reasoning_content")}, [c["function"] for c in message.get("tool_calls") or []]
