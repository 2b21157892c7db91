# IPython.display for code that imports it where no IPython is installed, after serve.py.
import importlib.abc, importlib.machinery, importlib.util


class Shown:
    """A displayed object of one type: its data, or those of a file or URL."""

    form = "text"

    def __init__(self, data=None, url=None, filename=None, **_):
        if data is None and url is not None:
            from urllib.request import urlopen

            data = urlopen(url).read()
        if data is None and filename is not None:
            with open(filename, "rb") as f:
                data = f.read()
        self.data = data if self.binary() or not isinstance(data, bytes) else data.decode("utf-8", "replace")

    def binary(self):
        return False

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__

    def _repr_mimebundle_(self, **_):
        return {next(mime for mime, form in MIME.items() if form == self.form): self.data}


class Pretty(Shown):
    def __repr__(self):
        return self.data


class Math(Shown):
    form = "latex"

    def _repr_mimebundle_(self, **_):
        return {"text/latex": r"$\displaystyle %s$" % self.data.strip("$")}


class Image(Shown):
    def binary(self):
        return True

    def __init__(self, data=None, url=None, filename=None, format=None, **_):
        if isinstance(data, str):  # a path or URL
            data, url, filename = None, url or (data if "://" in data else None), filename or (None if "://" in data else data)
        super().__init__(data, url, filename)
        guessed = "jpeg" if (self.data or b"")[:2] == b"\xff\xd8" else "png"
        self.form = {"jpg": "jpeg"}.get(format, format) or guessed


def display_module():
    shown = {name: type(name, (Shown,), {"form": name.lower()}) for name in ("HTML", "Markdown", "SVG", "JSON", "Javascript", "Latex")}
    return dict(shown, Pretty=Pretty, Math=Math, Image=Image, display=display, clear_output=lambda wait=False: None)


class Display(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides IPython and IPython.display if they are not installed. If they are, it replaces
    display, which only prints without a notebook."""

    def __init__(self):
        self.real = None

    def find_spec(self, name, path=None, target=None):
        if name not in ("IPython", "IPython.display", "IPython.core", "IPython.core.display"):
            return None
        real = importlib.machinery.PathFinder.find_spec(name, path)
        if real is None:
            return importlib.util.spec_from_loader(name, self, is_package=name in ("IPython", "IPython.core"))
        if name == "IPython.display":
            self.real, real.loader = real.loader, self
        return real

    def exec_module(self, module):
        if self.real is None:
            module.__dict__.update(display_module(), get_ipython=lambda: None)
        else:
            self.real.exec_module(module)
            module.display = display
