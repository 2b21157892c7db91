# A batch, after run.py. The request is its steps: a command, or nothing, for each.
import codecs, json, selectors, subprocess

steps = json.loads(request)


def say(**line):
    emit(json.dumps(line, separators=(",", ":")).encode() + b"\n")


class Step:
    """One command of a batch."""

    def __init__(self, command, kernel):
        self.command, self.kernel = command, kernel
        self.text = {s: codecs.getincrementaldecoder("utf-8")("replace") for s in ("stdout", "stderr")}
        self.asked = False

    def run(self):
        child = subprocess.Popen(["/bin/sh", "-c", self.command], stdin=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ended, w = os.pipe()
        _thread.start_new_thread(lambda: (child.wait(), os.close(w)), ())
        poll = selectors.DefaultSelector()
        for stream in ("stdout", "stderr"):
            poll.register(getattr(child, stream), selectors.EVENT_READ, stream)
        poll.register(ended, selectors.EVENT_READ)
        if self.kernel is not None:
            poll.register(self.kernel, selectors.EVENT_READ)
        over = False
        while not over:
            ready = poll.select(0.1)
            over = any(key.fileobj == ended for key, _ in ready)
            for key, _ in ready:
                self.take(poll, key)
            if not ready and not self.asked and reads_input():
                self.asked = True
                say(type="input", password=False)
        for stream in ("stdout", "stderr"):  # what is left; a child of the command may keep them open
            os.set_blocking(getattr(child, stream).fileno(), False)
            while self.read(getattr(child, stream), stream):
                pass
            self.wrote(stream, self.text[stream].decode(b"", True))
        code = child.returncode
        return 128 - code if code < 0 else code

    def take(self, poll, key):
        if key.data is not None:
            if not self.read(key.fileobj, key.data):
                poll.unregister(key.fileobj)
        elif key.fileobj is self.kernel and not self.kernel.recv(1 << 16):
            poll.unregister(self.kernel)  # it has ended; the command goes on

    def read(self, pipe, stream):
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        self.asked = False
        self.wrote(stream, self.text[stream].decode(data))
        return data != b""

    @staticmethod
    def wrote(stream, text):
        if text:
            say(type=stream, text=text)


def reads_input():
    """Whether a process of the run is blocked in a read of the run's standard input, as far as
    /proc shows that."""
    mine = os.stat(0)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) == os.getpid() or os.getpgid(int(pid)) != os.getpgrp():
                continue
            with open("/proc/%s/syscall" % pid) as f:
                number, fd = (f.read().split() + ["", ""])[:2]
            theirs = os.stat("/proc/%s/fd/%d" % (pid, int(fd, 16)))
            if number == READ and (theirs.st_dev, theirs.st_ino) == (mine.st_dev, mine.st_ino):
                return True
        except (OSError, ValueError):
            continue
    return False


READ = {"x86_64": "0", "aarch64": "63"}.get(os.uname().machine)

# The commands that stand for "*" in a batch: the first one whose file exists.
DEFAULTS = {
    "clean": [],
    "build": [("Makefile", "make"), ("setup.py", "python3 setup.py develop")],
    "exec": [("main", "./main"), ("main.py", "python3 main.py"), ("main.sh", "sh main.sh"), ("main.R", "Rscript main.R"), ("main.js", "node main.js"), ("a.out", "./a.out")],
}


def command_of(step):
    command = steps.get(step)
    if command == "*":
        return next((c for file, c in DEFAULTS[step] if os.path.exists(file)), "")
    return command


def turn(kernel):
    """Waits until the kernel runs nothing else. Returns whether it still runs."""
    got = b""
    while b'"turn"' not in got:
        part = kernel.recv(1 << 16)
        if not part:
            return False
        got += part
    return True


def batch(kernel):
    """Runs the steps one after the other, while the kernel runs nothing else."""
    if kernel is not None:
        kernel.sendall(b'{"turn":true}\n')
        if not turn(kernel):
            kernel = None  # the kernel has ended
    failed = False
    for step in ("clean", "build"):
        command = command_of(step)
        code = Step(command, kernel).run() if command and not failed and not interrupted else 0
        failed = failed or code != 0
        say(type="step", name=step, code=code)
    if interrupted:
        end(INTERRUPTED)
    if failed:
        end(NOT_RUN)
    command = command_of("exec")
    end(Step(command, kernel).run() if command else 0)


def interrupt(*_):
    global interrupted
    interrupted = True


_signal.signal(_signal.SIGINT, interrupt)
kernel = connect() if language not in ("javascript", "typescript") else None
emit(b'{"type":"keepalive"}\n')  # the run has its place in the queue of the kernel
batch(kernel)
