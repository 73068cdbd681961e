"""Elements of files in each type: NumPy has no bf16, which is two bytes without a meaning in a .npy file."""
NUMPY = {"f32": "f4", "f64": "f8", "fp16": "f2", "bool": "?"}


def narrow(x, dtype):
    """The array in the type; of bf16 the nearest, as bytes."""
    if dtype != "bf16":
        return x.astype(NUMPY[dtype])
    bits = x.astype("f4").view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2").view("V2")


def wide(x):
    """The numbers of such an array, as f64."""
    return ((x.view("u2").astype("u4") << 16).view("f4") if x.dtype.kind == "V" else x).astype("f8")
