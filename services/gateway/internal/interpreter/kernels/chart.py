# Extracts the data of matplotlib figures in the form of E2B's charts; after serve.py.
import re

UNIT = re.compile(r"\s\(([^)]*)\)|\[([^\]]*)\]")


def number(v):
    return v.item() if hasattr(v, "item") else v


def rounded(v):
    """A number without rounding errors."""
    return float("%.12g" % float(v))


def coordinate(v):
    """A coordinate as the code passed it; times become strings."""
    v = number(v.astype("datetime64[s]") if type(v).__name__ == "datetime64" else v)
    return v.isoformat() if hasattr(v, "isoformat") else v


def points(pairs):
    return [[coordinate(x), coordinate(y)] for x, y in pairs]


def named(label, hidden, name):
    """A default label becomes a name and a number."""
    return "%s %s" % (name, label[len(hidden) :]) if label.startswith(hidden) else label


def texts(labels):
    return [l.get_text() for l in labels]


def described(axes):
    """The labels of the axes. A unit is in brackets after a label."""
    found = {"title": axes.get_title() or None}
    for name in "xy":
        label = getattr(axes, "get_%slabel" % name)() or None
        unit = UNIT.search(label or "")
        found[name + "_label"], found[name + "_unit"] = label, unit and (unit[1] or unit[2])
    return found


def turned(found):
    """A horizontal chart is reported like a vertical one."""
    for of in ("_label", "_unit"):
        found["x" + of], found["y" + of] = found["y" + of], found["x" + of]


def scale(axes, name):
    """The scale of an axis (numbers, times or names) and its ticks."""
    from matplotlib import dates

    axis = getattr(axes, name + "axis")
    ticks, labels, measures = [number(v) for v in axis.get_ticklocs()], texts(axis.get_ticklabels()), axis.get_scale()
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    if isinstance(converter, (dates.DateConverter, dates._SwitchableDateConverter)):
        measures, ticks = "datetime", [dates.num2date(v).isoformat() for v in ticks]
    elif measures == "linear" and ticks and all(t == i and l != str(i) for i, (t, l) in enumerate(zip(ticks, labels))):
        measures = "categorical"
    return {name + "_ticks": ticks, name + "_scale": measures, name + "_tick_labels": labels}


def rules(l):
    """Whether a line is only a ruler, parallel to an axis."""
    x, y = l.get_xdata(), l.get_ydata()
    return len(x) == len(y) == 2 and bool(x[0] == x[1] or y[0] == y[1])


def bars(axes, found):
    all = []
    for c in axes.containers:
        heights, widths = [[number(v) for v in of] for of in ([p.get_height() for p in c], [p.get_width() for p in c])]
        lying = len(set(heights)) == 1 and len(set(map(rounded, widths))) > 1
        if lying and not all:
            turned(found)
        labels = texts((axes.yaxis if lying else axes.xaxis).get_ticklabels())
        group = named(c.get_label(), "_container", "Group")
        all += [{"label": l, "group": group, "value": v} for l, v in zip(labels, widths if lying else heights)]
    return dict(found, type="bar", elements=all)


def boxes(axes, found):
    """A box plot draws the lines of each box in turn: the box, unless it is a patch, two
    whiskers, their caps, the median, and the outliers. None: not a box plot."""
    from matplotlib.patches import PathPatch

    patches = [[(rounded(x), rounded(y)) for x, y in p.get_path().vertices[:-1]] for p in axes.patches if isinstance(p, PathPatch)]
    lines = [[(rounded(x), rounded(y)) for x, y in zip(l.get_xdata(orig=False), l.get_ydata(orig=False))] for l in axes.lines]
    count = len(patches) or sum(len(l) == 5 and l[0] == l[4] for l in lines)
    each = len(lines) // max(count, 1)
    if not count or len(lines) % count or each < 5 + (not patches):
        return None
    all = []
    for i in range(count):
        mine = lines[i * each : (i + 1) * each]
        box = patches[i] if patches else mine.pop(0)
        low, high, _, _, median, *outside = mine
        if [len(low), len(high), len(median)] != [2, 2, 2]:
            return None
        lying = median[0][0] == median[1][0]
        if lying and not all:
            turned(found)
        at = lambda points: sorted(p[0 if lying else 1] for p in points)
        sides = at(box)
        labels = texts((axes.yaxis if lying else axes.xaxis).get_ticklabels())
        all.append({
            "label": labels[i] if i < len(labels) else "", "min": at(low)[0], "first_quartile": sides[0], "median": at(median)[0],
            "third_quartile": sides[-1], "max": at(high)[-1], "outliers": at(p for l in outside[:1] for p in l)})
    return dict(found, type="box_and_whisker", elements=all)


def drawn(axes):
    """The chart on one pair of axes."""
    from matplotlib.collections import PathCollection
    from matplotlib.patches import Rectangle, Wedge

    found = described(axes)
    dots = [c for c in axes.collections if isinstance(c, PathCollection)]
    pies = [p for p in axes.patches if isinstance(p, Wedge)]
    if pies:
        return {"type": "pie", "title": found["title"], "elements": [
            {"label": p.get_label(), "angle": abs(round(p.theta2 - p.theta1, 4)), "radius": p.r} for p in pies]}
    if any(isinstance(p, Rectangle) for c in axes.containers for p in c):
        return bars(axes, found)
    if dots:
        return dict(found, type="scatter", **scale(axes, "x"), **scale(axes, "y"), elements=[
            {"label": d.get_label(), "points": points(d.get_offsets())} for d in dots])
    boxed = boxes(axes, found)
    if boxed:
        return boxed
    if axes.lines:
        return dict(found, type="line", **scale(axes, "x"), **scale(axes, "y"), elements=[
            {"label": named(l.get_label(), "_child", "Line"), "points": points(zip(l.get_xdata(), l.get_ydata()))} for l in axes.lines if not rules(l)])
    return {"type": "unknown", "title": found["title"], "elements": []}


def chart(figure):
    """The charts of a figure; None: no known chart."""
    try:
        all = [drawn(a) for a in figure.axes]
    except Exception:
        return None
    if len(all) == 1:
        return all[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart", "title": title, "elements": all} if all else None
