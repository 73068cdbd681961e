"""rankc plot: pictures of metrics files, as XML; gaps, values that are not finite, single points, and files that are wrong."""
import json
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
from rankc_test import call, printed, rankc_of  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def line(step, loss, **more):
    return json.dumps({"step": step, "loss": loss, "grad_norm": 1 / step, "lr": 0.1, "samples_per_s": 50 + step, **more})


class Picture:
    def __init__(self, text):
        self.text = text
        self.root = ElementTree.fromstring(text)
        self.curves = [e.get("d") for e in self.root.iter(SVG + "path") if e.get("class") == "curve" and "L" in e.get("d")]
        self.lost = [e for e in self.root.iter(SVG + "path") if e.get("class") == "lost"]
        self.dots = list(self.root.iter(SVG + "circle"))
        self.texts = [e.text for e in self.root.iter(SVG + "text")]
        box = [float(v) for v in self.root.get("viewBox").split()]
        places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", " ".join(self.curves))
        assert all(0 <= float(x) <= box[2] and 0 <= float(y) <= box[3] for x, y in places), "a curve leaves the picture"
        assert "-0" not in self.texts, self.texts
        assert "nan" not in text.lower() and "inf" not in text.lower(), text


class Plots:
    def __init__(self, rankc, work):
        self.rankc, self.work = rankc, work

    def write(self, text, name="m.jsonl"):
        (self.work / name).write_text(text)
        return self.work / name

    def draw(self, *lines, end="\n"):
        return Picture(call(self.rankc, "plot", self.write("\n".join(lines) + end)).stdout)

    def refuse(self, text, *said):
        error = call(self.rankc, "plot", self.write(text), status=3).stderr
        assert "E0399" in error and all(word in error for word in said), error


def check_curves(plots):
    plain = plots.draw(*(line(i, 5 / i) for i in range(1, 21)))
    assert len(plain.curves) == 4 and not plain.lost and not plain.dots
    assert {"loss", "gradient norm", "learning rate", "samples per second", "step"} <= set(plain.texts), plain.texts
    assert [e.get("media") for e in plain.root.iter(SVG + "style")] == [None, "(prefers-color-scheme: dark)"]
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", plain.curves[0])]
    assert len(heights) == 20 and heights == sorted(heights), "a falling loss falls"
    tokens = plots.draw(*(json.dumps({"step": i, "loss": 1, "tokens_per_s": i}) for i in (1, 2)))
    assert len(tokens.curves) == 2 and "tokens per second" in tokens.texts  # no panels of what is not there
    evaluated = plots.draw(line(1, 2), line(2, 1), '{"step": 2, "eval_loss": 1.5, "eval_samples": 4}')
    assert len(evaluated.dots) == 1 and "loss (dots: evaluation)" in evaluated.texts


def check_gaps(plots):
    lost = plots.draw(*(line(i, None if i == 3 else 1 / i) for i in range(1, 7)))
    assert len(lost.curves) == 5 and len(lost.lost) == 1  # the loss in two parts
    resumed = plots.draw(*(line(i, 1 / i) for i in [1, 2, 3, 10, 11, 12]))
    assert len(resumed.curves) == 8, resumed.curves
    again = plots.draw(*(line(i, 1 / i) for i in [1, 2, 3, 2, 3, 4]))
    assert len(again.curves) == 8, again.curves
    sparse = plots.draw(*(line(i, 1 / i) for i in [10, 20, 30, 33]))  # --log-every 10, and the last step
    assert len(sparse.curves) == 4
    one = plots.draw(line(7, 0.5))
    assert not one.curves and len(one.dots) == 4
    assert plots.draw(*[line(i, None) for i in (1, 2)]).lost
    huge = plots.draw(*(line(i, (-1) ** i * 1.7e308) for i in range(1, 5)))
    assert len(huge.curves) == 4
    torn = plots.draw(line(1, 2), line(2, 1), '{"step": 3, "lo', end="")  # being written
    assert len(torn.curves) == 4
    long = plots.draw(*(line(i, (i * 7919 % 100) / 100) for i in range(1, 20001)))
    assert len(long.text) < 200000, len(long.text)


def check_runs(plots):
    names = [plots.write("".join(line(i, (r + 1) / i) + "\n" for i in range(1, 5)), f"<run> & \"{r}\".jsonl") for r in range(10)]
    out = plots.work / "curves.svg"
    assert printed(plots.rankc, "plot", *names, "-o", out) == ("", "")
    both = Picture(out.read_text())
    assert len(both.curves) == 40 and all(str(name) in both.texts for name in names), both.texts
    assert "E0601" in call(plots.rankc, "plot", names[0], plots.work / "none", status=6).stderr
    assert "E0611" in call(plots.rankc, "plot", names[0], "-o", plots.work / "none" / "x.svg", status=6).stderr
    assert "METRICS.jsonl" in call(plots.rankc, "plot", status=2).stderr


def check_errors(plots):
    plots.refuse("", "no metrics")
    plots.refuse("\n\n", "no metrics")
    plots.refuse(line(1, 1) + "\n{\"step\": 2, \"loss\":\n" + line(3, 1) + "\n", "line 2")
    plots.refuse(line(1, 1) + "\n[1]\n", "line 2", "step")
    plots.refuse('{"step": "1", "loss": 2}\n', "line 1", "step")
    plots.refuse('{"step": 1}\n', "no metrics")


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory() as work:
        plots = Plots(rankc, pathlib.Path(work))
        check_curves(plots)
        check_gaps(plots)
        check_runs(plots)
        check_errors(plots)


main()
