#!/usr/bin/env python3
"""Record how PyTorch trains small models of transformers on labels that do not all count, and on documents of several lengths.

    record_data.py [--out DIR]

writes, for the models gpt2 and llama,

    DIR/data/MODEL/model.onnx       the exported model: tokens and their positions to logits
    DIR/data/MODEL/tokens/*.npy     samples, those that begin with eval_ for evaluation; and packed/*.npy, of case packed
    DIR/data/MODEL/weights.npy      weights of classes, of case weighted
    DIR/data/MODEL/reference.json   for each case the losses and gradient norms of STEPS steps in f64, and the loss in evaluation
                                    after them

Case tokens: a step has MICRO_BATCHES micro-batches, with as many labels as COUNTS says. For PyTorch they are one batch, whose loss
is the mean over its labels. Case weighted: the same with weights of classes. Case padding: token PADDING is the embedding's
padding_idx. Case packed: a row of tokens has documents one behind
the other, whose positions begin with 0. For PyTorch each document is a row of its own.

Needs torch, onnx, onnxscript and transformers (written for 2.15 and 5.24)."""
import argparse
import copy
import json
import pathlib
import warnings

import numpy
import onnx
import torch
import transformers

VOCABULARY, STEPS, MICRO_BATCHES, BATCH, LENGTH, CLIP, EVALUATED, PADDING = 67, 4, 4, 2, 16, 0.5, 7, 3
# eps is large beside the rounding of gradients, which else makes steps of gradients that are nearly 0
OPTIMIZER = {"lr": 0.001, "weight_decay": 0.05, "eps": 1e-4}
COUNTS = ((7, 0, 31, 2), (32, 32, 32, 32), (0, 0, 1, 0), (3, 20, 11, 9))
DOCUMENTS = ((16,), (5, 11), (1, 7, 8), (9, 2, 5), (4, 4, 4, 4), (15, 1), (3, 13), (10, 6))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        attn_implementation="eager"))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=LENGTH, attn_implementation="eager"))


class Logits(torch.nn.Module):
    """What is exported: the logits of tokens with positions, with the names of the model's own modules."""

    def __new__(cls, model):
        forward = type(model).forward
        model.forward = lambda input_ids, position_ids: forward(model, input_ids=input_ids, position_ids=position_ids,
                                                                use_cache=False).logits
        return model


def export(model, path, *given):
    model = copy.deepcopy(model).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Logits(model), given, str(path), input_names=["input_ids", "position_ids"], output_names=["logits"],
                          external_data=False, verbose=False)
    exported = onnx.load(path)
    for node in exported.graph.node:  # names of files of the machine
        for entry in [entry for entry in node.metadata_props if entry.key.endswith("stack_trace")]:
            node.metadata_props.remove(entry)
    onnx.save(exported, path)


def loss_of(model, ids, positions, labels, **options):
    """The sum of the losses and of the weights of the labels that count."""
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    weights = options.get("weight", torch.ones(VOCABULARY, dtype=torch.float64))
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1), reduction="sum", **options)
    return loss, weights[labels[labels != -100]].sum()


def of_documents(model, ids, positions, labels):
    """The same, with each document as a row of its own."""
    loss = count = 0
    for row in range(len(ids)):
        starts = [*torch.nonzero(positions[row] == 0).flatten().tolist(), LENGTH]
        for start, end in zip(starts, starts[1:]):
            part = slice(start, end)
            own = loss_of(model, ids[row:row + 1, part], positions[row:row + 1, part], labels[row:row + 1, part])
            loss, count = loss + own[0], count + own[1]
    return loss, count


def run(model, data, sums):
    """Losses and gradient norms, before clipping, of STEPS steps of AdamW, and the loss in evaluation after them."""
    model = model.double()
    parameters = list(model.parameters())
    optimizer, losses, norms, step = torch.optim.AdamW(parameters, **OPTIMIZER), [], [], MICRO_BATCHES * BATCH
    for first in range(0, STEPS * step, step):
        loss, count = sums(model, *(data[name][first:first + step] for name in ("input_ids", "position_ids", "labels")))
        optimizer.zero_grad()
        (loss / count).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, CLIP)))
        losses.append(float((loss / count).detach()))
        optimizer.step()
    with torch.no_grad():
        loss, count = sums(model, *(data["eval_" + name] for name in ("input_ids", "position_ids", "labels")))
    return {"loss": losses, "grad_norm": norms, "eval_loss": float(loss / count)}


def labels_of(random, counts):
    """Labels of rows of two samples each, of which as many count as `counts` says."""
    labels = random.integers(0, VOCABULARY, (len(counts), BATCH * LENGTH))
    for row, count in zip(labels, counts):
        row[random.permutation(BATCH * LENGTH)[count:]] = -100
    return labels.reshape(-1, LENGTH)


def packed_positions(rows):
    return numpy.stack([numpy.concatenate([numpy.arange(n) for n in DOCUMENTS[row % len(DOCUMENTS)]]) for row in range(rows)])


def samples(random, case):
    rows = STEPS * MICRO_BATCHES * BATCH
    counts = [count for step in COUNTS for count in step]
    data = {"input_ids": random.integers(0, VOCABULARY, (rows, LENGTH)), "labels": labels_of(random, counts),
            "position_ids": numpy.tile(numpy.arange(LENGTH), (rows, 1)),
            "eval_input_ids": random.integers(0, VOCABULARY, (EVALUATED, LENGTH)),
            "eval_labels": labels_of(random, (9, 30, 3, 5))[:EVALUATED],
            "eval_position_ids": numpy.tile(numpy.arange(LENGTH), (EVALUATED, 1))}
    if case == "packed":
        for before in "", "eval_":
            ids = data[before + "input_ids"]
            positions = data[before + "position_ids"] = packed_positions(len(ids))
            following = numpy.concatenate([ids[:, 1:], numpy.full((len(ids), 1), -100)], 1)
            ends = numpy.concatenate([positions[:, 1:] == 0, numpy.full((len(ids), 1), True)], 1)
            data[before + "labels"] = numpy.where(ends, -100, following)
    return data


def record(folder, make):
    random = numpy.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    weights = random.uniform(0.25, 2, VOCABULARY).astype("f4")
    numpy.save(folder / "weights.npy", weights)
    options = {"weight": torch.from_numpy(weights).double()}
    cases = {"tokens": loss_of, "weighted": lambda *of: loss_of(*of, **options), "packed": of_documents, "padding": loss_of}
    reference = {"optimizer": "adamw:" + ",".join(f"{k}={v}" for k, v in OPTIMIZER.items()), "clip_grad_norm": CLIP, "cases": {}}
    for name, sums in cases.items():
        torch.manual_seed(7)
        model = make().train()
        with torch.no_grad():  # the exporter merges vectors of equal values
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape) * (parameter.ndim == 1)
        model.get_input_embeddings().padding_idx = PADDING if name == "padding" else None
        data = samples(numpy.random.default_rng(6), name)
        kept = folder / ("packed" if name == "packed" else "tokens")
        kept.mkdir(exist_ok=True)
        for key, values in data.items():
            numpy.save(kept / f"{key}.npy", values)
        data = {key: torch.from_numpy(values) for key, values in data.items()}
        if name == "tokens":
            export(model, folder / "model.onnx", data["input_ids"][:BATCH], data["position_ids"][:BATCH])
        reference["cases"][name] = run(model, data, sums)
    (folder / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    options = parser.parse_args()
    for name, make in {"gpt2": gpt2, "llama": llama}.items():
        record(options.out / "data" / name, make)


if __name__ == "__main__":
    main()
