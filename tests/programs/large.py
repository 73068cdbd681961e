#!/usr/bin/python3
"""A model of more than 2 GB, in one file and with external data: large.py --rankc RANKC

Protobuf libraries stop at 2 GB, so the file is written field by field; the table of weights is a hole in a sparse file
with a few rows in it. The rows must come out of one rank and of two that share the table. Exit 77 where there is not
enough memory.
"""
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, needed, rankc_of, skip  # noqa: E402

with needed():
    import numpy as np

ROWS, COLUMNS = 36_000_000, 16  # 2.3 GB of f32
PICKED = [0, 12_345_678, ROWS - 1]


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, payload):
    """A length-delimited field; payload may be a length alone, whose bytes follow elsewhere."""
    head = varint(number << 3 | 2)
    return head + varint(payload) if isinstance(payload, int) else head + varint(len(payload)) + payload


def number(index, value):
    return varint(index << 3) + varint(value)


def value_info(name, elem, dims):
    shape = b"".join(field(1, number(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, number(1, elem) + field(2, shape)))


def table_head():
    return number(1, ROWS) + number(1, COLUMNS) + number(2, 1) + field(8, b"table")


def graph_parts():
    """The graph's bytes before and after its initializer."""
    node = field(1, b"table") + field(1, b"ids") + field(2, b"y") + field(3, b"pick") + field(4, b"Gather")
    ids = field(11, value_info(b"ids", 7, [len(PICKED)]))
    return field(1, node) + field(2, b"large"), ids + field(12, value_info(b"y", 1, [len(PICKED), COLUMNS]))


def model_bytes(graph_length):
    return number(1, 8) + field(8, number(2, 13)), field(7, graph_length)


def write_rows(file, start, rows):
    for index, row in zip(PICKED, rows):
        file.seek(start + index * COLUMNS * 4)
        file.write(row.tobytes())


def write_single(folder, rows):
    """model.onnx with the table as raw_data."""
    before, after = graph_parts()
    size = ROWS * COLUMNS * 4
    raw = field(9, size)
    head = table_head() + raw
    tensor = field(5, len(head) + size)
    opening, graph = model_bytes(len(before) + len(tensor) + len(head) + size + len(after))
    path = os.path.join(folder, "single.onnx")
    with open(path, "wb") as file:
        file.write(opening + graph + before + tensor + head)
        start = file.tell()
        write_rows(file, start, rows)
        file.seek(start + size)
        file.write(after)
    return path


def write_external(folder, rows):
    before, after = graph_parts()
    location = field(13, field(1, b"location") + field(2, b"table.bin"))
    tensor = field(5, table_head() + location + number(14, 1))
    opening, graph = model_bytes(len(before) + len(tensor) + len(after))
    path = os.path.join(folder, "external.onnx")
    with open(path, "wb") as file:
        file.write(opening + graph + before + tensor + after)
    with open(os.path.join(folder, "table.bin"), "wb") as file:
        write_rows(file, 0, rows)
        file.truncate(ROWS * COLUMNS * 4)
    return path


def available_memory():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def check(rankc, model, folder, options, rows):
    out = os.path.join(folder, "out")
    call(rankc, "compile", model, "-o", out, "-q", "--reuse=moo", *options)
    call(rankc, "run", out + "/" + os.path.basename(model)[:-5], "--input", "ids=" + os.path.join(folder, "ids.npy"), "--output-dir", out + "/y")
    got = np.load(out + "/y/y.npy")
    if not np.array_equal(got, rows):
        sys.exit(f"{model} {options}: {got} instead of {rows}")


def main():
    rankc = rankc_of(__doc__)
    if available_memory() < 8 << 30:
        skip("there is less than 8 GiB of memory")
    rows = np.random.default_rng(1).standard_normal((len(PICKED), COLUMNS)).astype("f4")
    with tempfile.TemporaryDirectory() as folder:
        np.save(os.path.join(folder, "ids.npy"), np.array(PICKED, "i8"))
        single = write_single(folder, rows)
        check(rankc, single, folder, [], rows)
        check(rankc, single, folder, ["--pas", "tp", "--plan-ngpus", "2"], rows)
        os.remove(single)
        check(rankc, write_external(folder, rows), folder, [], rows)


if __name__ == "__main__":
    main()
