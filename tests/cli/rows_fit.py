#!/usr/bin/python3
"""Fits the constants of `rankc plan --rows` to published runs, or says how well runs are predicted that are left out.

    rows_fit.py --build BUILD --rows perf_rows.csv --leave-out     the line of docs/published-rows.md (minutes)
    rows_fit.py --build BUILD --rows perf_rows.csv --write         writes fitted constants into frontend/cli/rows

A constant moves from its present value as far as the rows outweigh a prior (a normal distribution of its logarithm). Of a
system's and a device's constants, the prior is about those of the typical system and of the first device of the generation.
Errors count as their logarithm, large ones linearly; so does, for two runs of a source that are predicted in the wrong
order, how far apart they are predicted. Columns that are data of a device or an exact law stay as they are."""
import argparse
import csv
import ctypes
import os
import re
import subprocess
import sys
import tempfile

import numpy

ROOM = "frontend/cli/rows"
FIXED = {"latency"}
ERROR = 0.05  # of the logarithm of a prediction: width of its normal distribution
ORDER = 10  # errors that a run in the wrong place of its source counts as, divided among the others it is out of order with
PARTS = re.compile("hidden|contended|between|kept_products|exposed")  # at most 1
GENERATION = re.compile(r"G?([A-Z]+)\d")
COLUMNS = {"rows_systems.def": (2, ["time", "network"] + [None] * 7 + ["logits", "memory", "reserve", "experts", "host", "gaps"]),
           "rows_devices.def": (2, ["rate", "host", "attention"])}


def constants_of(root):
    """Names of the constants in rows_laws.c and rows_memory.c."""
    found = []
    for name in ("rows_laws.c", "rows_memory.c"):
        with open(os.path.join(root, ROOM, name), encoding="ascii") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for statement in re.findall(r"^static const double ([^;]*);", text, flags=re.M):
            for constant, array, value in re.findall(r"(\w+)(\[\])? = (\{[^}]*\}|[-\d.]+)", statement):
                found += [f"{constant}[{i}]" for i in range(value.count(",") + 1)] if array else [constant]
    return found


def tolerance(name):
    """Of the logarithm of a constant."""
    return 0.9 if name.endswith(".network") else 1.2 if name.endswith(".gaps") else 0.2 if re.search(r"\.(rate|time)$|product_rate", name) else 0.35


class Laws:
    def __init__(self, root, build, path, directory):
        names = constants_of(root)
        library = os.path.join(directory, "laws.so")
        archives = [os.path.join(build, p) for p in ("frontend/libfrontend.a", "passes/libpasses.a", "ir/libir.a", "runtime/librankc-rt-base.a")]
        subprocess.run(["cc", "-O2", "-w", "-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-I" + root,
                        "-DCONSTANTS=" + " ".join(f"CONSTANT({n})" for n in names), os.path.join(root, "tests/cli/rows_fit.c"),
                        os.path.join(root, ROOM, "rows_text.c"), "-o", library, "-Wl,--start-group", *archives, "-Wl,--end-group", "-lxxhash", "-lm"], check=True)
        self.library = ctypes.CDLL(library)
        for function in ("constant", "system", "device"):
            getattr(self.library, "fit_" + function).restype = ctypes.POINTER(ctypes.c_double)
        self.library.fit_word.restype = self.library.fit_gpu.restype = ctypes.c_char_p
        self.encoded = [self.library.fit_word(i) for i in range(self.library.fit_systems())]
        self.words = [word.decode() for word in self.encoded]
        self.devices = [self.library.fit_gpu(i).decode() for i in range(self.library.fit_devices())]
        self.at = {n: self.library.fit_constant(n.encode()) for n in names if n not in FIXED}
        for i, word in enumerate(self.words):
            for field in filter(None, COLUMNS["rows_systems.def"][1]):
                self.at[f"system {i}.{field}"] = self.library.fit_system(i, field.encode())
        for i in range(self.library.fit_devices()):
            for field in COLUMNS["rows_devices.def"][1]:
                self.at[f"device {i}.{field}"] = self.library.fit_device(i, field.encode())
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert self.library.fit_load(path.encode()) == len(rows), "rows that cannot be read"
        self.source = numpy.array([r["source"].split(" (")[0] for r in rows])
        self.measured = numpy.array([[float(r[c] or "nan") for r in rows] for c in ("tflops_per_gpu", "mem_gb")])
        self.dense = numpy.array(["MoE" not in r["notes"] for r in rows])
        self.full = numpy.array(["OOM" in r["notes"] for r in rows])
        self.predict()

    def predict(self):
        """TFLOP/s and GiB of all rows."""
        n = len(self.source)
        reals, integers = numpy.empty((3, n)), numpy.empty((2, n), dtype=numpy.int32)
        self.library.fit_predict(*(ctypes.c_void_p(a.ctypes.data) for a in (*reals, *integers)))
        self.memory, (self.system, self.device) = reals[2], integers
        return reals[:2]

    def informed(self, use):
        """Constants that rows of `use` say something about, and that are not 0."""
        speed, bytes_ = (use & ~numpy.isnan(m) for m in self.measured)
        exact = [i for i, word in enumerate(self.words) if word.startswith("ATorch")]  # its memory law has no residual
        names = []
        for name in self.at:
            table, field = name.split(".")[0], name.split(".")[-1]
            rows = speed
            if table != name:
                kind, i = table.split()
                rows = (bytes_ if field in ("logits", "memory", "reserve") else speed) & (getattr(self, kind) == int(i))
                if field in ("experts", "host"):
                    rows = rows & ~self.dense
                if field in ("logits", "memory", "reserve") and int(i) in exact:
                    continue
            if rows.any() and self.at[name][0]:
                names.append(name)
        for name in names:  # grows while it is walked
            parent = self.parent(name) if "." in name else None
            if parent and parent not in names and self.at[parent][0]:
                names.append(parent)
        return names

    def parent(self, name):
        """The constant that one of a system or a device is expected to be near; None: its present value. For a system: of the
        next row of the table that has its word, at last of the typical system. For a device: of the first one of its
        generation, "B" of GB300."""
        kind, i, field = re.fullmatch(r"(\w+) (\d+)\.(\w+)", name).groups()
        i = int(i)
        if field in ("logits", "memory", "reserve"):
            return None
        if kind == "system":
            last = len(self.words) - 1
            others = (j for j in range(i + 1, last + 1) if j == last or any(w and w in self.words[i] for w in self.words[j].split("|")))
        else:
            others = (j for j in range(i) if GENERATION.match(self.devices[j])[1] == GENERATION.match(self.devices[i])[1])
        return next((f"{kind} {j}.{field}" for j in others), None)

    def logarithms(self, use):
        """Of predicted by measured, speeds and bytes; 0 where there is no measurement."""
        return numpy.nan_to_num(numpy.where(use, numpy.log(self.predict() / self.measured), 0)).reshape(-1)

    def slopes(self, put, names, x):
        """Derivatives of those. Constants of one column of a table are changed at the same time: no row has two of them."""
        n, start, columns = len(self.source), put(x), {}
        for j, name in enumerate(names):
            columns.setdefault(re.sub(r"(system|device) \d+", r"\1", name), []).append(j)
        found = numpy.zeros((2 * n, len(names)))
        for members in columns.values():
            step = numpy.zeros(len(names))
            step[members] = -1e-4  # constants that are as large as may be become smaller
            change = (start - put(x + step)) / 1e-4
            for j in members:
                kind = re.match(r"(system|device) (\d+)", names[j])
                own = getattr(self, kind[1]) == int(kind[2]) if kind else numpy.ones(n, dtype=bool)
                found[:, j] = numpy.where(numpy.tile(own, 2), change, 0)
        return found

    def pairs(self, use):
        """Rows p and numbers q of two speeds of a source: p e + q, for logarithms e, is negative if their predicted order is not
        the measured one."""
        known = use & ~numpy.isnan(self.measured[0])
        same = (self.source[:, None] == self.source) & known[:, None] & known
        slower, faster = numpy.nonzero(same & (self.measured[0][:, None] < self.measured[0]))
        weight = ORDER / numpy.maximum(same.sum(1)[slower] - 1, 1)
        p, n = numpy.zeros((len(slower), 2 * len(self.source))), numpy.arange(len(slower))
        p[n, faster], p[n, slower] = weight, -weight
        return p, weight * numpy.log(self.measured[0][faster] / self.measured[0][slower])

    def prior(self, names, centre):
        """Rows p and numbers q: p x - q has a normal distribution of width 1."""
        p, q = numpy.zeros((len(names), len(names))), numpy.zeros(len(names))
        for j, name in enumerate(names):
            width, parent = tolerance(name), self.parent(name) if "." in name else None
            p[j, j], q[j] = 1 / width, centre[j] / width
            if parent in names:
                p[j, names.index(parent)], q[j] = -1 / width, 0
        return p, q

    def fit(self, use, names, rounds):
        """Levenberg-Marquardt on the logarithms, with Huber's weights."""
        start = numpy.array([self.at[n][0] for n in names])
        sign, centre = numpy.sign(start), numpy.log(abs(start))
        (p, q), (order, apart) = self.prior(names, centre), self.pairs(use)
        most = numpy.log([1 if PARTS.match(n) else 0.8 if n.endswith(".attention") else numpy.inf for n in names])

        def put(x):
            for name, value, s in zip(names, numpy.exp(x), sign):
                self.at[name][0] = s * value
            return self.logarithms(use)

        def residuals(errors):
            return numpy.concatenate((errors, numpy.minimum(order @ errors + apart, 0))) / ERROR

        def cost(r, x):
            return numpy.where(abs(r) < 1, r * r / 2, abs(r) - 0.5).sum() + ((p @ x - q) ** 2).sum() / 2

        x, damping = centre.copy(), 0.1
        errors = put(x)
        r = residuals(errors)
        for _ in range(rounds):
            slopes = self.slopes(put, names, x)
            slopes = numpy.vstack((slopes, order @ slopes * (order @ errors + apart < 0)[:, None])) / ERROR
            weight = 1 / numpy.maximum(abs(r), 1)
            matrix = slopes.T @ (slopes * weight[:, None]) + p.T @ p
            gradient = slopes.T @ (weight * r) + p.T @ (p @ x - q)
            before = cost(r, x)
            for _ in range(8):
                step = numpy.clip(numpy.linalg.solve(matrix + damping * numpy.diag(numpy.diag(matrix)), -gradient), -0.5, 0.5)
                moved = numpy.minimum(x + step, most)
                after = put(moved)
                if cost(residuals(after), moved) < before:
                    x, errors, r, damping = moved, after, residuals(after), damping / 5
                    break
                damping *= 4
            else:
                break
        put(x)


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def left_out(laws, folds, forget, rounds):
    """Relative errors of rows of each fold, by constants that were fitted to the other rows. forget: systems that occur
    in a fold alone are unknown, and devices that do have the mean constants of all others."""
    start = {n: at[0] for n, at in laws.at.items()}
    errors = numpy.full(laws.measured.shape, numpy.nan)
    for fold in folds:
        for name, value in start.items():
            laws.at[name][0] = value
        system, device = laws.system.copy(), laws.device.copy()
        unknown = set(system[fold]) - set(system[~fold]) if forget else set()
        for i in unknown - {-1}:
            laws.library.fit_call(ctypes.c_int(int(i)), b"?")
        for i in set(device[fold]) - set(device[~fold]) - {-1} if forget else set():
            for field in COLUMNS["rows_devices.def"][1]:
                name = laws.parent(f"device {i}.{field}")
                others = [name] if name else [f"device {j}.{field}" for j in set(device[~fold]) - {-1}]
                laws.at[f"device {i}.{field}"][0] = numpy.exp(numpy.mean([numpy.log(start[o]) for o in others]))
        laws.predict()
        laws.fit(~fold, laws.informed(~fold), rounds)
        errors[:, fold] = (laws.predict() / laws.measured - 1)[:, fold]
        for i in unknown - {-1}:
            laws.library.fit_call(ctypes.c_int(int(i)), laws.encoded[i])
    return errors


def print_line(name, errors, dense):
    errors = abs(errors)
    speed, bytes_ = (e[~numpy.isnan(e)] for e in errors)
    cells = [f"{quantile(e, part):.1%}" for e in (speed, errors[0][dense & ~numpy.isnan(errors[0])], bytes_) for part in (0.5, 0.9)]
    print("| " + " | ".join([name, str(len(speed))] + cells) + " |", flush=True)


def number(value):
    return numpy.format_float_positional(float(f"{value:.3g}"), trim="-")


def write(root, laws):
    for name in ("rows_laws.c", "rows_memory.c"):
        path = os.path.join(root, ROOM, name)
        with open(path, encoding="ascii") as file:
            text = file.read()
        for constant in constants_of(root):
            if constant in laws.at and "[" not in constant:
                text = re.sub(rf"\b({constant} = )[-\d.]+", lambda m, c=constant: m[1] + number(laws.at[c][0]), text, count=1)
        for array in {c.split("[")[0] for c in laws.at if "[" in c}:
            values = ", ".join(number(at[0]) for c, at in laws.at.items() if c.startswith(array + "["))
            text = re.sub(rf"{array}\[\] = {{[^}}]*}}", f"{array}[] = {{{values}}}", text)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    for table, kind in (("rows_systems.def", "system"), ("rows_devices.def", "device")):
        first, fields = COLUMNS[table]
        path = os.path.join(root, ROOM, table)
        with open(path, encoding="ascii") as file:
            parts = re.split(rf"^{kind.upper()}\((.*?)\)$", file.read(), flags=re.M | re.S)  # texts between rows, and rows
        for i, row in enumerate(parts[1::2]):
            cells = re.split(r",\s+", row)
            for column, field in enumerate(fields, first):
                at = laws.at.get(f"{kind} {i}.{field}")
                if at and f"{at[0]:.3g}" != f"{float(cells[column]):.3g}":
                    cells[column] = number(at[0])
            parts[2 * i + 1] = in_lines(f"{kind.upper()}({', '.join(cells)})")
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(parts))


def in_lines(row):
    """A row of a table, in two lines if it is longer than 120 columns."""
    if len(row) <= 120:
        return row
    at = row.rindex(", ", 0, 118) + 1
    return row[:at] + "\n      " + row[at:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.TemporaryDirectory() as directory:
        laws = Laws(root, args.build, args.rows, directory)
        everything = numpy.ones(len(laws.source), dtype=bool)
        if args.leave_out:
            odd = numpy.arange(len(laws.source)) % 2 == 1
            print_line("every other row | the others, and the reverse", left_out(laws, [odd, ~odd], False, args.rounds), laws.dense)
            folds = [laws.source == s for s in sorted(set(laws.source)) if not numpy.isnan(laws.measured[0][laws.source == s]).all()]
            errors = left_out(laws, folds, True, args.rounds)
            print_line("all sources but one | that one, each in turn", errors, laws.dense)
            known = [e[~numpy.isnan(e)] for e in (abs(errors[0][fold]) for fold in folds)]
            middle = sorted((quantile(e, 0.5), laws.source[fold][0]) for e, fold in zip(known, folds) if len(e) > 1)
            print(f"Of {len(middle)} sources with several rows, the median of the medians is {quantile([m for m, _ in middle], 0.5):.1%}, "
                  f"and the largest {middle[-1][0]:.1%} ({middle[-1][1]}).")
        if args.write:
            laws.fit(everything, laws.informed(everything), args.rounds)
            write(root, laws)
    return 0


if __name__ == "__main__":
    sys.exit(main())
