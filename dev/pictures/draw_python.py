#!/usr/bin/env python3
"""draw_python.py - the pictures of docs/python.md, out of a real row, by raffle.softmax.

    PYTHONPATH=build-python/python python3 dev/pictures/draw_python.py

Needs numpy, matplotlib and the Python package (`make python`).
"""
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import raffle

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW, SHOWN = 12, 24
GREY, COLOURS = "#c9ccd1", ("#2a6fb0", "#c0392b", "#2e8b57")
PANELS = [
    ("temperature", [dict(temperature=t) for t in (0.5, 1.0, 2.0)]),
    ("top_k", [dict(top_k=k) for k in (3, 10, 20)]),
    ("top_p", [dict(top_p=p) for p in (0.3, 0.5, 0.7)]),
    ("min_p", [dict(min_p=m) for m in (0.3, 0.1, 0.05)]),
]


def main():
    logits = np.load(ROOT / "data/smollm2.npy")[ROW]
    words = (ROOT / "data/smollm2.vocab.txt").read_text(encoding="utf-8").split("\n")
    order = np.argsort(-logits.astype(np.float32), kind="stable")[:SHOWN]
    plain = raffle.softmax(logits, out_dtype="float32")
    figure, axes = plt.subplots(4, 1, figsize=(10, 12), sharex=True, layout="constrained")
    for axis, (name, settings) in zip(axes, PANELS):
        axis.bar(range(SHOWN), 100 * plain[order], 0.9, color=GREY, label="as it came")
        for i, (words_given, colour) in enumerate(zip(settings, COLOURS)):
            probability = raffle.softmax(logits, out_dtype="float32", **words_given)
            kept = int((probability > 0).sum())
            label = f"{name}={words_given[name]}" + (f", {kept} tokens" if name != "temperature" else "")
            axis.bar(np.arange(SHOWN) + (i - 1) * 0.26, 100 * probability[order], 0.24, color=colour, label=label)
        axis.set_ylabel("probability, %")
        axis.set_title(f"raffle.softmax(row, {name}=...)", fontsize=10)
        axis.legend(fontsize=8)
    axes[-1].set_xticks(range(SHOWN), [words[t].strip() for t in order], rotation=60, fontsize=8)
    path = ROOT / "docs/img/python.png"
    figure.savefig(path, dpi=70, metadata={"Software": None})
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


main()
