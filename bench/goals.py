#!/usr/bin/env python3
"""goals.py - which goals the figures of bench/results reach; writes the tables of docs/speed.md.

    bench/goals.py            rewrites what stands between the marks <!-- goals:NAME --> and <!-- /goals:NAME -->
"""
import csv
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]


def figures(file, route, value, goal):
    """By route: its type or instruction set, shape, figure and goal, of all lines that have a goal."""
    found = {}
    with open(ROOT / "bench/results" / file, newline="") as lines:
        for line in csv.DictReader(lines):
            if line[goal]:
                found.setdefault(route(line), []).append((line, float(line[value]), float(line[goal])))
    return found


def table(found, heads, shape, unit):
    rows = [f"| {' | '.join(heads)} | goals reached | median of figure / goal | worst | at |", "|---" * (len(heads) + 4) + "|"]
    for name, lines in found.items():
        ratios = sorted((value / goal, value, goal, shape(line)) for line, value, goal in lines)
        worst, value, goal, where = ratios[-1]
        rows.append(f"| {' | '.join(name)} | {sum(r[0] <= 1 for r in ratios)} of {len(ratios)} | {ratios[len(ratios) // 2][0]:.2f} "
                    f"| {worst:.2f} ({value:.1f} for {goal:.1f}{unit}) | {where} |")
    return "\n".join(rows)


TABLES = {
    "cuda": table(figures("cuda.csv", lambda l: (l["route"], l["dtype"]), "cold_us", "target_us"), ("route", "type"),
                  lambda l: f"{l['rows']} x {l['vocab']}", " us"),
    "cpu": table(figures("cpu.csv", lambda l: (l["route"], l["isa"]), "in_cache_ratio", "target_ratio"), ("route", "instructions"),
                 lambda l: f"{l['vocab']} {l['dtype']}", ""),
}

page = ROOT / "docs/speed.md"
text = page.read_text()
for name, made in TABLES.items():
    mark = re.compile(f"(<!-- goals:{name} -->\n).*?(<!-- /goals:{name} -->)", re.S)
    assert len(mark.findall(text)) == 1, f"docs/speed.md has no marks for {name}"
    text = mark.sub(lambda m: m[1] + made + "\n" + m[2], text)
page.write_text(text)
