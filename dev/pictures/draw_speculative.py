#!/usr/bin/env python3
"""draw_speculative.py - the picture of docs/speculative.md: what of a draft's law is accepted, and what is drawn instead.

    python3 dev/pictures/draw_speculative.py [--data data] [--out docs/img]

Needs numpy and matplotlib. The target is a real row at temperature 1; the draft is the same row with noise, as a small model
would have it. Probabilities are computed here, in double precision.
"""
import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

ROW, SHOWN = 12, 14
GREY, BLUE, RED = "#c9ccd1", "#2a6fb0", "#c0392b"


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def bars(axis, words, parts, title):
    left = np.zeros(len(words))
    for values, color, label in parts:
        axis.barh(np.arange(len(words)), 100 * values, left=left, height=0.75, color=color, label=label)
        left += 100 * values
    axis.set_yticks(np.arange(len(words)), words, fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("probability, %")
    axis.grid(axis="x", color="#e6e8eb")
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(loc="lower right", fontsize=8, frameon=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", default="docs/img")
    options = parser.parse_args()
    logits = np.load(f"{options.data}/smollm2.npy")[ROW].astype(np.float64)
    vocab = pathlib.Path(f"{options.data}/smollm2.vocab.txt").read_text(encoding="utf-8").split("\n")
    p = softmax(logits)
    q = softmax(logits + np.random.default_rng(4).normal(0, 0.8, logits.shape))
    shown = np.argsort(-(p + q))[:SHOWN]
    words = [vocab[i].strip().strip('"').strip() for i in shown]
    kept, more, less = np.minimum(p, q), np.maximum(p - q, 0), np.maximum(q - p, 0)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharex=True, layout="constrained")
    bars(axes[0], words, [(kept[shown], BLUE, "accepted"), (less[shown], GREY, "rejected")],
         f"the draft's tokens: {100 * kept.sum():.0f} % are accepted")
    bars(axes[1], words, [(kept[shown], BLUE, "accepted drafts: min(p, q)"), (more[shown], RED, "recovered: max(p - q, 0)")],
         "what is emitted: the target's law p")
    path = pathlib.Path(options.out) / "speculative.png"
    figure.savefig(path, dpi=80, metadata={"Software": None})
    print(f"{path}: {path.stat().st_size} bytes; accepted {kept.sum():.4f}")


main()
