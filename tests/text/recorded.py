#!/usr/bin/python3
"""Ids and texts of small tokenizers are those that the package `tokenizers` gave: recorded/, which package.py --record wrote.

    recorded.py --tokenize PROGRAM [NAME...]"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import parser_of  # noqa: E402

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")


def differences(expected, got):
    """The names of what differs. Of a stream the number of characters of each step is recorded; the package's may have failed,
    and has fewer steps then."""
    wrong = [key for key in ("ids", "plain", "text", "skipped") if expected[key] != got.get(key)]
    stream, steps = got.get("stream", []), expected["stream"]
    if [len(step) for step in stream[:len(steps)]] != steps:
        wrong.append("stream")
    if len(steps) == len(expected["ids"]) and "".join(stream) != expected["text"]:
        wrong.append("stream")
    return wrong


def check(program, name):
    with open(os.path.join(RECORDED, f"{name}.jsonl"), encoding="ascii") as file:
        cases = [json.loads(line) for line in file]
    done = subprocess.run([program, os.path.join(RECORDED, f"{name}.json")], input="".join(case["line"] + "\n" for case in cases),
                          capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or done.stderr or len(results) != len(cases):
        print(f"{name}: exit status {done.returncode}\n{done.stderr}")
        return 1
    wrong = 0
    for case, got in zip(cases, results):
        for key in differences(case, got):
            print(f"{name}: {bytes.fromhex(case['line'])!r}: {key}\n    recorded {case[key]}\n    now      {got.get(key, got)}")
            wrong += 1
    return wrong


def expression_tokenizer(expression):
    """Its ids show where a text is split: each piece begins with a mark."""
    tokens = ["<unk>", "\u2581", *(f"<0x{byte:02X}>" for byte in range(256))]
    return {"model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False},
                {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}]}}


def marks_of(ids):
    """Where the ids have marks, and how many there are: the others are the bytes of the text."""
    return [*(i for i, token in enumerate(ids) if token == 1), len(ids)]


# Not supported, as refused.py has it for others.
REFUSED = ("(?i:\u00df)", "(?<first>a)\\k<first>", "(?#comment)a")


def check_expression(program, work, texts, expression, marks):
    path = os.path.join(work, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(expression_tokenizer(expression), file)
    done = subprocess.run([program, path], input="".join(text + "\n" for text in texts), capture_output=True, text=True, check=False)
    got = [marks_of(json.loads(line).get("ids", [])) for line in done.stdout.splitlines()]
    good = done.returncode == 4 if expression in REFUSED else got == marks
    if not good:
        print(f"expression {expression}: {done.stderr}\n    recorded {marks}\n    now      {got}")
    return not good


def check_expressions(program):
    with open(os.path.join(RECORDED, "expressions.txt"), encoding="ascii") as file, tempfile.TemporaryDirectory() as work:
        texts, *cases = [json.loads(line) for line in file]
        return sum(check_expression(program, work, texts, *case) for case in cases)


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--tokenize", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or sorted(name[:-5] for name in os.listdir(RECORDED) if name.endswith(".json"))
    wrong = sum(check(args.tokenize, name) for name in names)
    if not args.names:
        wrong += check_expressions(args.tokenize)
    print(f"{len(names)} tokenizers, {wrong} differences")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
