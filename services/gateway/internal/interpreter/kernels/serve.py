# The kernel of one context: runs the code that is handed to it, one execution
# after the other, and keeps what it defines. The file that follows this one has the
# language's class Kernel: run(code, count, variables) says what comes of the code and
# raises what it fails with, error(e) is the traceback of that. Arguments: the address of
# the context first, its language last. It prints "ready" when code may be handed to it.
import ast, asyncio, base64, builtins, codecs, contextlib, inspect, json, math, os, select, shutil, signal, socket, subprocess, sys, threading, time, traceback


def encode(line):
    try:
        return json.dumps(line, default=repr, separators=(",", ":"), allow_nan=False)
    except ValueError:  # JSON has no number for what is none
        return json.dumps(finite(line), default=repr, separators=(",", ":"))


def finite(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value


def unquoted(text):
    """The text of a value; of a string without its quotes, as E2B's server tells it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


class Line:
    """Where the lines of the execution of the moment go."""

    def __init__(self):
        self.lock, self.to = threading.Lock(), None

    def say(self, **line):
        with self.lock:
            if self.to is None:
                return
            try:
                self.to.sendall((encode(line) + "\n").encode())
            except OSError:
                pass  # nobody listens: the code goes on to its end or its interrupt

    def wrote(self, stream, text):
        if text:
            self.say(type=stream, text=text, timestamp=time.time_ns())


line = Line()


class Out:
    """sys.stdout or sys.stderr: says what is written within a moment, in as few pieces as
    that allows, as Jupyter's kernels do."""

    encoding, errors, closed, newlines = "utf-8", "strict", False, None

    def __init__(self, stream, fd):
        self.stream, self.fd, self.held, self.lock = stream, fd, "", threading.RLock()
        self.name = "<%s>" % stream
        self.buffer = self.raw = Raw(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        with self.lock:
            self.held += text
            if len(self.held) > 1 << 16 or not moments.wake():
                self.flush()
        return len(text)

    def writelines(self, lines):
        for l in lines:
            self.write(l)

    def flush(self):
        with self.lock:
            whole, self.held = self.held, ""
            line.wrote(self.stream, whole)

    def fileno(self):
        return self.fd

    def isatty(self):
        return False

    def readable(self):
        return False

    def writable(self):
        return True

    def seekable(self):
        return False


class Moments:
    """Flushes what was written a moment ago."""

    def __init__(self):
        self.due, self.pid = threading.Event(), os.getpid()
        threading.Thread(target=self.run, daemon=True).start()

    def wake(self):
        self.due.set()
        return self.pid == os.getpid()  # a fork has no such thread

    def run(self):
        while self.due.wait():
            time.sleep(0.05)
            self.due.clear()
            for out in (sys.stdout, sys.stderr):
                if isinstance(out, Out):
                    out.flush()


class Raw:
    def __init__(self, out):
        self.out = out

    def write(self, data):
        self.out.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def flush(self):
        self.out.flush()


class Drain:
    """What children, and code below Python, write to a descriptor."""

    def __init__(self, stream, fd):
        self.stream, self.text = stream, codecs.getincrementaldecoder("utf-8")("replace")
        self.r, w = os.pipe()
        os.dup2(w, fd)
        os.close(w)
        self.turn = threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while (r := self.r) is not None:
            select.select([r], [], [])
            self.take()

    def take(self, last=False):
        with self.turn:
            while self.r is not None and select.select([self.r], [], [], 0)[0]:
                before = getattr(sys, self.stream)
                if isinstance(before, Out):
                    before.flush()
                data = os.read(self.r, 1 << 16)
                line.wrote(self.stream, self.text.decode(data))
                if not data:  # code has closed the descriptor, and its children have
                    self.r = None
            if last:
                line.wrote(self.stream, self.text.decode(b"", True))


drains = []


def flush(last=False):
    sys.stdout.flush()
    sys.stderr.flush()
    for d in drains:
        d.take(last)


class Missing(Exception):
    """The template has not what the language needs."""


def child(argv, **options):
    """A program in a session of its own that does not outlive the kernel."""
    import ctypes

    prctl, die_with_parent = ctypes.CDLL(None).prctl, 1
    return subprocess.Popen(argv, start_new_session=True, preexec_fn=lambda: prctl(die_with_parent, signal.SIGKILL), **options)


def words(e):
    try:
        return str(e)
    except Exception:
        return "<an exception whose str() fails>"


def left(conn, listener, busy):
    """Interrupts the code when the execution's process goes, or says that nobody waits for
    it any more, and another execution waits for the kernel."""
    poll = select.poll()
    poll.register(conn, select.POLLIN)
    while busy.is_set():
        for fd, _ in poll.poll(100):
            if fd == conn.fileno() and said(conn):
                poll.register(listener, select.POLLIN)
            elif busy.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                return


def said(conn):
    try:
        return conn.recv(64, socket.MSG_DONTWAIT) != b""
    except OSError:
        return False


def serve(conn, listener, kernel, count):
    asked = b""
    while not asked.endswith(b"\n"):
        part = conn.recv(1 << 16)
        if not part:
            return
        asked += part
    ask = json.loads(asked)
    line.to = conn
    line.say(type="number_of_executions", execution_count=count)
    busy = threading.Event()
    busy.set()
    threading.Thread(target=left, args=(conn, listener, busy), daemon=True).start()
    try:
        kernel.run(ask["code"], count, ask["env_vars"])
    except BaseException as e:  # also SystemExit: the kernel goes on
        flush()
        line.say(type="error", name=getattr(e, "name_there", type(e).__name__), value=words(e), traceback=kernel.error(e))
    finally:
        busy.clear()
    flush(last=True)
    line.say(type="end_of_execution")
    line.to = None
    with contextlib.suppress(OSError):
        conn.shutdown(socket.SHUT_RDWR)  # closing alone ends nothing while left looks at it


def main():
    global moments
    moments = Moments()
    address, said, failed = sys.argv[1], os.dup(1), os.dup(2)
    drains.extend([Drain("stdout", 1), Drain("stderr", 2)])
    try:
        kernel = Kernel()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0millrace-context-" + address)
        listener.listen(128)
    except Exception as e:  # standard error is a pipe of ours by now
        os.write(failed, words(e).encode())
        sys.exit(1)
    signal.signal(signal.SIGINT, getattr(kernel, "interrupt", signal.default_int_handler))
    os.write(said, b"ready\n")
    count = 0
    while True:
        try:
            conn = listener.accept()[0]
            count += 1
            with conn:
                serve(conn, listener, kernel, count)
        except KeyboardInterrupt:
            continue  # came too late for its execution
        except Exception as e:
            print("an execution was not understood:", repr(e), file=sys.__stderr__)
