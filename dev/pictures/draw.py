#!/usr/bin/env python3
"""draw.py - the pictures of docs/sampling.md, out of a real row and what `raffle explain` says about it.

    python3 dev/pictures/draw.py [--raffle build/cli/raffle] [--data data] [--out docs/img]

Needs numpy and matplotlib, and the command line built by `make`. Kept sets and probabilities come from raffle; only the
curves of ranks.png are computed here, in double precision.
"""
import argparse
import json
import pathlib
import subprocess

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

ROW = 12  # the rhyme: 7.4 bits, a clear favourite and a long tail
SHOWN = 20
GREY, BLUE, RED = "#c9ccd1", "#2a6fb0", "#c0392b"
PANELS = [
    ("temperature 1, no filter", {}),
    ("temperature 0.7", {"temperature": 0.7}),
    ("temperature 1.5", {"temperature": 1.5}),
    ("top-k 10", {"top-k": 10}),
    ("top-p 0.5", {"top-p": 0.5}),
    ("min-p 0.1", {"min-p": 0.1}),
]
MARKS = [("top-k 50", {"top-k": 50}), ("top-p 0.9", {"top-p": 0.9}), ("min-p 0.05", {"min-p": 0.05})]

options = None


def explain(settings):
    """What raffle does with the row under these settings."""
    command = [options.raffle, "explain", f"{options.data}/smollm2.npy", "--row", str(ROW), "--top", str(SHOWN), "--json",
               "--vocab", f"{options.data}/smollm2.vocab.txt"]
    for name, value in settings.items():
        command += [f"--{name}", str(value)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def save(figure, name):
    path = pathlib.Path(options.out) / name
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)
    print(f"{path}: {path.stat().st_size} bytes")


def draw_filters():
    """filters.png: the likeliest tokens before (grey) and after (blue) each setting."""
    before = {c["token"]: c["probability"] for c in explain({})["top"]}
    figure, axes = plt.subplots(2, 3, figsize=(11.5, 8.6), sharex=True, layout="constrained")
    for axis, (title, settings) in zip(axes.flat, PANELS):
        answer = explain(settings)
        top = answer["top"]
        y = np.arange(len(top))
        axis.barh(y, [100 * before[c["token"]] for c in top], height=0.8, color=GREY, label="temperature 1, no filter")
        axis.barh(y, [100 * c["probability_after"] for c in top], height=0.42, color=BLUE, label="with the setting")
        axis.set_yticks(y, [c["text"].strip() for c in top], fontsize=8)
        for label, c in zip(axis.get_yticklabels(), top):
            label.set_color("black" if c["fate"] == "kept" else RED)
        axis.invert_yaxis()
        stay = "all stay" if answer["kept"] == answer["vocab"] else f"{answer['kept']} stay"
        axis.set_title(f"{title}: {stay}", fontsize=10)
        axis.grid(axis="x", color="#e6e8eb")
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    for axis in axes[1]:
        axis.set_xlabel("probability, %")
    axes[0, 0].legend(loc="lower right", fontsize=8, frameon=False)
    save(figure, "filters.png")


def draw_ranks():
    """ranks.png: the mass of the n likeliest tokens at some temperatures, and where filters cut at temperature 1."""
    logits = np.sort(np.load(f"{options.data}/smollm2.npy")[ROW].astype(np.float64))[::-1]
    figure, axis = plt.subplots(figsize=(8.6, 4.6), layout="constrained")
    ranks = np.arange(1, len(logits) + 1)
    curves = {}
    for temperature, colour in [(0.5, "#9ecae1"), (0.7, "#6baed6"), (1.0, BLUE), (1.5, "#fd8d3c"), (2.0, "#fdbe85")]:
        mass = np.cumsum(np.exp((logits - logits[0]) / temperature))
        curves[temperature] = 100 * mass / mass[-1]
        axis.semilogx(ranks, curves[temperature], color=colour, lw=2.4 if temperature == 1 else 1.6,
                      label=f"temperature {temperature:g}")
    for name, settings in MARKS:
        kept = explain(settings)["kept"]
        height = curves[1.0][kept - 1]
        axis.plot([kept], [height], "o", color=RED, ms=6)
        axis.annotate(f"{name}: {kept}", (kept, height), xytext=(8, -14), textcoords="offset points", color=RED, fontsize=9)
    axis.set_xlabel("the n likeliest of 49,152 tokens")
    axis.set_ylabel("their probability together, %")
    axis.set_xlim(1, len(logits))
    axis.set_ylim(0, 101)
    axis.grid(color="#e6e8eb")
    axis.legend(loc="lower right", fontsize=9, frameon=False)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    save(figure, "ranks.png")


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raffle", default="build/cli/raffle")
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", default="docs/img")
    options = parser.parse_args()
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    draw_filters()
    draw_ranks()


main()
