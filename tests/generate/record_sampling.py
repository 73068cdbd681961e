#!/usr/bin/env python3
"""Records what transformers' logits processors make of logits: record_sampling.py > sampling.json

The processors are those of generate(), in its order. Needs torch and transformers; the tests read the recorded file."""
import json

import torch
import transformers
from transformers.generation import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                                     TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

VOCABULARY = 48

CASES = [  # temperature, top_k, top_p, min_p, repetition_penalty
    (1.0, 0, 1.0, 0.0, 1.0),
    (0.7, 0, 1.0, 0.0, 1.0),
    (1.0, 5, 1.0, 0.0, 1.0),
    (1.0, 1, 1.0, 0.0, 1.0),
    (1.0, 100, 1.0, 0.0, 1.0),
    (1.0, 0, 0.9, 0.0, 1.0),
    (1.0, 0, 0.5, 0.0, 1.0),
    (1.0, 0, 0.01, 0.0, 1.0),
    (1.5, 0, 0.95, 0.0, 1.0),
    (1.0, 0, 1.0, 0.1, 1.0),
    (1.0, 0, 1.0, 0.9, 1.0),
    (0.8, 20, 0.9, 0.05, 1.0),
    (1.0, 0, 1.0, 0.0, 1.3),
    (0.6, 10, 0.8, 0.02, 1.1),
    (1.2, 0, 0.7, 0.0, 0.8),
]


def processors(temperature, top_k, top_p, min_p, penalty):
    chosen = LogitsProcessorList()
    if penalty != 1:
        chosen.append(RepetitionPenaltyLogitsProcessor(penalty))
    if temperature != 1:
        chosen.append(TemperatureLogitsWarper(temperature))
    if top_k:
        chosen.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        chosen.append(TopPLogitsWarper(top_p))
    if min_p:
        chosen.append(MinPLogitsWarper(min_p))
    return chosen


def logits(kind, generator):
    values = torch.randn(VOCABULARY, generator=generator) * 3
    if kind == "ties":  # of top-k; top-p leaves open which of equal scores go
        values = torch.round(values)
    if kind == "hidden":
        values[::3] = -float("inf")
    return values


def main():
    generator = torch.Generator().manual_seed(1)
    records = []
    for case in CASES:
        for kind in ("plain", "ties", "hidden"):
            if kind == "ties" and (case[2] < 1):
                continue
            scores = logits(kind, generator)
            seen = torch.randint(0, VOCABULARY, (7,), generator=generator)
            processed = processors(*case)(seen[None], scores[None].clone())[0]
            records.append({"case": case, "kind": kind, "seen": seen.tolist(),
                            "scores": [None if value == -float("inf") else value for value in scores.tolist()],
                            "processed": [None if value == -float("inf") else value for value in processed.tolist()]})
    lines = ",\n".join(json.dumps(record) for record in records)
    print(f'{{"transformers": "{transformers.__version__}", "vocabulary": {VOCABULARY}, "records": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
