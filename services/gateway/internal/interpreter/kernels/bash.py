# The kernel of bash, after serve.py.
class Kernel:
    """A persistent shell that runs each execution as one eval."""

    def __init__(self):
        self.start()

    def start(self):
        if not os.path.exists("/bin/bash"):
            raise Missing("there is no /bin/bash")
        self.r, self.w = os.pipe()  # drops output left over from the previous shell
        self.shell = child(["/bin/bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, pass_fds=[self.w])

    async def run(self, code, count, variables):
        if self.shell.poll() is not None:
            os.close(self.r)
            os.close(self.w)
            self.start()
        for name in variables:
            if not (name.isascii() and name.isidentifier()):
                raise ValueError("no variable of bash can be called %r" % name)
        lines = ["__was_%s=$(declare -p %s 2>/dev/null || echo unset %s); export %s=%s" % (k, k, k, k, quoted(v)) for k, v in variables.items()]
        lines.append("eval %s </dev/null; __status=$?" % quoted(code))
        lines += ['eval "$__was_%s"; unset __was_%s' % (k, k) for k in variables]
        lines.append("echo $__status >&%d; unset __status\n" % self.w)
        self.shell.stdin.write("\n".join(lines).encode())
        self.shell.stdin.flush()
        while not select.select([self.r], [], [], 0.05)[0]:
            if self.shell.poll() is not None:
                raise RuntimeError("the shell ended with code %d" % self.shell.returncode)
        status = int(os.read(self.r, 64))
        if status != 0:
            raise Exit("exit status %d" % status)

    def error(self, e):
        if isinstance(e, KeyboardInterrupt) and self.shell.poll() is None:
            os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.wait()
        return "%s: %s" % (type(e).__name__, e)


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


class Exit(Exception):
    pass
