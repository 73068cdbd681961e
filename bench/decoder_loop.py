"""The plain loop over an exported decoder: the prompt, then a token a step, with the outputs of a step that are named as
state fed back to the next. It knows the names that exporters write, and runs on whatever computes one step of a graph: a
function from {input: array} to {output: array}."""
import re

import numpy as np

TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}
# Inputs that are outputs of the step before, and inputs that the first pass or the encoder gives once and for all.
STATE = [(r"past_key_values\.(.*)", r"present.\1"), (r"past\.(.*)", r"present.\1"), (r"past_(key|value)_self_(\d+)", r"present_\1_self_\2"),
         (r"input\.(.*)", r"output.\1")]
FIRST = [(r"past_key_values\.(.*)", r"present.\1"), (r"past_(key|value)_cross_(\d+)", r"present_\1_cross_\2"), (r"input\.(.*)", r"\1")]
IDS = ("input_ids", "decoder_input_ids")


class Graph:
    """The inputs and outputs of a model: {name: (type of its elements, dimensions)}."""

    def __init__(self, path):
        import onnx
        model = onnx.load(path, load_external_data=False)
        given = {value.name for value in model.graph.initializer}
        self.path = path
        self.inputs = {value.name: self.described(value) for value in model.graph.input if value.name not in given}
        self.outputs = {value.name: self.described(value) for value in model.graph.output}

    @staticmethod
    def described(value):
        tensor = value.type.tensor_type
        return TYPES.get(tensor.elem_type), [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]

    def matches(self, patterns, outputs):
        """{input: the one of `outputs` that it is}"""
        found = {}
        for name in self.inputs:
            for pattern, output in patterns:
                if re.fullmatch(pattern, name) and re.sub(pattern, output, name) in outputs:
                    found.setdefault(name, re.sub(pattern, output, name))
        return found

    def state(self):
        return self.matches(STATE, self.outputs)

    def fixed(self, places):
        """{dimension: size} of caches that do not grow."""
        if any("past_sliding_length" in dims for _, dims in self.inputs.values()):  # of a window, in a buffer with room for all
            return {"past_sliding_length": places, "past_sequence_length": places, "total_sequence_length": f"1..{places}"}
        caches = [(self.inputs[name][1][2], self.outputs[output][1][2]) for name, output in self.state().items() if len(self.inputs[name][1]) == 4]
        if any(before != after for before, after in caches):
            return {}  # those that stay are of an encoder
        return {dim: places for dim, _ in caches if isinstance(dim, str) and not dim.isdigit()}

    def cross(self):
        """Caches of an encoder."""
        return [name for name in self.inputs if "cross" in name or ".encoder." in name]

    def ids(self):
        return next(name for name in IDS if name in self.inputs)


def fixed(dim):
    """A dimension of a fixed size may be written as text."""
    return int(dim) if str(dim).isdigit() else None


def nothing(graph, name, rows, sizes=()):
    """A state before the first step. `sizes`: of dimensions by name, such as a head's size."""
    kind, dims = graph.inputs[name]
    shape = [fixed(dim) if fixed(dim) is not None else rows if at == 0 else dict(sizes).get(dim, 0) for at, dim in enumerate(dims)]
    return np.zeros(shape, kind)


def positions_of(mask, new):
    """The positions of the last `new` columns of a mask, as transformers counts them."""
    return np.maximum(np.cumsum(mask, 1) - 1, 0)[:, -new:].astype(np.int64)


def seen(whole, past, new, places):
    """Which places of a cache each new token sees: [rows, 1, new, places]"""
    known = np.zeros((whole.shape[0], places), bool)
    known[:, :whole.shape[1]] = whole
    return known[:, None, None] & (np.arange(places)[None, None, None] <= np.arange(past, past + new)[None, None, :, None])


def filled(graph, given, whole, past, sizes=()):
    """The inputs that follow from the new ids, the mask of all tokens, and the number of those before."""
    feeds, new = {}, given.shape[1]
    ids = graph.inputs[graph.ids()][1]
    for name, (kind, dims) in graph.inputs.items():
        if name == graph.ids():
            feeds[name] = given.astype(kind)
        elif "mask" in name and len(dims) == 4:
            feeds[name] = seen(whole, past, new, sizes[dims[3]]).astype(kind)
        elif name in ("attention_mask", "decoder_attention_mask"):
            feeds[name] = (whole[:, -new:] if dims[1] == ids[1] else whole).astype(kind)  # of the new tokens alone, where no state grows
        elif name == "position_ids":
            feeds[name] = positions_of(whole, new).astype(kind)
        elif name == "cache_position":
            feeds[name] = np.arange(past, past + new).astype(kind)
        elif name == "use_cache_branch":
            feeds[name] = np.array([past > 0])
    return feeds


class Chooser:
    """The most probable token of each row, until all have ended."""

    def __init__(self, eos, pad, suppressed=(), at_begin=()):
        self.eos, self.pad, self.suppressed, self.at_begin = eos, pad, list(suppressed), list(at_begin)
        self.texts, self.gaps, self.ended = [], [], None

    def choose(self, logits):
        logits = logits.astype(np.float64)
        logits[:, self.suppressed + ([] if self.texts else self.at_begin)] = -np.inf
        best, chosen = np.sort(logits, 1), np.argmax(logits, 1)
        self.ended = np.zeros(len(chosen), bool) if self.ended is None else self.ended
        chosen[self.ended] = self.pad
        self.gaps.append(best[:, -1] - best[:, -2])
        self.texts.append(chosen)
        self.ended |= np.isin(chosen, self.eos)
        return chosen

    def done(self):
        return np.array(self.texts).T, np.array(self.gaps).T


def written(graph, step, ids, mask, new, chooser, constants=None, sizes=(), state=None):
    """The ids that a decoder writes after a prompt, [rows, at most `new`], and the distances of the first two logits. `mask`: of the
    prompt, whose rows are padded on either side. `constants`: inputs that stay, such as caches of an encoder. `state`: after a first
    pass over all of the prompt but its last token, else nothing."""
    rows, past = ids.shape[0], 0
    pairs = {name: output for name, output in graph.state().items() if name not in (constants or {})}
    right = bool((mask[:, 0] == 1).all() and not (mask == 1).all())
    whole, given = mask.copy(), ids
    if state is None:
        state = {name: nothing(graph, name, rows, sizes) for name in pairs}
    else:
        past, given = ids.shape[1] - 1, ids[:, -1:]
    while len(chooser.texts) < new and (chooser.ended is None or not chooser.ended.all()):
        feeds = {**filled(graph, given, whole, past, sizes), **(constants or {}), **state}
        missing = [name for name in graph.inputs if name not in feeds]
        if missing:
            raise KeyError(f"no value for input {missing[0]}")
        out = step({name: feeds[name] for name in graph.inputs})
        logits = out["logits"]
        at = mask.sum(1) - 1 if right and not past else np.full(rows, -1)
        chosen = chooser.choose(logits[np.arange(rows), at if logits.shape[1] > 1 else -1])
        state = {name: out[output] for name, output in pairs.items()}
        past += given.shape[1]
        given = chosen[:, None]
        whole = np.concatenate([whole, np.ones((rows, 1), whole.dtype)], 1)
    return chooser.done()


def sequence_written(parts, features, start, new, chooser, mask=None):
    """The same of an encoder-decoder. `parts`: {"encoder", "first", "later"}: (graph, step); without a first pass the decoder begins with
    empty caches of its own. `features`: the encoder's input, `mask`: of it, where it has one."""
    encoder, encode = parts["encoder"]
    rows = len(features)
    feeds = {name: features.astype(kind) for name, (kind, _) in encoder.inputs.items() if "mask" not in name}
    masks = {name: mask.astype(kind) for name, (kind, _) in encoder.inputs.items() if "mask" in name}
    coded = encode({**feeds, **masks})
    hidden = next(value for name, value in coded.items() if "hidden_state" in name)
    later, step = parts["later"]
    known = {"encoder_hidden_states": hidden, "encoder_outputs.last_hidden_state": hidden}
    if mask is not None:
        known.update(encoder_attention_mask=mask, attention_mask=mask)
    ids = np.full((rows, 1), start, np.int64)
    state, pairs = None, later.state()
    if "first" in parts:
        first, run = parts["first"]
        known_now = {**filled(first, ids, np.ones((rows, 1), np.int64), 0), **known}
        given = {name: known_now[name] if name in known_now else nothing(first, name, rows) for name in first.inputs}
        out = run({name: value.astype(first.inputs[name][0]) for name, value in given.items()})
        chosen = chooser.choose(out["logits"][:, -1])
        made = {name: out[output] for name, output in later.matches(FIRST, first.outputs).items()}
        state = {name: made[name] for name in pairs if name in made and "cross" not in name and ".encoder." not in name}
        known.update({name: value for name, value in made.items() if name not in state})
        ids = np.concatenate([ids, chosen[:, None]], 1)
    known.update({name: coded[output] for name, output in later.matches(FIRST, encoder.outputs).items()})
    constants = {name: value.astype(later.inputs[name][0]) for name, value in known.items() if name in later.inputs}
    return written(later, step, ids, np.ones(ids.shape, np.int64), new, chooser, constants, state=state)
