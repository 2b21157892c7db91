# Output and results of code: the first file of every kernel in Python, before serve.py.
# During an execution they are sent to its client, one JSON object per line. Between two
# executions they are written, as plain text, to the standard output and error that the
# kernel was started with, which are in its own record. A process that code forks writes to the
# descriptors 1 and 2, which the kernel reads.
import ast, asyncio, base64, builtins, codecs, contextlib, contextvars, inspect, io, json, math, os, select, selectors, shutil, signal, socket, subprocess, sys, threading, time, traceback


def encode(line):
    try:
        return json.dumps(line, default=repr, separators=(",", ":"), allow_nan=False)
    except ValueError:  # JSON has no infinity and no NaN
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
    """The text of a value; that of a string without its quotes, as E2B's server sends it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def write_all(fd, text):
    data = memoryview(text.encode("utf-8", "replace"))
    with contextlib.suppress(OSError):  # the code closed it, or its reader is gone
        while data:
            data = data[os.write(fd, data) :]


class Line:
    """The current destination of output."""

    def __init__(self):
        self.lock, self.to = threading.Lock(), None
        self.record = {"stdout": 1, "stderr": 2}  # descriptors, by stream
        self.forked = False  # this is a process that code forked

    def begin(self, conn):
        """Sends later output to an execution's client."""
        flush()
        with self.lock:
            self.to = conn

    def end(self):
        """Sends the last line. Later output is written to the kernel's record."""
        flush(last=True)
        self.emit(type="end_of_execution")
        with self.lock:
            self.to = None

    def emit(self, **line):
        data = (encode(line) + "\n").encode()
        with self.lock:
            if self.to is not None:
                with contextlib.suppress(OSError):  # its client is gone: the code continues until its end or interrupt
                    self.to.sendall(data)
            elif line["type"] in self.record:
                write_all(self.record[line["type"]], line["text"])
            elif line["type"] == "result" and not line["is_main_result"]:
                write_all(self.record["stdout"], line["text"] + "\n")

    def wrote(self, stream, text):
        if text:
            self.emit(type=stream, text=text, timestamp=time.time_ns())

    def fork(self):
        """Makes this the output of a process that code forked."""
        for fd in self.record.values():
            if fd > 2:
                os.close(fd)
        self.lock, self.to, self.forked = threading.Lock(), None, True
        self.record = {"stdout": 1, "stderr": 2}


line = Line()


POLL = 50  # milliseconds


class Input:
    """The input of the running execution: lines from a socket that its client has sent. Without
    one there is no input."""

    def __init__(self):
        self.conn, self.rest = None, b""

    def begin(self, fds):
        self.conn, self.rest = socket.socket(fileno=fds[0]) if fds else None, b""

    def end(self):
        if self.conn is not None:
            self.conn.close()
        self.conn = None

    def line(self, password=False, check=lambda: None):
        """Waits for the next line. At the end of the input it is empty. Meanwhile it calls check, which
        can raise, every POLL: a signal that arrives just before the wait does not end it."""
        if self.conn is not None and b"\n" not in self.rest:
            flush()
            line.emit(type="input", password=password)
        while self.conn is not None and b"\n" not in self.rest:
            ready = select.poll()
            ready.register(self.conn, select.POLLIN)
            while not ready.poll(POLL):
                check()
            part = self.conn.recv(1 << 16)
            if not part:
                break
            self.rest += part
        text, end, self.rest = self.rest.partition(b"\n")
        return (text + end).decode("utf-8", "replace")


given = Input()


class Out:
    """sys.stdout or sys.stderr: sends what is written within a short time together, as
    Jupyter's kernels do."""

    encoding, errors, closed, newlines = "utf-8", "strict", False, None
    LIMIT = 1 << 16  # buffered characters

    def __init__(self, stream, fd):
        self.stream, self.fd, self.name = stream, fd, "<%s>" % stream
        self.buffer = self.raw = Raw(self)
        self.reset()

    def reset(self):
        self.held, self.size, self.lock = [], 0, threading.RLock()

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        with self.lock:
            if not self.held:
                moments.due.set()
            self.held.append(text)
            self.size += len(text)
            if self.size > self.LIMIT or line.forked and "\n" in text:  # whole lines, as processes share the output
                self.flush()
        return len(text)

    def writelines(self, lines):
        for l in lines:
            self.write(l)

    def flush(self):
        with self.lock:
            text, self.held, self.size = "".join(self.held), [], 0
            line.wrote(self.stream, text)

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


class Raw:
    """The binary side of an Out."""

    def __init__(self, out):
        self.out, self.text = out, codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data):
        self.out.write(self.text.decode(bytes(data)))
        return len(data)

    def flush(self):
        self.out.flush()


class Moments:
    """Flushes buffered output after a short time."""

    def __init__(self):
        self.due = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while self.due.wait():
            time.sleep(0.05)
            self.due.clear()
            for out in outs():
                out.flush()


def outs():
    return [out for out in (sys.stdout, sys.stderr) if isinstance(out, Out)]


class Drain:
    """Output that children and native code write to a descriptor."""

    def __init__(self, stream, fd):
        self.stream, self.text = stream, codecs.getincrementaldecoder("utf-8")("replace")
        line.record[stream] = os.dup(fd)
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
                if not data:  # the code and its children closed the descriptor
                    self.r = None
            if last:
                line.wrote(self.stream, self.text.decode(b"", True))


drains = []


def flush(last=False):
    sys.stdout.flush()
    sys.stderr.flush()
    for d in drains:
        d.take(last)
