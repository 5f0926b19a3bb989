"""A terminal for a program under test."""
import os
import pty
import re
import select
import signal

PROMPT = r"\n(?:\x1b\[\?2004[lh])*> "    # of `weft run`; the terminal is asked to mark what is pasted
SILENCE = 60    # seconds before a program counts as hanging


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, argv, env):
        self.out, self.seen = "", 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(argv[0], argv, env)

    def until(self, pattern):
        while True:
            m = re.compile(pattern, re.S).search(self.out, self.seen)
            if m:
                self.seen = m.end()
                return m
            # A limit for a program that hangs, so that one sees where.
            if not select.select([self.fd], [], [], SILENCE)[0]:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"silent before {pattern!r}:\n{self.out!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            assert data, f"ended before {pattern!r}:\n{self.out!r}"
            self.out += data.decode(errors="replace")

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        try:
            while os.read(self.fd, 65536):
                pass
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
