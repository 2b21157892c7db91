# The kernel of one context: runs the code that is handed to it, one execution
# after the other, and keeps what it defines. Arguments: the context's id, and its
# language, python or bash.
import ast, asyncio, base64, builtins, inspect, json, math, os, select, signal, socket, subprocess, sys, threading, time, traceback


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
    """sys.stdout or sys.stderr: says each line, and the rest when flushed."""

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
            cut = self.held.rfind("\n") + 1
            if cut == 0 and len(self.held) > 1 << 16:
                cut = len(self.held)
            whole, self.held = self.held[:cut], self.held[cut:]
            line.wrote(self.stream, whole)
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
        self.stream = stream
        self.r, w = os.pipe()
        os.dup2(w, fd)
        os.close(w)
        self.turn = threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            select.select([self.r], [], [])
            self.take()

    def take(self):
        with self.turn:
            while select.select([self.r], [], [], 0)[0]:
                line.wrote(self.stream, os.read(self.r, 1 << 16).decode("utf-8", "replace"))


MIME = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
    "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
}
REPR = {
    "_repr_html_": "html", "_repr_markdown_": "markdown", "_repr_svg_": "svg", "_repr_png_": "png", "_repr_jpeg_": "jpeg",
    "_repr_pdf_": "pdf", "_repr_latex_": "latex", "_repr_json_": "json", "_repr_javascript_": "javascript",
}


def plain(value):
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else value


def forms(value):
    """The forms that a value can be shown in."""
    found = {"text": repr(value)}
    if isinstance(value, type):
        return found
    bundle = getattr(value, "_repr_mimebundle_", None)
    if callable(bundle):
        try:
            data = bundle()
            data = data[0] if isinstance(data, tuple) else data
            for mime, form in (data or {}).items():
                if mime in MIME:
                    found[MIME[mime]] = plain(form)
                else:
                    found.setdefault("extra", {})[mime] = plain(form)
        except Exception:
            pass
    for method, form in REPR.items():
        show = getattr(value, method, None)
        if form in found or not callable(show):
            continue
        try:
            data = show()
        except Exception:
            continue
        data = data[0] if isinstance(data, tuple) else data
        if data is not None:
            found[form] = plain(data)
    if type(value).__name__ == "DataFrame" and hasattr(value, "to_dict"):
        try:
            found["data"] = {str(k): v for k, v in value.to_dict(orient="list").items()}
        except Exception:
            pass
    if type(value).__name__ == "Figure" and hasattr(value, "savefig"):
        found.update(shown(value))
    return found


def picture(figure):
    import io

    b = io.BytesIO()
    figure.savefig(b, format="png", bbox_inches="tight")
    return base64.b64encode(b.getvalue()).decode()


def number(v):
    return v.item() if hasattr(v, "item") else v


def scale(axis, name):
    ticks = getattr(axis, "get_%sticks" % name)()
    return {
        name + "_ticks": [number(v) for v in ticks], name + "_scale": getattr(axis, "get_%sscale" % name)(),
        name + "_tick_labels": [l.get_text() for l in getattr(axis, "get_%sticklabels" % name)()],
    }


def boxes(axes):
    """What a box plot draws of each box, seven lines: the box, two whiskers, their
    caps, the median, and what lies outside."""
    lines = [[tuple(number(v) for v in p) for p in zip(l.get_xdata(), l.get_ydata())] for l in axes.lines]
    found = []
    for i in range(0, len(lines) - len(lines) % 7, 7):
        box, low, high, _, _, median, outside = lines[i : i + 7]
        if [len(box), len(low), len(high), len(median)] != [5, 2, 2, 2] or box[0] != box[4]:
            return []
        lying = median[0][0] == median[1][0]
        at = lambda points: sorted(p[0 if lying else 1] for p in points)
        labels = axes.get_yticklabels() if lying else axes.get_xticklabels()
        found.append({
            "label": labels[i // 7].get_text() if i // 7 < len(labels) else "", "min": at(low)[0], "first_quartile": at(box)[0],
            "median": at(median)[0], "third_quartile": at(box)[-1], "max": at(high)[-1], "outliers": at(outside)})
    return found if len(lines) % 7 == 0 else []


def drawn(axes):
    """What is drawn on one pair of axes, as data, in the form of E2B's charts."""
    from matplotlib.collections import PathCollection
    from matplotlib.patches import Rectangle, Wedge

    found = {"title": axes.get_title() or None, "x_label": axes.get_xlabel() or None, "y_label": axes.get_ylabel() or None, "x_unit": None, "y_unit": None}
    pies = [p for p in axes.patches if isinstance(p, Wedge)]
    bars = [(c.get_label(), p) for c in axes.containers for p in c.patches if isinstance(p, Rectangle)]
    dots = [c for c in axes.collections if isinstance(c, PathCollection)]
    if pies:
        texts = [t.get_text() for t in axes.texts]
        return {"type": "pie", "title": found["title"], "elements": [
            {"label": texts[i] if i < len(texts) else "", "angle": p.theta2 - p.theta1, "radius": p.r} for i, p in enumerate(pies)]}
    if bars:
        labels = [l.get_text() for l in axes.get_xticklabels()]
        return dict(found, type="bar", elements=[
            {"label": labels[i % len(labels)] if labels else str(i), "group": group, "value": str(number(p.get_height()))} for i, (group, p) in enumerate(bars)])
    if dots:
        return dict(found, type="scatter", **scale(axes, "x"), **scale(axes, "y"), elements=[
            {"label": d.get_label(), "points": [[number(v) for v in p] for p in d.get_offsets()]} for d in dots])
    boxed = boxes(axes)
    if boxed:
        return dict(found, type="box_and_whisker", elements=boxed)
    if axes.lines:
        return dict(found, type="line", **scale(axes, "x"), **scale(axes, "y"), elements=[
            {"label": l.get_label(), "points": [[number(x), number(y)] for x, y in zip(l.get_xdata(), l.get_ydata())]} for l in axes.lines])
    return {"type": "unknown", "title": found["title"], "elements": []}


def chart(figure):
    try:
        all = [drawn(a) for a in figure.axes]
    except Exception:
        return None
    if len(all) == 1:
        return all[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart", "title": title, "elements": all} if all else None


def shown(figure):
    found = {"text": repr(figure), "png": picture(figure)}
    data = chart(figure)
    if data is not None:
        found["chart"] = data
    return found


def display(*values, **_):
    for v in values:
        flush()
        line.say(type="result", is_main_result=False, **forms(v))


def show_figures(*_, **__):
    """What a notebook does at the end of a cell, and plt.show at once."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return
    for n in plt.get_fignums():
        figure = plt.figure(n)
        line.say(type="result", is_main_result=False, **shown(figure))
    plt.close("all")
    plt.show = show_figures


drains = []


def flush():
    sys.stdout.flush()
    sys.stderr.flush()
    for d in drains:
        d.take()


class Python:
    def __init__(self):
        self.names = {"__name__": "__main__", "__builtins__": builtins, "display": display}
        self.loop = asyncio.new_event_loop()
        os.environ.setdefault("MPLBACKEND", "agg")
        main = type(sys)("__main__")
        main.__dict__.update(self.names)
        self.names = main.__dict__
        sys.modules["__main__"] = main
        sys.argv = [""]
        sys.path[:0] = [""]
        sys.stdout, sys.stderr = Out("stdout", 1), Out("stderr", 2)

    def run(self, code, count):
        file = "<cell %d>" % count
        import linecache

        text = "".join(self.shell(l) for l in code.splitlines(True))
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        tree = ast.parse(text, file)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if tree.body:
            self.do(compile(tree, file, "exec", flags))
        if last is None:
            return
        value = self.do(compile(last, file, "eval", flags))
        if value is not None:
            self.names["_"] = value
            flush()
            line.say(type="result", is_main_result=True, **forms(value))

    @staticmethod
    def shell(l):
        bare = l.lstrip()
        indent = l[: len(l) - len(bare)]
        if bare.startswith("%pip "):
            bare = "!" + bare[1:]
        if bare.startswith("!"):
            return "%s__import__('subprocess').run(%r, shell=True)and None\n" % (indent, bare[1:].strip())
        return l

    def do(self, code):
        value = eval(code, self.names)
        if inspect.iscoroutine(value):
            value = self.loop.run_until_complete(value)
        return value

    def after(self):
        show_figures()

    @staticmethod
    def error(e):
        tb = e.__traceback__
        while tb is not None and not tb.tb_frame.f_code.co_filename.startswith("<cell "):
            tb = tb.tb_next
        return "".join(traceback.format_exception(type(e), e, tb))


class Bash:
    """A shell that goes on: it reads each execution from a file of its own."""

    def __init__(self):
        self.r, self.w = os.pipe()
        os.set_inheritable(self.w, True)
        self.start()

    def start(self):
        self.shell = subprocess.Popen(["/bin/bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, pass_fds=[self.w], start_new_session=True)

    def run(self, code, count):
        if self.shell.poll() is not None:
            self.start()
        script = "eval %s </dev/null; echo $? >&%d\n" % ("'" + code.replace("'", "'\\''") + "'", self.w)
        self.shell.stdin.write(script.encode())
        self.shell.stdin.flush()
        while not select.select([self.r], [], [], 0.05)[0]:
            if self.shell.poll() is not None:
                raise RuntimeError("the shell ended with code %d" % self.shell.returncode)
        status = int(os.read(self.r, 64))
        if status != 0:
            raise Exit("exit status %d" % status)

    def after(self):
        pass

    def error(self, e):
        if isinstance(e, KeyboardInterrupt) and self.shell.poll() is None:
            os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.wait()
        return "%s: %s" % (type(e).__name__, e)


class Exit(Exception):
    pass


def left(conn, busy):
    """Interrupts the code when whoever asked for it goes: he says no more than that."""
    poll = select.poll()
    poll.register(conn, select.POLLIN)
    while busy.is_set():
        if poll.poll(100):
            if busy.is_set():
                os.kill(os.getpid(), signal.SIGINT)
            return


def serve(conn, kernel, count):
    asked = b""
    while not asked.endswith(b"\n"):
        part = conn.recv(1 << 16)
        if not part:
            return
        asked += part
    ask = json.loads(asked)
    was = {k: os.environ.get(k) for k in ask["env_vars"]}
    os.environ.update(ask["env_vars"])
    line.to = conn
    line.say(type="number_of_executions", execution_count=count)
    busy = threading.Event()
    busy.set()
    threading.Thread(target=left, args=(conn, busy), daemon=True).start()
    try:
        kernel.run(ask["code"], count)
        kernel.after()
    except BaseException as e:  # also SystemExit: the kernel goes on
        flush()
        line.say(type="error", name=type(e).__name__, value=str(e), traceback=kernel.error(e))
    finally:
        busy.clear()
    flush()
    line.say(type="end_of_execution")
    line.to = None
    for k, v in was.items():
        if v is None:
            os.environ.pop(k, None)
        else:
            os.environ[k] = v


def main():
    context, language = sys.argv[1], sys.argv[2]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0millrace-context-" + context)
    drains.extend([Drain("stdout", 1), Drain("stderr", 2)])
    kernel = Bash() if language == "bash" else Python()
    listener.listen(128)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    count = 0
    while True:
        try:
            conn = listener.accept()[0]
            count += 1
            with conn:
                serve(conn, kernel, count)
        except KeyboardInterrupt:
            continue  # came too late for its execution
        except (OSError, ValueError) as e:
            print("an execution was not understood:", e, file=sys.__stderr__)


main()
