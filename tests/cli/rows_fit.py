#!/usr/bin/python3
"""Fits the constants of `rankc plan --rows` to published runs, or says how well runs are predicted that are left out.

    rows_fit.py --build BUILD --rows perf_rows.csv --leave-out     the line of docs/published-rows.md (minutes)
    rows_fit.py --build BUILD --rows perf_rows.csv --write         writes fitted constants into frontend/cli/rows

A constant moves from its present value as far as the rows outweigh a prior (a normal distribution of its logarithm).
Errors count as their logarithm, large ones linearly; deviations from the mean error of a source count once more,
because the order within a sweep matters. Columns that are data of a device or an exact law stay as they are."""
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
SHARED = ("Bridge",)  # systems of one network; that of an unknown system is the machine's
PARTS = re.compile("hidden|between|kept_products|exposed")  # at most 1
COLUMNS = {"rows_systems.def": (2, ["time", "network"] + [None] * 7 + ["logits", "memory", "reserve", "experts", "host", "gaps"]),
           "rows_devices.def": (2, ["rate", "experts", "attention"])}


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
        self.library.fit_word.restype = ctypes.c_char_p
        self.words = [self.library.fit_word(i).decode() for i in range(self.library.fit_systems())]
        self.at = {n: self.library.fit_constant(n.encode()) for n in names if n not in FIXED}
        for i, word in enumerate(self.words):
            for field in filter(None, COLUMNS["rows_systems.def"][1]):
                if field != "network" or word and not word.startswith(SHARED):
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
        exact = [i for i, word in enumerate(self.words) if word == "ATorch"]  # its memory law has no residual
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
        return names

    def residuals(self, use):
        speed, bytes_ = (numpy.nan_to_num(numpy.where(use, numpy.log(p / m), 0)) for p, m in zip(self.predict(), self.measured))
        known = use & (speed != 0)
        mean = {s: speed[known & (self.source == s)].mean() for s in set(self.source[known])}
        order = numpy.array([0.7 * (e - mean[s]) if k else 0 for e, s, k in zip(speed, self.source, known)])
        return numpy.concatenate([speed, order, bytes_]) / 0.05

    def fit(self, use, names, rounds):
        """Levenberg-Marquardt on the logarithms, with Huber's weights."""
        start = numpy.array([self.at[n][0] for n in names])
        sign, centre, width = numpy.sign(start), numpy.log(abs(start)), numpy.array([tolerance(n) for n in names])

        def put(x):
            for name, value, s in zip(names, numpy.exp(x), sign):
                most = 1 if PARTS.match(name) else 0.8 if name.endswith(".attention") else value
                self.at[name][0] = s * min(value, most)
            return self.residuals(use)

        def cost(r, x):
            return numpy.where(abs(r) < 1, r * r / 2, abs(r) - 0.5).sum() + (((x - centre) / width) ** 2).sum() / 2

        x, damping = centre.copy(), 0.1
        r = put(x)
        for _ in range(rounds):
            slopes = numpy.array([(put(x + 1e-4 * unit) - r) / 1e-4 for unit in numpy.eye(len(x))]).T
            weight = 1 / numpy.maximum(abs(r), 1)
            matrix = slopes.T @ (slopes * weight[:, None]) + numpy.diag(1 / width**2)
            gradient = slopes.T @ (weight * r) + (x - centre) / width**2
            before = cost(r, x)
            for _ in range(8):
                step = numpy.clip(numpy.linalg.solve(matrix + damping * numpy.diag(numpy.diag(matrix)), -gradient), -0.5, 0.5)
                after = put(x + step)
                if cost(after, x + step) < before:
                    x, r, damping = x + step, after, damping / 5
                    break
                damping *= 4
            else:
                break
        put(x)


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def left_out(laws, folds, forget, rounds):
    """Relative errors of rows of each fold, by constants that were fitted to the other rows."""
    start = {n: at[0] for n, at in laws.at.items()}
    errors = numpy.full(laws.measured.shape, numpy.nan)
    for fold in folds:
        for name, value in start.items():
            laws.at[name][0] = value
        own = set(laws.system[fold]) - set(laws.system[~fold])
        for name in laws.at if forget else []:
            if name.startswith("system") and int(name.split(".")[0].split()[1]) in own:
                laws.at[name][0] = start.get(f"system {len(laws.words) - 1}." + name.split(".")[1], start[name])
        laws.fit(~fold, [n for n in laws.informed(~fold)], rounds)
        errors[:, fold] = abs(laws.predict() / laws.measured - 1)[:, fold]
    return errors


def print_line(name, errors, dense):
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
        path, lines, i = os.path.join(root, ROOM, table), [], 0
        with open(path, encoding="ascii") as file:
            for line in file.read().splitlines():
                if line.startswith(kind.upper()):
                    cells = line[:-1].split(", ")
                    for column, field in enumerate(fields, first):
                        at = laws.at.get(f"{kind} {i}.{field}")
                        if at and f"{at[0]:.3g}" != f"{float(cells[column]):.3g}":
                            cells[column] = number(at[0])
                    line, i = ", ".join(cells) + ")", i + 1
                lines.append(line)
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
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
            known = [e[~numpy.isnan(e)] for e in (errors[0][fold] for fold in folds)]
            middle = sorted((quantile(e, 0.5), laws.source[fold][0]) for e, fold in zip(known, folds) if len(e) > 1)
            print(f"Of {len(middle)} sources with several rows, the median of the medians is {quantile([m for m, _ in middle], 0.5):.1%}, "
                  f"and the largest {middle[-1][0]:.1%} ({middle[-1][1]}).")
        if args.write:
            laws.fit(everything, laws.informed(everything), args.rounds)
            write(root, laws)
    return 0


if __name__ == "__main__":
    sys.exit(main())
