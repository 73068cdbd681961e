"""Plans by name: the one vocabulary of all tests. A plan is a word:

    one                 one rank
    tp2 pp2 data2 context2 expert2
                        so many ranks along that axis
    tp2data2 tp2pp2     a mesh, its first axis fastest
    dp2 tp2dp2          so many scale units, of one rank or of the mesh before it
    nest4               the rules in nest4.rules, in a folder that the script names
    dp2+use-zero=3      with a further option of `rankc compile`

What no word says is written as for rankc, with the number of units behind it: "hybrid:pipeline=2,context=2,attention=heads@1". So may be what
a word does say: "tp:tensor=2@1" is tp2, and so is the mesh "tensor=2"."""
import math
import os
import re
from typing import NamedTuple

AXES = {"tp": "tensor", "pp": "pipeline", "data": "data", "context": "context", "expert": "expert"}
PART = "(" + "|".join(AXES) + r")(\d+)"


class Plan(NamedTuple):
    policy: str  # of --pas
    units: int
    more: tuple  # further options

    @property
    def ranks(self):
        """Of one unit."""
        return ranks_of(self.policy)

    @property
    def world(self):
        """Ranks of all units."""
        return self.ranks * self.units

    @property
    def options(self):
        """Options of `rankc compile` and `rankc plan`."""
        return ["--pas", self.policy, *(["--runtime-ngpus", str(self.world)] if self.units > 1 else []), *self.more]


def policy_of(word):
    """The policy of a mesh written as a word; None: it is none."""
    parts = re.findall(PART, word)
    if "".join(axis + ways for axis, ways in parts) != word:
        return None
    mesh = ",".join(f"{AXES[axis]}={ways}" for axis, ways in parts)
    return "dp" if not parts else f"{parts[0][0]}:{mesh}" if len(parts) == 1 else f"hybrid:{mesh}"


def plan_of(text, folder=""):
    """The plan of that name, or that is already one. `folder`: where rule files are."""
    if isinstance(text, Plan):
        return text
    text, *further = re.split(r"\+| (?=--)", text)
    more = tuple(word for option in further for word in (option if option.startswith("--") else "--" + option).split())
    if os.path.exists(os.path.join(folder, text + ".rules")):
        return Plan(f"manual:{os.path.join(folder, text)}.rules", 1, more)
    mesh, units = re.fullmatch(r"(.*?)(?:dp(\d+))?", "" if text == "one" else text).groups()
    if policy_of(mesh) is not None:
        return Plan(policy_of(mesh), int(units or 1), more)
    policy, _, units = text.rpartition("@") if re.search(r"@\d+$", text) else (text, "", 1)
    return Plan(policy if re.match(r"[a-z]+(:|$)", policy) else "hybrid:" + policy, int(units), more)


def names_of(text):
    """The plans of an argument: separated by semicolons, or by spaces where these separate no options."""
    return text.split(";") if ";" in text or " --" in text else text.split()


def ranks_of(policy):
    """Of one unit. The mesh of "manual:FILE" is in the file. An axis may be of some stages alone: tensor=2@0-1."""
    axes = policy.partition(":")[2].split(",")
    if policy.startswith("manual:"):
        with open(policy.partition(":")[2], encoding="utf-8") as rules:
            axes = next(line for line in rules if line.startswith("mesh ")).split()[1:]
    everywhere, pipeline, some = 1, 1, []
    for axis in axes:
        name, _, size = axis.partition("=")
        size, _, stages = size.partition("@")
        if not size.isdigit() or name == "capacity":  # attention=heads is no axis either
            continue
        if stages:
            some.append((int(size), int(stages.split("-")[0]), int(stages.split("-")[-1])))
        elif name == "pipeline":
            pipeline = int(size)
        else:
            everywhere *= int(size)
    return sum(everywhere * math.prod(size for size, first, last in some if first <= stage <= last) for stage in range(pipeline))
