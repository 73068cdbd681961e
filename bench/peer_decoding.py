#!/usr/bin/env python3
"""Times the decoding of another runtime: peer_decoding.py RUNTIME MODEL THREADS PROMPT.npy NEW

RUNTIME is llama.cpp, with a GGUF file, or genai (onnxruntime-genai), with the folder of its builder. Prints what `rankc generate --json`
prints of its speed: tokens/s of the prompt and of the NEW tokens behind the first, chosen greedily, and their ids."""
import json
import sys
import time

import numpy as np


def llama(path, threads, ids, new):
    import llama_cpp as c
    silent = c.llama_log_callback(lambda level, text, data: None)
    c.llama_log_set(silent, None)
    c.llama_backend_init()
    model = c.llama_model_load_from_file(path.encode(), c.llama_model_default_params())
    asked = c.llama_context_default_params()
    asked.n_ctx = len(ids) + new + 8
    asked.n_batch = asked.n_ubatch = len(ids)
    asked.n_threads = asked.n_threads_batch = threads
    context = c.llama_init_from_model(model, asked)
    vocabulary = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))

    def step(tokens):
        given = (c.llama_token * len(tokens))(*tokens)
        if c.llama_decode(context, c.llama_batch_get_one(given, len(tokens))):
            sys.exit("llama_decode failed")
        return int(np.ctypeslib.as_array(c.llama_get_logits_ith(context, -1), (vocabulary,)).argmax())

    step(ids)  # the first computation makes threads and buffers
    c.llama_memory_clear(c.llama_get_memory(context), True)
    step.kept = silent
    return step


def genai(path, threads, ids, new):
    import onnxruntime_genai as og
    config = og.Config(path)
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
    model = og.Model(config)

    def generator():
        asked = og.GeneratorParams(model)
        asked.set_search_options(max_length=len(ids) + new + 8, do_sample=False)
        return og.Generator(model, asked)

    generator().append_tokens(ids)  # likewise
    made, begun = generator(), []

    def step(tokens):
        if not begun:  # later tokens are in its state
            made.append_tokens(tokens)
            begun.append(True)
        made.generate_next_token()
        return int(made.get_next_tokens()[0])
    return step


def main():
    runtime, model, threads, prompt, new = sys.argv[1:]
    ids = np.load(prompt)[0].tolist()
    step = {"llama.cpp": llama, "genai": genai}[runtime](model, int(threads), ids, int(new))
    times, chosen = [time.perf_counter()], []
    for _ in range(int(new)):
        chosen.append(step(ids if not chosen else chosen[-1:]))
        times.append(time.perf_counter())
    print(json.dumps({"ids": [chosen], "prompt_tokens_per_s": len(ids) / (times[1] - times[0]),
                      "tokens_per_s": (int(new) - 1) / (times[-1] - times[1])}))


if __name__ == "__main__":
    main()
