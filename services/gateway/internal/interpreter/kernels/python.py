# The kernel of Python, after serve.py.
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


class Kernel:
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

    def run(self, code, count, variables):
        with environ(variables):
            self.cell(code, count)
            show_figures()

    def cell(self, code, count):
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

    @staticmethod
    def error(e):
        tb = e.__traceback__
        while tb is not None and not tb.tb_frame.f_code.co_filename.startswith("<cell "):
            tb = tb.tb_next
        return "".join(traceback.format_exception(type(e), e, tb))
