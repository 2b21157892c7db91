# One run of a client that reads its results step by step: code in a context's kernel, or the
# commands of a batch. It prints one JSON object per line, also when a step of a batch ends
# ("step"), when the run waits for input ("input"), and last "end_of_execution" with the exit
# code. Lines of standard input are the input of the run.
# Arguments: the address of the context, its language, and the run as JSON in parts.
# SIGINT interrupts the run, which then ends by itself.
# The modules that few runs need are imported where they are used: they take a third of the start.
import codecs, json, os, selectors, signal, socket, sys, threading, time

address, language, request = sys.argv[1], sys.argv[2], json.loads("".join(sys.argv[3:]))
INTERRUPTED, NOT_RUN = 130, 127
interrupted = threading.Event()


def emit(**line):
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def end(code):
    emit(type="end_of_execution", code=code)
    sys.exit(0)


def fail(name, value, code):
    emit(type="error", name=name, value=value, traceback=name + ": " + value)
    end(code)


def connect():
    path = "\0millrace-context-" + address
    if language in ("javascript", "typescript"):
        import tempfile
        path = os.path.join(tempfile.gettempdir(), ".millrace-context-" + address)
    until = time.monotonic() + 30
    while True:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(path)
            return s
        except OSError as e:
            s.close()
            if time.monotonic() > until:
                fail("KernelUnreachable", "the kernel does not answer: %s" % e, INTERRUPTED)
        time.sleep(0.01)


def code_of(error):
    """The exit code of code that ended with an error."""
    name, value = error.get("name"), str(error.get("value"))
    if name == "Exit":
        return int(value.rpartition(" ")[2])
    return INTERRUPTED if name in ("KeyboardInterrupt", "interrupt", "KernelDied") else 1


def query(kernel):
    ours, theirs = socket.socketpair()
    raw = json.dumps({"code": request["code"], "env_vars": {}}).encode() + b"\n"
    kernel.sendmsg([raw[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, theirs.fileno().to_bytes(4, sys.byteorder))])
    kernel.sendall(raw[1:])
    theirs.close()
    threading.Thread(target=forward, args=(ours,), daemon=True).start()
    code = None
    for raw in kernel.makefile("rb"):
        if raw == b"\n":
            continue
        try:
            line = json.loads(raw)
        except ValueError:
            continue  # the last line of a kernel that died
        if line["type"] == "error":
            code = code_of(line)
            if line["name"] == "Exit":
                continue  # of a shell's command, which has printed its own message
        if line["type"] == "end_of_execution":
            end(INTERRUPTED if interrupted.is_set() and code else code or 0)
        if line["type"] != "number_of_executions":
            sys.stdout.write(raw.decode())
            sys.stdout.flush()
    fail("KernelDied", "the kernel ended before the code did", INTERRUPTED)


def forward(to):
    """Sends the input of the run to the kernel."""
    try:
        while part := os.read(0, 1 << 16):
            to.sendall(part)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the code has ended


class Step:
    """One command of a batch."""

    def __init__(self, command, kernel):
        self.command, self.kernel = command, kernel
        self.text = {s: codecs.getincrementaldecoder("utf-8")("replace") for s in ("stdout", "stderr")}
        self.asked = False

    def run(self):
        import subprocess
        child = subprocess.Popen(["/bin/sh", "-c", self.command], stdin=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ended, w = os.pipe()
        threading.Thread(target=lambda: (child.wait(), os.close(w)), daemon=True).start()
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
                emit(type="input", password=False)
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
            emit(type=stream, text=text)


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
    command = request["options"].get(step)
    if command == "*":
        return next((c for file, c in DEFAULTS[step] if os.path.exists(file)), "")
    return command


def batch(kernel):
    """Runs the steps one after the other, while the kernel runs nothing else."""
    if kernel is not None:
        kernel.sendall(b'{"turn":true}\n')
        if not any(b'"turn"' in raw for raw in kernel.makefile("rb", buffering=0)):
            kernel = None  # the kernel has ended
    failed = False
    for step in ("clean", "build"):
        command = command_of(step)
        code = Step(command, kernel).run() if command and not failed and not interrupted.is_set() else 0
        failed = failed or code != 0
        emit(type="step", name=step, code=code)
    if interrupted.is_set():
        end(INTERRUPTED)
    if failed:
        end(NOT_RUN)
    command = command_of("exec")
    end(Step(command, kernel).run() if command else 0)


def main():
    kernel = None

    def interrupt(*_):
        interrupted.set()
        if kernel is not None and request["mode"] == "query":
            try:
                kernel.shutdown(socket.SHUT_WR)  # the kernel interrupts the code
            except OSError:
                pass  # it has ended

    signal.signal(signal.SIGINT, interrupt)
    emit(type="keepalive")
    if request["mode"] == "batch":
        batch(connect() if language not in ("javascript", "typescript") else None)
    kernel = connect()
    if interrupted.is_set():
        end(INTERRUPTED)
    query(kernel)


main()
