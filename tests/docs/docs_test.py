"""README.md and docs/ show what the program prints, and what docs/accuracy.md says.

UPDATE_DOCS=1 rewrites them instead. PLIMSOLL: the command line; build/client/plimsoll where it is not set.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "build" / "client" / "plimsoll"))
UPDATE = os.environ.get("UPDATE_DOCS") == "1"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Those whose links are followed.
LINKING = [*PAGES, *(page for folder in ("estimator", "deploy", "tests", "decisions", "proto")
                     for page in sorted((ROOT / folder).rglob("*.md")))]
# Sets of the page of accuracy that the README shows, and what it calls them.
SHOWN = {
    "nanotron uspalloc": "nanotron, allocated",
    "nanotron uspres, all": "nanotron, reserved",
    "megatron_ci dense": "Megatron-Core, dense models",
    "megatron_b200 allocated": "Megatron-Core on B200, allocated",
    "card allocated": "Hugging Face, TRL, FSDP and DeepSpeed on an H100 and an H200, allocated",
    "torchtitan, FSDP2 main line": "torchtitan, FSDP2",
    "bigscience_logs reserved": "Megatron-DeepSpeed (BigScience), reserved",
}
SUMMARY = re.compile(r"(<!-- summary:begin -->\n).*?(<!-- summary:end -->)", re.DOTALL)


def run(words, width=100):
    """What a command of the program prints, from the root of the checkout."""
    environment = {"PATH": os.environ["PATH"], "COLUMNS": str(width), "LANG": "C.UTF-8"}
    done = subprocess.run([PLIMSOLL, *words], cwd=ROOT, env=environment, capture_output=True,
                          text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


def as_printed(page):
    """The page with the output of each `$ plimsoll …` in a code block as it is now."""

    def block(match):
        lines = []
        for line in match[1].splitlines():
            if line.startswith("$ plimsoll "):
                lines += ([""] if lines else []) + [line, run(shlex.split(line)[2:]).rstrip("\n")]
        return "```\n" + "\n".join(lines) + "\n```" if lines else match[0]

    return re.sub(r"^```\n(.*?)\n```$", block, page, flags=re.MULTILINE | re.DOTALL)


def summary(accuracy):
    """The rows of the page of accuracy that the README shows, in fewer columns."""
    table = [[cell.strip() for cell in line.strip("| ").split(" | ")]
             for line in accuracy.splitlines() if line.startswith("| ")]
    rows = {row[0]: row for row in reversed(table)}
    shown = ["| measured | jobs | median error | p95 | under the bound |",
             "| --- | --- | --- | --- | --- |"]
    for key, name in SHOWN.items():
        _, count, refused, median, _, p95, _, _, bound, _ = rows[key]
        cells = [name, str(int(count) - int(refused)), median, p95, bound.split(" (")[0]]
        shown.append(f"| {' | '.join(cells)} |")
    return "\n".join(shown) + "\n"


PUBLISHED = re.compile(r"(<!-- published:begin -->\n).*?(<!-- published:end -->)", re.DOTALL)


def published():
    """(table, verdicts) of the jobs that others published as fitting."""
    jobs = json.loads((pathlib.Path(__file__).parent / "published.json").read_text("utf-8"))
    lines = "".join(json.dumps({"job": row["job"], "detail": "replay"}) + "\n" for row in jobs)
    done = subprocess.run([PLIMSOLL, "estimate", "--jobs", "-", "-o", "jsonl"], input=lines,
                          capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    table = ["| published | source | asked | Plimsoll: GB | bound | of | verdict |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for row, answer in zip(jobs, answers):
        rank = max(answer["ranks"], key=lambda rank: int(rank["device"]["expectedBytes"]))
        sizes = (rank["device"]["expectedBytes"], rank["device"]["boundBytes"],
                 answer["usableBytes"])
        cells = [row["figure"], row["source"], row["how"],
                 *(f"{int(size) / 1e9:.1f}" for size in sizes),
                 answer["verdict"].removeprefix("VERDICT_").replace("_", " ")]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table) + "\n", [answer["verdict"] for answer in answers]


def headings_of(page):
    """Its headings as links name them: GitHub's, lower case, with dashes for spaces."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


class DocsTest(unittest.TestCase):
    maxDiff = None

    def hold(self, path, text):
        if UPDATE:
            path.write_text(text, encoding="utf-8")
        self.assertEqual(path.read_text(encoding="utf-8"), text, f"{path}; UPDATE_DOCS=1 rewrites it")

    def test_outputs_are_what_the_program_prints(self):
        for path in PAGES:
            with self.subTest(page=path.name):
                self.hold(path, as_printed(path.read_text(encoding="utf-8")))

    def test_the_picture_is_of_the_example(self):
        with tempfile.TemporaryDirectory() as folder:
            drawn = pathlib.Path(folder, "memory.svg")
            run(["estimate", "deploy/examples/llama-3.1-8b.yaml", "--timeline", str(drawn)])
            self.hold(ROOT / "docs" / "memory.svg", drawn.read_text(encoding="utf-8"))

    def test_the_summary_is_of_the_page(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        table = summary((ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8"))
        self.assertRegex(readme, SUMMARY)
        self.hold(ROOT / "README.md", SUMMARY.sub(lambda match: match[1] + table + match[2], readme))

    def test_what_others_published_as_fitting_fits(self):
        page = ROOT / "docs" / "published.md"
        text = page.read_text(encoding="utf-8")
        table, verdicts = published()
        self.assertRegex(text, PUBLISHED)
        self.assertEqual(set(verdicts), {"VERDICT_FITS"})
        self.hold(page, PUBLISHED.sub(lambda match: match[1] + table + match[2], text))

    def test_the_readme_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()), 200)

    def test_links_lead_somewhere(self):
        for path in LINKING:
            for link in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text(encoding="utf-8")):
                file, _, heading = link.partition("#")
                target = path.parent / file if file else path
                self.assertTrue(target.exists(), f"{path.name}: {link}")
                if heading and target.suffix == ".md":
                    self.assertIn(heading, headings_of(target), f"{path.name}: {link}")


if __name__ == "__main__":
    unittest.main()
