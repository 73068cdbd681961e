"""D. External data: opened beneath the model's directory, no links, every number checked."""
import os

import models as m
from case import Row

OK = bytes(range(16))


def external(location, **keys):
    """y = x + w, w [4] in the file at `location`."""
    t = m.TensorProto(name="w", data_type=m.FLOAT, dims=[4], data_location=m.TensorProto.EXTERNAL)
    for key, v in {"location": location, **keys}.items():
        for one_value in v if isinstance(v, list) else [v]:
            t.external_data.add(key=key, value=one_value)
    return t


def add(t):
    return m.model([m.node("Add", "x w", "y")], initializers=[t])


def files(d):
    """What locations lead to: right files, and a secret beside the model's directory, which is `d`/models."""
    models = d / "models"
    (models / "sub").mkdir(parents=True)
    for path in (models / "ok.bin", models / "sub" / "ok.bin", d / "secret"):
        path.write_bytes(OK)
    (models / "link").symlink_to("../secret")
    (models / "inside").symlink_to("ok.bin")
    (models / "linked").symlink_to("..")
    os.link(d / "secret", models / "hard")
    os.mkfifo(models / "fifo")
    (models / "empty").write_bytes(b"")
    return models


def case(t):
    def make(d):
        (files(d) / "m.onnx").write_bytes(add(t).SerializeToString())
    return make


def in_constant(location):
    def make(d):
        made = m.model([m.node("Constant", "", "w", value=external(location)), m.node("Add", "x w", "y")])
        (files(d) / "m.onnx").write_bytes(made.SerializeToString())
    return make


def many(n):
    def make(d):
        tensors = []
        for i in range(n):
            t = external("ok.bin")
            t.name = f"w{i}"
            tensors.append(t)
        made = m.model([m.node("Add", "x w0", "y")], initializers=tensors)
        (files(d) / "m.onnx").write_bytes(made.SerializeToString())
    return make


def row(id, t, exit, text="", **how):
    return Row(id, t if callable(t) else case(t), exit, text, model="models/m.onnx", place="models/m.onnx", **how)


def at(location):
    return external(location)


LINKS = ["--allow-links"]
SHA1 = "56178b86a57fac22899a9964185c2cc96e7da589"  # sha1sum of the bytes 0 .. 15

ROWS = [
    row("D01", at("ok.bin"), 0),
    row("D01 sub", at("sub/ok.bin"), 0),
    row("D01 inside", at("sub/../ok.bin"), 0),
    row("D02", at("../secret"), 3, r"E0361\]"),
    row("D03", at("sub/../../secret"), 3, r"E0361\]"),
    *[row(f"D04 {l}", at(l), 3, r"E0361\]") for l in ("/etc/passwd", "file:///etc/passwd", "http://localhost/w")],
    row("D05", at("link"), 3, r"E0362\](.|\n)*--allow-links"),
    row("D05 inside", at("inside"), 3, r"E0362\]"),
    row("D05 allowed", at("link"), 0, args=LINKS),
    row("D06", at("linked/secret"), 3, r"E0362\]"),
    row("D07", at("hard"), 3, r"E0363\](.|\n)*--allow-links"),
    row("D07 allowed", at("hard"), 0, args=LINKS),
    *[row(f"D08 {l or 'empty'}", at(l), 3, r"E0364\]") for l in ("fifo", "sub", ".", "", "a\0b", "x" * 5000)],
    row("D08 fifo allowed", at("fifo"), 3, r"E0364\]", args=LINKS),
    row("D08 missing", at("nowhere.bin"), 6, r"E0601\].*No such file"),
    row("D08 none", m.TensorProto(name="w", data_type=1, dims=[4], data_location=1), 3, r"E036[47]\]"),
    *[row(f"D09 {o}", external("ok.bin", offset=o), 3, r"E036[56]\]")
      for o in ("-1", "abc", "", "0x10", "1e3", str(1 << 63), str(1 << 64), " 0", "+0")],
    *[row(f"D10 {n}", external("ok.bin", length=n), 3, r"E036[56]\]") for n in ("-1", str(1 << 60), str(1 << 64), "abc")],
    row("D11", external("ok.bin", offset=str((1 << 64) - 8), length="16"), 3, r"E036[56]\]"),
    row("D11 signed", external("ok.bin", offset=str((1 << 63) - 8), length="16"), 3, r"E036[56]\]"),
    row("D12", external("ok.bin", length="12"), 3, r"E0353\]"),
    row("D13", external("ok.bin", offset="17"), 3, r"E0366\]"),
    row("D13 one", external("ok.bin", offset="1"), 3, r"E0366\]"),
    row("D13 empty", at("empty"), 3, r"E0366\]"),
    row("D14 unknown", external("ok.bin", evil="1"), 3, r"E0367\]"),
    row("D14 twice", external(["ok.bin", "sub/ok.bin"]), 3, r"E0367\]"),
    row("D15", external("ok.bin", checksum="0" * 40), 8, r"E0368\]"),
    row("D15 right", external("ok.bin", checksum=SHA1), 0),
    row("D16", in_constant("../secret"), 3, r"E0361\]"),
    row("D16 right", in_constant("ok.bin"), 0),
    row("D17", at("*/_ORT_MEM_ADDR_/*"), 3, r"E0361\]"),
    row("D19", many(100000), 0, slow=True, seconds=60, mebibytes=1024),
]
