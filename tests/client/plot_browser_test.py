"""The picture of a recommendation, opened in a headless browser: it renders, and
its texts do not lie over each other.

    PLIMSOLL=build/client/plimsoll python3 -m unittest plot_browser_test

KEEP=<folder> keeps the files and the screenshots, to be looked at.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import browser_test

JOB = {
    "model": {"name": "llama-3.1-8b"},
    "training": {"sequence_length": 8192, "global_batch_size": 64},
    "runtime": {"framework": "fsdp2"},
    "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8},
}
CASES = {
    "same_gpus": [],
    "more_gpus": ["--gpus", "8..64"],
    "types": ["--gpus", "4..32", "--gpu", "h100-80gb-sxm,a100-40gb-sxm"],
}
# The texts of the plot and its surroundings, as boxes; two that share more than a
# few pixels are a collision.
COLLISIONS = """<script>
const boxes = [...document.querySelectorAll('text')].filter(t => t.textContent.trim())
    .map(t => [t.textContent, t.getBBox()]);
const hits = [];
for (let i = 0; i < boxes.length; ++i) for (let k = i + 1; k < boxes.length; ++k) {
  const [a, b] = [boxes[i][1], boxes[k][1]];
  const w = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
  const h = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
  if (w > 3 && h > 4) hits.push(boxes[i][0] + ' / ' + boxes[k][0]);
}
const view = document.querySelector('svg').viewBox.baseVal;
for (const [text, b] of boxes) {
  if (b.x < 0 || b.x + b.width > view.width || b.y + b.height > view.height) hits.push(text);
}
document.title = JSON.stringify({hits, count: boxes.length});
</script>"""


class PlotBrowserTest(unittest.TestCase):
    # The browser and its pictures are the timeline's.
    run_browser = browser_test.BrowserTest.run_browser
    screenshot = browser_test.BrowserTest.screenshot

    @classmethod
    def setUpClass(cls):
        cls.browser = browser_test.shutil.which("chromium")
        assert cls.browser, "chromium is missing: .ci/install.sh test installs it"
        keep = os.environ.get("KEEP")
        cls.temporary = None if keep else tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(keep or cls.temporary.name).absolute()
        cls.answers = {}
        for name, flags in CASES.items():
            result = subprocess.run(
                [browser_test.PLIMSOLL, "recommend", "-", "-o", "json", "--timeout", "60s",
                 "--plot", cls.folder / f"{name}.svg", *flags],
                input=json.dumps(JOB), capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            cls.answers[name] = json.loads(result.stdout)

    @classmethod
    def tearDownClass(cls):
        if cls.temporary:
            cls.temporary.cleanup()

    def page(self, name):
        """The picture within a page that can look at it."""
        svg = (self.folder / f"{name}.svg").read_text()
        page = self.folder / f"{name}.html"
        page.write_text(f"<!doctype html><meta charset=utf-8><title></title>{svg}{COLLISIONS}")
        return page

    def test_no_text_lies_over_another_or_outside(self):
        for name in CASES:
            with self.subTest(name):
                dom = self.run_browser("--dump-dom", self.page(name).as_uri())
                title = dom[dom.index("<title>") + 7:dom.index("</title>")]
                found = json.loads(title.replace("&amp;", "&"))
                self.assertEqual(found["hits"], [])
                self.assertGreater(found["count"], 20)

    def test_the_points_of_each_front_are_seen(self):
        for name in CASES:
            with self.subTest(name):
                colors = self.screenshot(self.folder / f"{name}.svg")
                tree = browser_test.xml.etree.ElementTree.parse(self.folder / f"{name}.svg")
                fronts = [path for path in tree.iter(browser_test.SVG + "path")
                          if path.get("class") == "front"]
                self.assertTrue(fronts)
                for path in fronts:  # its swatch has less than 196 pixels, a point some 40
                    self.assertGreater(colors.get(path.get("stroke"), 0), 225, path.get("stroke"))

    def test_each_candidate_is_a_point_with_its_figures(self):
        for name, answer in self.answers.items():
            tree = browser_test.xml.etree.ElementTree.parse(self.folder / f"{name}.svg")
            titles = [group.find(browser_test.SVG + "title").text
                      for group in tree.iter(browser_test.SVG + "g")]
            for rank, candidate in enumerate(answer["candidates"], 1):
                gib = int(candidate["device"]["boundBytes"]) / 2**30
                title = next(text for text in titles if text.startswith(f"{rank}: "))
                self.assertIn(f"bound {gib:.1f} of ", title)

    def test_the_picture_follows_a_dark_screen(self):
        colors = self.screenshot(self.folder / "same_gpus.svg",
                                 "--blink-settings=preferredColorScheme=0")
        self.assertEqual(max(colors, key=colors.get), "#14171b")


if __name__ == "__main__":
    unittest.main()
