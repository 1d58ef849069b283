"""Draws docs/img/cuda.png from bench/results/cuda.csv: microseconds per call against the rows of a batch.

    python3 dev/pictures/plot_cuda.py        (needs matplotlib)
"""
import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
ROUTES = ["greedy", "no filter", "min-p 0.05", "top-k 50 top-p 0.9", "top-p 0.9 peaked"]


def main() -> None:
    figures = list(csv.DictReader((ROOT / "bench/results/cuda.csv").open()))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for panel, dtype in zip(panels, ["bf16", "f32"]):
        chosen = [f for f in figures if f["dtype"] == dtype and f["vocab"] == "128256"]
        for route in ROUTES:
            points = [f for f in chosen if f["route"] == route]
            panel.plot([int(f["rows"]) for f in points], [float(f["cold_us"]) for f in points], marker=".", label=route)
        floor = [f for f in chosen if f["route"] == "greedy"]
        panel.plot([int(f["rows"]) for f in floor], [float(f["floor_us"]) for f in floor], "k--", label="floor: bytes / bandwidth")
        panel.set(xscale="log", yscale="log", xlabel="rows", title=f"{dtype}, vocab 128256, cold L2")
        panel.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("us per call")
    panels[1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(ROOT / "docs/img/cuda.png", dpi=90)


main()
