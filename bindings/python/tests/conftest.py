"""Ends the output of pytest with the line that tests/run.py counts, after a line for every skipped test."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    count = {name: len(stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
    for report in stats.get("skipped", []):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"skip {report.nodeid.split('/')[-1]}: {why.removeprefix('Skipped: ')}")
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    terminalreporter.write_line(f"python: {count['passed']} passed, {count['failed'] + count['error']} failed{skipped}")
