#!/usr/bin/env python3
"""Random valid graphs under plans against ONNX Runtime.

    random_graphs.py --rankc RANKC [--seed N] [--count M] [--first F] [--plans "P P..."] [--only OPERATOR]... [--together K]
                     [--many-dimensions P] [--empty P] [--open] [--jobs J] [--work DIR] [--keep] [--record]
    random_graphs.py --rankc RANKC --cases DIR... [--plans ..]
    random_graphs.py --rankc RANKC .. --shuffle SEED

Makes the graphs F .. F+M-1 of a seed (graphs.py, operators.py), lets ONNX Runtime compute them, compiles K of them as one model
under every plan, runs it with ranks as threads, and compares (compare.py says how). A model that fails as a whole is taken
apart, and each of its graphs tried alone. Prints a line per difference, with what gives that graph again, and the counts by
operator; the exit status is 1 if there was a difference. --record appends the counts to docs/measured/robustness.md.

--open compiles each model once with bounds for dimensions of its inputs (open_graphs.py), and runs it at five sizes of them.
--cases runs what is there already: directories as record.py wrote them. That needs no ONNX and no ONNX Runtime, only NumPy.
--shuffle puts the nodes of each model in an order that SEED gives, and expects the results of the model in order, to the bit.
"""
import collections
import concurrent.futures
import datetime
import os
import shutil
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, needed, parser_of  # noqa: E402

with needed():
    import compare


def check_case(args, case, plan, out):
    if args.shuffle is None:
        return case.check(args.rankc, plan, out)
    return case.check_shuffled(args.rankc, plan, out, args.shuffle)


class Batch:
    """Graphs that are compiled as one model."""

    def __init__(self, args, number, first, count):
        import generate
        self.args, self.number = args, number
        self.opset = generate.opset_of(args.seed, number)
        self.graphs, self.outputs, self.left_out = [], {}, 0
        for i in range(first, first + count):
            graph = generate.random_graph(args.seed, i, self.opset, args.only, args.many_dimensions, args.empty)
            graph = self.with_outputs(graph, i)
            if graph is None:
                self.left_out += 1
                continue
            graph.number = i
            self.graphs.append(graph)

    def with_outputs(self, graph, number):
        """The graph, or with --open the one with open dimensions; None: it has no certain results."""
        import expected
        import open_graphs
        if self.args.open:
            return open_graphs.opened(graph)
        self.outputs[number] = expected.outputs_of(graph) if graph.nodes else None
        return graph if self.outputs[number] is not None else None

    def case(self, directory, chosen):
        import graphs
        import open_graphs
        if self.args.open:
            model = graphs.merged(chosen).SerializeToString()
            return compare.write_open_case(directory, model, *open_graphs.together(chosen))
        inputs = {name: array for graph in chosen for name, array in graph.inputs.items()}
        outputs = {name: entry for graph in chosen for name, entry in self.outputs[graph.number].items()}
        return compare.write_case(directory, graphs.merged(chosen).SerializeToString(), inputs, outputs)

    def refusal(self, plan, graph, directory):
        """Why the graph alone does not compile; None: it does, or would with others."""
        try:
            self.case(directory, [graph]).compile(self.args.rankc, plan, directory + "/alone", "--no-build")
        except compare.Failure as failure:
            return None if failure.status == 5 else failure  # too small for stages alone
        return None

    def failures(self, plan, chosen, directory):
        """(graph, what is wrong) of the chosen graphs: of each that alone does not compile, and of the others by halves."""
        case = self.case(directory, chosen)
        try:
            owner = {name: graph for graph in chosen for name in graph.outputs}
            return [(owner[name], f"{name}: {why}") for name, why in check_case(self.args, case, plan, directory + "/" + plan)]
        except compare.Failure as failure:
            if len(chosen) == 1:
                return [(chosen[0], failure)]
            whole = failure
        alone = {graph.number: self.refusal(plan, graph, directory + ".alone") for graph in chosen}
        found = [(graph, alone[graph.number]) for graph in chosen if alone[graph.number]]
        rest = [graph for graph in chosen if not alone[graph.number]]
        half = len(rest) // 2
        parts = [rest] if found else [rest[:half], rest[half:]]
        found += [f for i, part in enumerate(parts) if part for f in self.failures(plan, part, f"{directory}.{i}")]
        return found or [(chosen[0], f"together with others: {whole}")]

    def check(self, work):
        """What is wrong, a line each; and whether it is that a graph was refused."""
        directory = os.path.join(work, f"batch{self.number}")
        found = []
        right = self.graphs
        for plan in self.args.plans.split():
            failed = self.failures(plan, right, directory) if right else []
            found += [(graph, plan, why) for graph, why in failed]
            if plan == "one":  # other plans would say the same again
                right = [graph for graph in right if graph not in [wrong for wrong, _ in failed]]
        if not self.args.keep:
            for left in [directory] + [d for d in os.listdir(work) if d.startswith(f"batch{self.number}.")]:
                shutil.rmtree(os.path.join(work, left), ignore_errors=True)
        return [(self.report(graph, plan, why), getattr(why, "refused", False)) for graph, plan, why in found]

    def report(self, graph, plan, why):
        """The line, with the command that gives the graph again."""
        args, refused = self.args, getattr(why, "refused", False)
        again = f"--seed {args.seed} --first {graph.number} --count 1 --together {args.together} --plans {plan}"
        again += f" --many-dimensions {args.many_dimensions}" * (args.many_dimensions > 0) + f" --empty {args.empty}" + " --open" * args.open
        return f"{'refused' if refused else 'DIFFERENCE'} {again}: {why}\n    opset {self.opset}: {' '.join(graph.rows)}"


def check_batch(args, work, number, first, count):
    start = time.process_time()
    batch = Batch(args, number, first, count)
    made = time.process_time() - start
    found = batch.check(work)
    rows = collections.Counter(row for graph in batch.graphs for row in graph.rows)
    nodes = sum(len(graph.nodes) for graph in batch.graphs)
    return found, rows, len(batch.graphs), nodes, batch.left_out, made


def check_recorded(args, work):
    failed = 0
    for directory in args.cases:
        name = os.path.basename(os.path.normpath(directory))
        for plan in args.plans.split():
            try:
                wrong = [f"{n}: {why}" for n, why in check_case(args, compare.case_of(directory), plan, os.path.join(work, name, plan))]
            except compare.Failure as failure:
                wrong = [str(failure)]
            failed += bool(wrong)
            for line in wrong:
                print(f"FAIL {name} {plan}: {line}", flush=True)
    print(f"{len(args.cases)} models, {failed} failed under {args.plans}")
    return 1 if failed else 0


def record(args, counted, differences, seconds):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    commit = call("git", "-C", root, "rev-parse", "--short", "HEAD", status=None).stdout.strip()
    with open(os.path.join(root, "docs", "measured", "robustness.md"), "a") as table:
        table.write(f"| {datetime.date.today()} | {commit} | random graphs, seed {args.seed}, {len(args.plans.split())} plans | "
                    f"{counted * len(args.plans.split())} | {seconds:.0f} |  | {differences} |\n")


def check_random(args, work):
    start = time.time()
    spans = [(i // args.together, i, min(args.together, args.first + args.count - i))
             for i in range(args.first, args.first + args.count, args.together)]
    rows, counted, nodes, left_out, differences, refused, made = collections.Counter(), 0, 0, 0, 0, 0, 0.0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for found, ops, n, batch_nodes, batch_left, seconds in pool.map(check_batch, *zip(*[(args, work, *span) for span in spans])):
            rows.update(ops)
            counted, nodes, left_out, made = counted + n, nodes + batch_nodes, left_out + batch_left, made + seconds
            for line, is_refused in found:
                differences, refused = differences + (not is_refused), refused + is_refused
                print(line, flush=True)
    print(f"{counted} graphs of {nodes} nodes under {args.plans}: {differences} differences, {refused} refused; {left_out} left out as ill conditioned; "
          f"{time.time() - start:.0f} s, {made:.0f} s of them for graphs and references")
    print(f"{len(rows)} rows: " + " ".join(f"{op}:{n}" for op, n in sorted(rows.items())))
    if args.record:
        record(args, counted, differences, time.time() - start)
    return 1 if differences else 0


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--plans", default=" ".join(compare.PLANS))
    parser.add_argument("--only", action="append", help="a row of operators.py, by name")
    parser.add_argument("--together", type=int, default=25, help="graphs in a model; a graph's opset follows from its model")
    parser.add_argument("--many-dimensions", type=float, default=0, help="the part of the shapes that have 5 to 8 dimensions [0]")
    parser.add_argument("--empty", type=float, default=0.03, help="the part of the shapes that have a dimension of 0 [0.03]")
    parser.add_argument("--open", action="store_true", help="dimensions of inputs are open, where they can be")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work")
    parser.add_argument("--keep", action="store_true", help="keep what was written to --work")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--shuffle", type=int)
    args = parser.parse_args()
    work = args.work or tempfile.mkdtemp(prefix="rankc-random-")
    try:
        return check_recorded(args, work) if args.cases else check_random(args, work)
    finally:
        if not args.work:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
