#!/usr/bin/env python3
"""Export small models of the newest diffusers in every form of the newest PyTorch, as export_today.py does.

    export_diffusers_today.py --out DIR [--forms FORM,..] [NAME...]

Besides what export_today.py needs, it needs diffusers from pip (written for 0.42)."""
import diffusers
from torch import nn

import export_modules_today
import export_today

UNET = dict(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=4,
            attention_head_dim=8)
VAE = dict(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
           block_out_channels=(8, 16), latent_channels=4, norm_num_groups=4, sample_size=16)


class Called(nn.Module):
    """A model, and how it is called to give one tensor."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *arguments):
        return self.call(self.model, *arguments)


def first(model, *arguments):
    return model(*arguments, return_dict=False)[0]


def unet():
    return diffusers.UNet2DModel(**UNET, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))


def unet_of_text():
    return diffusers.UNet2DConditionModel(**UNET, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                          up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=24)


def dit():
    return diffusers.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2,
                                           sample_size=8, patch_size=2, num_embeds_ada_norm=100, norm_num_groups=4)


def inputs(**shapes):
    """Values of each shape; integers are indices below 10."""
    def make(random):
        return {name: random.integers(0, 10, shape) if len(shape) == 1 else random.standard_normal(shape).astype("float32")
                for name, shape in shapes.items()}

    return make


IMAGE, LATENT = (2, 3, 16, 16), (2, 4, 8, 8)
MODELS = {
    "diffusers_unet": (unet, first, inputs(x=IMAGE, t=(2,))),
    "diffusers_unet_of_text": (unet_of_text, first, inputs(x=IMAGE, t=(2,), c=(2, 5, 24))),
    "diffusers_vae_decoder": (lambda: diffusers.AutoencoderKL(**VAE), lambda m, z: m.decode(z, return_dict=False)[0], inputs(z=LATENT)),
    "diffusers_vae_encoder": (lambda: diffusers.AutoencoderKL(**VAE), lambda m, x: m.encode(x).latent_dist.mode(), inputs(x=IMAGE)),
    "diffusers_dit": (dit, first, inputs(x=LATENT, t=(2,), c=(2,))),
}


def model_of(name):
    build, call, make_inputs = MODELS[name]
    return Called(build(), call), make_inputs


if __name__ == "__main__":
    export_today.main(MODELS, model_of, export_modules_today.draw, __doc__)
