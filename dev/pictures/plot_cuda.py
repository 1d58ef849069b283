"""Draws docs/img/cuda.png from bench/results/cuda.csv and cuda_peers.csv: microseconds per call against the rows of a batch,
raffle beside the others that were timed on the same kind of GPU, and beside the time that reading the logits once takes.

    python3 dev/pictures/plot_cuda.py        (needs matplotlib)
"""
import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
VOCAB = "128256"
PANELS = {  # title -> raffle's route, and the peers' with their labels
    "no filter": ("no filter", {"no filter: torch softmax + multinomial": "torch", "no filter: flashinfer": "FlashInfer"}),
    "top-k 50 + top-p 0.9": ("top-k 50 top-p 0.9", {"top-k 50 + top-p 0.9: torch sort": "torch", "top-k 50 + top-p 0.9: flashinfer": "FlashInfer",
                                                    "top-k 50 + top-p 0.9: flashinfer fused": "FlashInfer, fused"}),
    "min-p 0.05": ("min-p 0.05", {"min-p 0.05: flashinfer": "FlashInfer"}),
    "top-p 0.9": ("top-p 0.9 peaked", {"top-p 0.9: flashinfer": "FlashInfer"}),
}
STYLES = {"torch": ("tab:gray", "s-"), "FlashInfer": ("tab:orange", "^-"), "FlashInfer, fused": ("tab:brown", "v:"),
          "raffle, f32": ("tab:blue", "o-"), "raffle, bf16": ("tab:cyan", "o--")}


def table(name):
    with (ROOT / "bench/results" / name).open(newline="") as lines:
        return [line for line in csv.DictReader(lines) if line["vocab"] == VOCAB]


def main() -> None:
    own, peers = table("cuda.csv"), table("cuda_peers.csv")
    counts = sorted({int(line["rows"]) for line in peers if line["route"].startswith("no filter")})
    figure, panels = plt.subplots(1, len(PANELS), figsize=(12, 4), sharey=True)
    for panel, (title, (route, others)) in zip(panels, PANELS.items()):
        def draw(label, lines, value):
            points = sorted((int(line["rows"]), float(line[value])) for line in lines if int(line["rows"]) in counts)
            color, style = STYLES[label]
            panel.plot(*zip(*points), style, color=color, label=label, markersize=4)

        for peer, label in others.items():
            draw(label, [line for line in peers if line["route"] == peer], "us")
        for dtype in ("f32", "bf16"):
            lines = [line for line in own if line["dtype"] == dtype and line["route"] == route]
            draw(f"raffle, {dtype}", lines, "cold_us")
            if dtype == "f32":
                panel.plot([int(line["rows"]) for line in lines], [float(line["floor_us"]) for line in lines], "k:", linewidth=1,
                           label="reading f32 once")
        panel.set(xscale="log", yscale="log", xlabel="rows", title=title, xticks=counts, ylim=(1, 1e4))
        panel.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("us per call")
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), fontsize=9, frameon=False)
    figure.suptitle(f"one H200, {int(VOCAB):,} tokens a row, logits not in the L2 cache (lower is better)", fontsize=10)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(ROOT / "docs/img/cuda.png", dpi=90)


main()
