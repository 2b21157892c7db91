# The kernel of bash, after serve.py.
class Kernel:
    """A persistent shell that runs each execution as one eval."""

    def __init__(self):
        self.start()

    def start(self):
        if not os.path.exists("/bin/bash"):
            raise Missing("there is no /bin/bash")
        self.r, self.w = os.pipe()  # drops output left over from the previous shell
        self.input, self.input_w = os.pipe()
        self.shell = child(["/bin/bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, pass_fds=[self.w, self.input])

    async def run(self, code, count, variables):
        if self.shell.poll() is not None:
            for fd in (self.r, self.w, self.input, self.input_w):
                os.close(fd)
            self.start()
        for name in variables:
            if not (name.isascii() and name.isidentifier()):
                raise ValueError("no variable of bash can be called %r" % name)
        lines = ["__was_%s=$(declare -p %s 2>/dev/null || echo unset %s); export %s=%s" % (k, k, k, k, quoted(v)) for k, v in variables.items()]
        if given.conn is None:
            lines.append("eval %s </dev/null; __status=$?" % quoted(code))
        else:
            lines += [READ % (self.input, self.w), "eval %s <&%d; __status=$?; unset -f read" % (quoted(code), self.input)]
        lines += ['eval "$__was_%s"; unset __was_%s' % (k, k) for k in variables]
        lines.append("echo $__status >&%d; unset __status\n" % self.w)
        self.shell.stdin.write("\n".join(lines).encode())
        self.shell.stdin.flush()
        status = self.answer()
        while self.input in select.select([self.input], [], [], 0)[0]:  # the code did not read all
            os.read(self.input, 1 << 16)
        if status != 0:
            raise Exit("exit status %d" % status)

    def answer(self):
        """The exit status of the code. Meanwhile it may read input."""
        held = b""
        while True:
            self.check()
            if b"\n" not in held:
                if select.select([self.r], [], [], 0.05)[0]:
                    held += os.read(self.r, 64)
                elif self.shell.poll() is not None:
                    raise ended(self.shell.returncode)
                continue
            what, _, held = held.partition(b"\n")
            if not what.startswith(b"read"):
                return int(what)
            text = given.line(what.endswith(b"-s"), self.check) or "\n"
            self.check()
            os.write(self.input_w, text.encode())

    def check(self):
        if self.interrupted:
            raise KeyboardInterrupt

    def interrupt(self, *_):
        """Handles an interrupt while code runs. An exception could be raised while a shell is
        started, and be lost."""
        self.interrupted = True

    def error(self, e):
        if isinstance(e, KeyboardInterrupt) and self.shell.poll() is None:
            os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.wait()
        return "%s: %s" % (type(e).__name__, e)


# Reports that a shell is about to read the input of its execution, and with option -s a
# password.
READ = """read() { if [[ /proc/self/fd/0 -ef /proc/self/fd/%d ]]; then if [[ " $* " == *" -s "* ]]; then echo read-s; else echo read; fi >&%d; fi; builtin read "$@"; }"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def ended(code):
    """The error of code that ended the shell. For a run, the status of the shell is its exit code."""
    if given.conn is None:
        return RuntimeError("the shell ended with code %d" % code)
    if code < 0:
        return Killed("the shell was killed by signal %d" % -code)
    return Exit("exit status %d" % code)


class Exit(Exception):
    pass


class Killed(Exception):
    name_there = "KernelDied"
