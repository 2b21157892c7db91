# The kernel of Python, after serve.py, chart.py and display.py.
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


def as_json(value):
    """A list or dict as JSON. Raises if that is not possible."""

    def other(v):
        for as_plain in ("tolist", "isoformat"):
            if hasattr(v, as_plain):
                return getattr(v, as_plain)()
        raise TypeError

    return json.loads(json.dumps(value, default=other))


def columns(frame):
    found = frame.to_dict(orient="list")
    return {str(k): [v.isoformat() if type(v).__name__ == "Timestamp" else v for v in column] for k, column in found.items()}


def forms(value):
    """The forms in which a value can be displayed."""
    found = {"text": unquoted(repr(value))}
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
        with contextlib.suppress(Exception):
            found["data"] = columns(value)
    if isinstance(value, (list, dict)):
        with contextlib.suppress(Exception):
            found.setdefault("json", as_json(value))
    if type(value).__name__ == "Figure" and hasattr(value, "savefig"):
        found.update(shown(value))
    return found


def picture(figure):
    import io

    b = io.BytesIO()
    figure.savefig(b, format="png", bbox_inches="tight")
    return base64.b64encode(b.getvalue()).decode()


def shown(figure):
    found = {"text": repr(figure), "png": picture(figure)}
    data = chart(figure)
    if data is not None:
        found["chart"] = data
    return found


def display(*values, **_):
    for v in values:
        flush()
        line.emit(type="result", is_main_result=False, **forms(v))


def show_figures(*_, **__):
    """Displays all figures, as a notebook does at the end of a cell, and plt.show does."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return
    for n in plt.get_fignums():
        figure = plt.figure(n)
        line.emit(type="result", is_main_result=False, **shown(figure))
    plt.close("all")
    plt.show = show_figures


def dedented(lines):
    """The lines without the indent of the first one that is not blank, as in IPython: lines
    that do not begin with it stay unchanged."""
    first = next((l for l in lines if not l.isspace()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    return [l[len(indent) :] if l.startswith(indent) else l for l in lines]


@contextlib.contextmanager
def environ(variables):
    was = {k: os.environ.get(k) for k in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for k, v in was.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = v


class In(io.TextIOBase):
    """sys.stdin: the input of the execution, or without one what the kernel was started with."""

    def readline(self, size=-1):
        return given.line() if given.conn is not None else sys.__stdin__.readline(size)

    def read(self, size=-1):
        if given.conn is None:
            return sys.__stdin__.read(size)
        return "".join(iter(given.line, ""))

    def readable(self):
        return True

    def fileno(self):
        return 0


def asking(otherwise, password):
    """The function input or getpass for executions with input."""

    def ask(prompt="", *rest, **options):
        if given.conn is None or line.forked:
            return otherwise(prompt, *rest, **options)
        print(prompt, end="", flush=True)
        text = given.line(password)
        if not text:
            raise EOFError("EOF when reading a line")
        return text.removesuffix("\n")

    return ask


class Kernel:
    def __init__(self):
        import getpass

        builtins.input, getpass.getpass, sys.stdin = asking(input, False), asking(getpass.getpass, True), In()
        self.names = {"__name__": "__main__", "__builtins__": builtins, "display": display}
        os.environ.setdefault("MPLBACKEND", "agg")
        main = type(sys)("__main__")
        main.__dict__.update(self.names)
        self.names = main.__dict__
        sys.modules["__main__"] = main
        sys.argv = [""]
        sys.path[:0] = [""]
        sys.stdout, sys.stderr = Out("stdout", 1), Out("stderr", 2)
        sys.meta_path.insert(0, Display())

    async def run(self, code, count, variables):
        with environ(variables):
            await self.cell(code, count)
            if not line.forked:
                show_figures()

    async def cell(self, code, count):
        file = "<cell %d>" % count
        import linecache

        text, tree = self.parsed(code, file)
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        if tree.body:
            await self.do(tree, file, "exec")
        if last is None:
            return
        value = await self.do(last, file, "eval")
        if value is not None and not line.forked:
            self.names["_"] = value
            flush()
            line.emit(type="result", is_main_result=True, **forms(value))

    def parsed(self, code, file):
        """The code and its tree. Shell commands are the lines on which Python's parser fails: in
        a string, or within an expression, such lines have no special meaning."""
        lines = dedented(io.StringIO(code, newline="").readlines())
        while True:
            text = "".join(lines)
            try:
                return text, ast.parse(text, file)
            except SyntaxError as e:
                at = (e.lineno or 0) - 1
                if not 0 <= at < len(lines) or (other := self.shell(lines[at])) == lines[at]:
                    raise
                lines[at] = other

    @staticmethod
    def shell(l):
        bare = l.lstrip()
        indent = l[: len(l) - len(bare)]
        if bare.startswith("%matplotlib"):  # figures are always shown
            return indent + "pass\n"
        if bare.startswith("%pip "):
            bare = "!" + bare[1:]
        if bare.startswith("!"):
            return "%s__import__('subprocess').run(%r, shell=True)and None\n" % (indent, bare[1:].strip())
        return l

    async def do(self, tree, file, mode):
        code = compile(tree, file, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, self.names)
        return await value if code.co_flags & inspect.CO_COROUTINE else value

    @staticmethod
    def error(e):
        tb = e.__traceback__
        while tb is not None and not tb.tb_frame.f_code.co_filename.startswith("<cell "):
            tb = tb.tb_next
        return "".join(traceback.format_exception(type(e), e, tb))
