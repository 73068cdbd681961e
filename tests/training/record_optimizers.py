#!/usr/bin/env python3
"""Record how PyTorch trains a model of record.py with other optimizers than the model's own.

    record_optimizers.py [--out DIR] [NAME...]

writes DIR/NAME.json (optimizers/ if there is no --out), per optimizer (all of them if no NAME is given): the model, the options of
`rankc compile`, and for each number of micro-batches per step the losses and gradient norms of 20 steps, in f32 and in f64. It
needs PyTorch 2.9 or later, torchvision, lion-pytorch and torchao."""
import contextlib
import copy
import json
import os
import pathlib
import sys
from unittest import mock

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # torchao's optimizers as they are written

import torch
import torchao.optim
from lion_pytorch import Lion
from torchao.optim import quant_utils, subclass_8bit

from harness import parser_of
from record import CASES, Case, make, reference_of

F32 = torch.float32  # whatever its name stands for while a run in f64 is recorded
MICRO_BATCHES = (1, 2)  # of one or two units that accumulate 1, or of one that accumulates 2
MORE_MICRO_BATCHES = (1, 2, 4)


def of_torch(name, **options):
    return lambda module: getattr(torch.optim, name)(module.parameters(), **options)


class Muon(torch.optim.Muon):
    """PyTorch's Muon of matrices, in their own precision instead of bf16, and AdamW of all other parameters."""

    def __init__(self, module, others, rest, **options):
        named = list(module.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and not any(other in name for other in others)]
        super().__init__(matrices, **options)
        self.rest = torch.optim.AdamW([p for _, p in named if all(p is not matrix for matrix in matrices)], **rest)

    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)
        self.rest.zero_grad(set_to_none)

    def step(self, closure=None):
        with mock.patch.object(torch, "bfloat16", self.param_groups[0]["params"][0].dtype):
            super().step(closure)
        self.rest.step(closure)


class Averaged:
    """AdamW, and an exponential moving average of the parameters."""
    made = []

    def __init__(self, module, decay, **options):
        self.module, self.optimizer = module, torch.optim.AdamW(module.parameters(), **options)
        self.defaults, self.param_groups = self.optimizer.defaults, self.optimizer.param_groups
        self.zero_grad = self.optimizer.zero_grad
        self.average = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay))
        self.steps = []  # the averages after each step
        self.made.append(self)

    def step(self):
        self.optimizer.step()
        self.average.update_parameters(self.module)
        self.steps.append(copy.deepcopy(self.average))


def in_own_precision(dtype):
    """torchao computes in f32; in f64 if parameters are. The table of codes is computed in f64, and is of f32: in f32 its last
    bit depends on the processor."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    subclass_8bit.get_qmap_signed(), subclass_8bit.get_qmap_unsigned()
    torch.set_default_dtype(default)
    decode, encode = quant_utils.dequant_with_qmap, quant_utils.quantize_8bit_with_qmap
    number = torch.tensor
    return (mock.patch.object(torch.Tensor, "float", lambda x: x.to(dtype)),
            mock.patch.object(torch, "tensor", lambda value, **options: number(value, **{"dtype": dtype, **options})),
            mock.patch.object(subclass_8bit, "dequant_with_qmap", lambda codes, table, scale: decode(codes, table.to(F32).to(dtype), scale.to(dtype))),
            mock.patch.object(subclass_8bit, "quantize_8bit_with_qmap", lambda x, table: encode(x, table.to(F32).to(dtype))))


class InBlocks:
    """An optimizer whose states of that name are kept in blocks of 8 bits, as torchao's Adam8bit keeps them: `moment` None is one of
    torchao's, which does that by itself."""

    def __init__(self, optimizer, moment=None):
        self.optimizer, self.moment, self.blocks = optimizer, moment, {}
        self.defaults, self.param_groups, self.zero_grad = optimizer.defaults, optimizer.param_groups, optimizer.zero_grad
        for group in self.param_groups if moment is None else []:
            group["lr"] = torch.tensor(self.defaults["lr"], dtype=torch.float64)

    def step(self):
        with contextlib.ExitStack() as stack, torch.no_grad():
            for patch in in_own_precision(self.param_groups[0]["params"][0].dtype):
                stack.enter_context(patch)
            for parameter, blocks in self.blocks.items():
                self.optimizer.state[parameter][self.moment].copy_(blocks.dequantize())
            self.optimizer.step()
            for parameter in self.param_groups[0]["params"]:
                if self.moment and parameter.numel() >= 4096 and parameter.numel() % 256 == 0:
                    blocks = self.blocks.setdefault(parameter, subclass_8bit.OptimState8bit.zeros(parameter.shape))
                    blocks.copy_(self.optimizer.state[parameter][self.moment])


class In16Bits:
    """An optimizer whose gradients are .grad in bf16, to which each micro-batch adds."""

    def __init__(self, module, optimizer):
        self.parameters, self.optimizer = list(module.parameters()), optimizer
        self.defaults, self.param_groups, self.step = optimizer.defaults, optimizer.param_groups, optimizer.step

    def zero_grad(self):
        self.optimizer.zero_grad()
        for parameter in self.parameters:
            parameter.grad_dtype = torch.bfloat16


def widened_norm(parameters, most, clip=torch.nn.utils.clip_grad_norm_):
    """The norm, and updates, are of the sums in the parameters' precision."""
    parameters = list(parameters)
    for parameter in parameters:
        gradient, parameter.grad = parameter.grad, None
        parameter.grad_dtype = parameter.dtype
        parameter.grad = None if gradient is None else gradient.to(parameter.dtype)
    return clip(parameters, most)


def losses_of_averages(average, data, batch):
    """The losses of the first micro-batch, and of all whole micro-batches, with the averages after every fifth step."""
    samples = len(next(iter(data.values()))) // batch * batch
    micro_batches = [[torch.from_numpy(value[i:i + batch]) for value in data.values()] for i in range(0, samples, batch)]
    with torch.no_grad():
        losses = [[module(*arguments).item() for arguments in micro_batches] for module in average.steps[4::5]]
    return {"averaged_loss": losses[-1][0], "averaged_eval_loss": [sum(row) / len(row) for row in losses]}


# Rounded to codes, differences of f32's rounding are not small any more: two programs have the same codes in f64.
IN_F64 = ["--moments-dtype", "int8", "--dtype", "f64"]

# Name: the model, the optimizer as rankc takes it, what makes it, and further options of rankc.
OPTIMIZERS = {
    "averaged": ("gpt2", "adamw:lr=0.003", lambda m: Averaged(m, 0.9, lr=0.003), ["--ema", "0.9"]),
    "adafactor": ("gpt2", "adafactor:lr=0.03,eps1=1e-6", of_torch("Adafactor", lr=0.03, eps=(1e-6, 1e-3))),
    "adafactor_decayed": ("cnn", "adafactor:lr=0.01,beta2_decay=-0.5,eps1=1e-5,eps2=0.01,d=1.5,weight_decay=0.1",
                          of_torch("Adafactor", lr=0.01, beta2_decay=-0.5, eps=(1e-5, 0.01), d=1.5, weight_decay=0.1)),
    "muon": ("gpt2", "muon:lr=0.01", lambda m: Muon(m, [], {"lr": 0.01, "weight_decay": 0.1}, lr=0.01)),
    "muon_matched": ("gpt2", "muon:lr=0.005,momentum=0.8,nesterov=0,ns_steps=3,weight_decay=0.01,adjust_lr_fn=match_rms_adamw",
                     lambda m: Muon(m, ["wte", "wpe"], {"lr": 0.001, "betas": (0.9, 0.95), "weight_decay": 0}, lr=0.005, momentum=0.8,
                                    nesterov=False, ns_steps=3, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
                     ["--param", "*w[tp]e*:optimizer=adamw,lr=0.001,beta2=0.95,weight_decay=0",
                      "--param", "*bias:optimizer=adamw,lr=0.001,beta2=0.95,weight_decay=0",
                      "--param", "*ln_*:optimizer=adamw,lr=0.001,beta2=0.95,weight_decay=0"]),
    "muon_llama": ("llama", "muon:lr=0.002,ns_a=2,ns_b=-1.5,ns_c=0.5,adjust_lr_fn=spectral_unclamped",
                   lambda m: Muon(m, ["embed", "lm_head"], {"lr": 0.001, "weight_decay": 0.1}, lr=0.002, ns_coefficients=(2, -1.5, 0.5),
                                  adjust_lr_fn="spectral_unclamped"),
                   ["--param", "*embed*:optimizer=adamw,lr=0.001,weight_decay=0.1",
                    "--param", "*lm_head*:optimizer=adamw,lr=0.001,weight_decay=0.1",
                    "--param", "*norm*:optimizer=adamw,lr=0.001,weight_decay=0.1"]),

    "adamw_int8": ("mlp_blocks", "adamw:lr=0.001,weight_decay=0.1",
                   lambda m: InBlocks(torchao.optim.AdamW8bit(m.parameters(), lr=0.001, weight_decay=0.1)), IN_F64),
    "adam_int8": ("mlp_blocks", "adam:lr=0.0005,eps=0.001,weight_decay=0.01",
                  lambda m: InBlocks(torchao.optim.Adam8bit(m.parameters(), lr=0.0005, eps=0.001, weight_decay=0.01)), IN_F64),
    "lion_int8": ("mlp_blocks", "lion:lr=0.0003,weight_decay=0.1",
                  lambda m: InBlocks(Lion(m.parameters(), lr=0.0003, weight_decay=0.1), "exp_avg"), IN_F64),
    "sgd_int8": ("mlp_blocks", "sgd:lr=0.05,momentum=0.9",
                 lambda m: InBlocks(torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9), "momentum_buffer"), IN_F64),
    # In f64, where a sum that is rounded to bf16 otherwise does not fall to the other side.
    "adamw_grad_bf16": ("gpt2", "adamw:lr=0.001,weight_decay=0.1",
                        lambda m: In16Bits(m, torch.optim.AdamW(m.parameters(), lr=0.001, weight_decay=0.1)),
                        ["--grad-accum-dtype", "bf16", "--dtype", "f64"]),
    "lion": ("gpt2", "lion:lr=0.0003,weight_decay=0.1", lambda m: Lion(m.parameters(), lr=0.0003, weight_decay=0.1)),
    "rmsprop": ("gpt2", "rmsprop:lr=0.001,weight_decay=0.01", of_torch("RMSprop", lr=0.001, weight_decay=0.01)),
    "rmsprop_momentum": ("gpt2", "rmsprop:lr=0.0005,alpha=0.95,momentum=0.9,eps=1e-6",
                         of_torch("RMSprop", lr=0.0005, alpha=0.95, momentum=0.9, eps=1e-6)),
    "rmsprop_centered": ("gpt2", "rmsprop:lr=0.001,centered=1,eps=1e-4", of_torch("RMSprop", lr=0.001, centered=True, eps=1e-4)),
    "rmsprop_all": ("gpt2", "rmsprop:lr=0.0005,centered=1,eps=1e-4,momentum=0.8,weight_decay=0.1",
                    of_torch("RMSprop", lr=0.0005, centered=True, eps=1e-4, momentum=0.8, weight_decay=0.1)),
    "adam_amsgrad": ("gpt2", "adam:lr=0.002,beta2=0.9,weight_decay=0.01,amsgrad=1",
                     of_torch("Adam", lr=0.002, betas=(0.9, 0.9), weight_decay=0.01, amsgrad=True)),
    "adamw_amsgrad": ("gpt2", "adamw:lr=0.003,beta2=0.9,weight_decay=0.1,amsgrad=1",
                      of_torch("AdamW", lr=0.003, betas=(0.9, 0.9), weight_decay=0.1, amsgrad=True)),
}


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "optimizers")
    parser.add_argument("names", metavar="NAME", nargs="*", choices=[*OPTIMIZERS, []])
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    for name in options.names or OPTIMIZERS:
        model, text, make_optimizer, *more = OPTIMIZERS[name]
        case = Case(*CASES[model])._replace(optimizer=text, make_optimizer=make_optimizer, options=more[0] if more else ())
        module, data = make(model, case)
        counts = MORE_MICRO_BATCHES if "--grad-accum-dtype" in case.options else MICRO_BATCHES
        with mock.patch.object(torch.nn.utils, "clip_grad_norm_", widened_norm):
            reference = {"model": model, "batch": case.data[0], **reference_of(model, case, module, data, counts)}
        if Averaged.made:
            averages = iter(Averaged.made)
            for runs in reference["steps"].values():
                for run in runs.values():
                    run.update(losses_of_averages(next(averages), data, case.data[0]))
            Averaged.made.clear()
        (options.out / f"{name}.json").write_text(json.dumps(reference) + "\n")
        print(name, reference["steps"][1]["f64"]["loss"][::6], flush=True)


if __name__ == "__main__":
    sys.exit(main())
