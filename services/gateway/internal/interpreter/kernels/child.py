# The kernel of a language whose own interpreter runs the code, as a persistent child
# (kernel.R, Kernel.java), after serve.py. Both sides send frames: "KIND NAME LENGTH\n"
# and LENGTH bytes. The child receives "env", NAME=VALUE for one execution, and "code",
# which starts it, and "input", a line that it has asked for with "input", or "interrupt" in its place. It sends "form", a form of the next result; "result", "main" or not;
# and at the end "done", or "error" with its forms.

# Commands: the program that must be on PATH, the Debian package that has it, and how it is
# run, from its source and the descriptors that it reads and writes.
COMMANDS = {
    "r": ("R", "r-base-core", lambda source, r, w: ["R", "--no-echo", "--no-save", "--no-restore", "--file=" + source, "--args", r, w]),
    "java": ("jshell", "default-jdk-headless", lambda source, r, w: ["java", "-Xshare:auto", "-XX:+UseSerialGC", "--source", "17", source, r, w]),
}
PATIENCE = 5  # seconds after which code that ignores its interrupt loses its process
BINARY = ("png", "jpeg", "pdf")


class Raised(Exception):
    """An error of the code, as the language reports it."""

    def __init__(self, name, value, traceback):
        super().__init__(value)
        self.name_there, self.trace = name, traceback


class Kernel:
    def __init__(self):
        self.needs, self.package, self.command = COMMANDS[sys.argv[-1]]
        self.running = False
        self.start()

    def start(self):
        if shutil.which(self.needs) is None:
            raise Missing("%s not found: install Debian's %s" % (self.needs, self.package))
        source = os.memfd_create("kernel")
        os.write(source, sys.argv[2].encode())
        r, their_w = os.pipe()
        their_r, w = os.pipe()
        theirs = [source, their_r, their_w]
        argv = self.command("/proc/self/fd/%d" % source, *("/proc/self/fd/%d" % fd for fd in theirs[1:]))
        self.child = child(argv, stdin=subprocess.DEVNULL, pass_fds=theirs, env=dict({"LC_ALL": "C.UTF-8"}, **os.environ))
        for fd in theirs:
            os.close(fd)
        self.r, self.w = os.fdopen(r, "rb"), os.fdopen(w, "wb")
        self.frame()  # the ready frame

    async def run(self, code, count, variables):
        if self.child.poll() is not None:
            self.start()
        self.running, self.patience = True, None
        try:
            for k, v in variables.items():
                self.send("env", "-", k + "=" + v)
            self.send("code", str(count), code)
            self.answers()
        except OSError:
            self.died()
        finally:
            self.running = False
            if self.patience:
                self.patience.cancel()

    def answers(self):
        found = {}
        while True:
            kind, name, data = self.frame()
            if kind == "form":
                found[name] = base64.b64encode(data).decode() if name in BINARY else data.decode("utf-8", "replace")
            elif kind == "result":
                flush()
                if "text" in found:
                    found["text"] = unquoted(found["text"])
                line.emit(type="result", is_main_result=name == "main", **found)
                found = {}
            elif kind == "input":
                try:
                    text = given.line(check=self.check)
                    self.check()
                except KeyboardInterrupt:
                    self.send("interrupt", "-", "")
                else:
                    self.send("input", "-", text.removesuffix("\n"))
            elif kind == "error":
                raise Raised(**found)
            else:
                return

    def check(self):
        if self.patience is not None:  # it was interrupted
            raise KeyboardInterrupt

    def send(self, kind, name, text):
        data = text.encode()
        self.w.write(b"%s %s %d\n" % (kind.encode(), name.encode(), len(data)) + data)
        self.w.flush()

    def frame(self):
        head = self.r.readline().split()
        if len(head) != 3:
            self.died()
        return head[0].decode(), head[1].decode(), self.r.read(int(head[2]))

    def died(self):
        raise RuntimeError("the process of %s ended with code %d" % (self.needs, self.child.wait()))

    def interrupt(self, *_):
        if self.running and self.patience is None:
            self.patience = threading.Timer(PATIENCE, self.child.kill)
            self.patience.start()
            os.killpg(self.child.pid, signal.SIGINT)

    def error(self, e):
        return getattr(e, "trace", "%s: %s" % (type(e).__name__, e))
