"""The share of a model's weights that a rank holds, under tp and pp, with and without prefer=memory.

    weights_per_rank.py --rankc RANKC --models DIR [--export] [--table PAGE.md]

--export writes the models to DIR first, with random weights; this needs torch and torchvision. A share is that of the rank
with the most weights. Communication is that of a step."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import json_of, parser_of  # noqa: E402

PLANS = ["tp:tensor=2", "tp:tensor=2,prefer=memory", "tp:tensor=4", "tp:tensor=4,prefer=memory", "pp:pipeline=2", "pp:pipeline=2,prefer=memory"]


def export(folder):
    import torch
    import torchvision
    models = torchvision.models

    class Detection(torch.nn.Module):
        """DETR's structure: a ResNet, a transformer over its features and learned queries, two heads."""

        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(*list(models.resnet50(weights=None).children())[:-2])
            self.project = torch.nn.Conv2d(2048, 256, 1)
            self.transformer = torch.nn.Transformer(256, 8, 6, 6, 2048, 0.0, batch_first=True)
            self.queries, self.places = torch.nn.Parameter(torch.rand(100, 256)), torch.nn.Parameter(torch.rand(1, 256, 256))
            self.classes, self.boxes = torch.nn.Linear(256, 92), torch.nn.Linear(256, 4)

        def forward(self, x):
            features = self.project(self.body(x)).flatten(2).permute(0, 2, 1)
            found = self.transformer(features + self.places, self.queries.unsqueeze(0))
            return self.classes(found), self.boxes(found).sigmoid()

    class Segmentation(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)

        def forward(self, x):
            return self.model(x)["out"]

    for name, make, size in (("convnext_tiny", models.convnext_tiny, 224), ("deeplabv3_resnet50", Segmentation, 520), ("detr", Detection, 512),
                             ("efficientnet_v2_s", models.efficientnet_v2_s, 384), ("resnet50", models.resnet50, 224), ("vit_b_16", models.vit_b_16, 224)):
        torch.onnx.export(make().eval(), (torch.randn(1, 3, size, size),), os.path.join(folder, f"{name}.onnx"), dynamo=True, verbose=False)


def measure(rankc, model, *options):
    shown = json_of(rankc, "show", model, "--json", "-q", *options)
    return max(rank["memory"]["weights"] for rank in shown["ranks"]), sum(item["bytes"] for item in shown["communication"])


def rows(rankc, folder):
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".onnx"):
            continue
        model = os.path.join(folder, file)
        whole, _ = measure(rankc, model)
        shares = [(weights / whole, moved) for weights, moved in (measure(rankc, model, "--pas", plan) for plan in PLANS)]
        yield f"| {file[:-5]} | {whole / 1e6:.0f} MB | " + " | ".join(f"{share:.2f} ({moved / 1e6:.0f} MB)" for share, moved in shares) + " |"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--models", required=True)
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--table")
    options = parser.parse_args()
    if options.export:
        export(options.models)
    table = ["| model | weights | " + " | ".join(PLANS) + " |", "|---" * (len(PLANS) + 2) + "|", *rows(options.rankc, options.models)]
    print("\n".join(table))
    if not options.table:
        return
    with open(options.table) as page:
        before, _, rest = page.read().partition("<!-- table -->\n")
    with open(options.table, "w") as page:
        page.write(before + "<!-- table -->\n" + "\n".join(table) + "\n" + rest[rest.index("\n\n"):].removeprefix("\n"))


if __name__ == "__main__":
    main()
