"""Pictures and pages of real jobs, opened in a headless browser: they are
well-formed, they render, and what they show is what the data says.

    PLIMSOLL=build/client/plimsoll python3 -m unittest browser_test

KEEP=<folder> keeps the files and the screenshots, to be looked at.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
import zlib

PLIMSOLL = os.environ["PLIMSOLL"]
SVG = "{http://www.w3.org/2000/svg}"
WIDTH, HEIGHT = 1140, 760

JOBS = {
    "fsdp2_8b": {
        "model": {"name": "llama-3.1-8b"},
        "training": {"sequence_length": 8192, "recompute": {"mode": "full"}},
        "parallelism": {"zero_stage": 3},
        "runtime": {"framework": "fsdp2"},
        "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8},
    },
    "megatron_175b": {
        "model": {"transformer": {
            "hidden_size": 12288, "layer_count": 96, "head_count": 96, "ffn_size": 49152,
            "vocab_size": 51200, "position_count": 2048, "position_embedding": "learned"}},
        "training": {"sequence_length": 2048, "global_batch_size": 192,
                     "recompute": {"mode": "selective"}},
        "parallelism": {"tensor_parallel_size": 8, "sequence_parallel": True,
                        "pipeline_parallel_size": 8},
        "runtime": {"framework": "megatron-core"},
        "cluster": {"gpu": "a100-80gb-sxm", "gpu_count": 512},
    },
    "nanotron_1b": {
        "model": {"transformer": {
            "hidden_size": 2048, "layer_count": 16, "head_count": 32, "kv_head_count": 8,
            "ffn_size": 8192, "vocab_size": 131072, "gated_mlp": True, "tied_embeddings": True}},
        "training": {"sequence_length": 2048, "micro_batch_size": 4, "global_batch_size": 128},
        "parallelism": {"zero_stage": 1, "tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        "runtime": {"framework": "nanotron"},
        "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 16},
    },
    "ddp_8b": {  # does not fit
        "model": {"name": "llama-3.1-8b"},
        "training": {"sequence_length": 4096},
        "runtime": {"framework": "ddp"},
        "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8},
    },
}
PAGES = ("fsdp2_8b", "megatron_175b")  # opened as pages too: a browser takes seconds


def read_png(path):
    """Returns the bytes of a pixel (3 or 4) and the rows of an 8-bit RGB or RGBA image."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, header = 8, b"", None
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", data[at + 8:at + 8 + length])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    width, height, depth, color = header[:4]
    assert depth == 8 and color in (2, 6), header
    size = 3 if color == 2 else 4
    raw, rows, above = zlib.decompress(packed), [], bytes(width * size)
    for y in range(height):
        begin = y * (width * size + 1)
        above = unfilter(raw[begin], raw[begin + 1:begin + 1 + width * size], above, size)
        rows.append(above)
    return size, rows


def unfilter(kind, line, above, size):
    """One row of a PNG without its filter."""
    out = bytearray(line)
    for i, value in enumerate(line):
        if kind == 0:
            break
        left = out[i - size] if i >= size else 0
        corner = above[i - size] if i >= size else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above[i]
        elif kind == 3:
            guess = (left + above[i]) // 2
        else:
            guess = min((left, above[i], corner), key=lambda p: abs(left + above[i] - corner - p))
        out[i] = (value + guess) & 0xFF
    return bytes(out)


def count_colors(path):
    """How many pixels each colour has, as {"#rrggbb": count}."""
    size, rows = read_png(path)
    counts = {}
    for row in rows:
        for i in range(0, len(row), size):
            color = row[i:i + 3]
            counts[color] = counts.get(color, 0) + 1
    return {"#" + color.hex(): count for color, count in counts.items()}


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = shutil.which("chromium")
        assert cls.browser, "chromium is missing: .ci/install.sh test installs it"
        keep = os.environ.get("KEEP")
        cls.temporary = None if keep else tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(keep or cls.temporary.name).absolute()
        cls.answers = {}
        for name, job in JOBS.items():
            cls.draw(name, job)

    @classmethod
    def tearDownClass(cls):
        if cls.temporary:
            cls.temporary.cleanup()

    @classmethod
    def draw(cls, name, job):
        for suffix in ("svg", "html", "json"):
            path = cls.folder / f"{name}.{suffix}"
            result = subprocess.run(
                [PLIMSOLL, "estimate", "-", "-o", "json", "--timeline", path],
                input=json.dumps(job), capture_output=True, text=True, check=False)
            assert result.returncode in (0, 3, 5), result.stderr
            cls.answers[name] = json.loads(result.stdout)

    def run_browser(self, *flags):
        with tempfile.TemporaryDirectory() as profile:
            return subprocess.run(
                [self.browser, "--headless", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1",
                 f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", *flags],
                capture_output=True, text=True, timeout=120, check=True).stdout

    def screenshot(self, page, *flags):
        path = page.with_suffix(page.suffix + ("".join(flags) and ".dark") + ".png")
        self.run_browser(f"--screenshot={path}", *flags, page.as_uri())
        return count_colors(path)

    def timeline(self, name):
        return json.loads((self.folder / f"{name}.json").read_text())

    def areas(self, name):
        tree = xml.etree.ElementTree.parse(self.folder / f"{name}.svg")
        return [path for path in tree.iter(SVG + "path") if path.get("class") == "area"]

    def test_pictures_are_well_formed_and_hold_an_area_for_each_role(self):
        for name in JOBS:
            with self.subTest(name):
                self.assertEqual(len(self.areas(name)), len(self.timeline(name)["roles"]))
                tree = xml.etree.ElementTree.parse(self.folder / f"{name}.svg")
                title = tree.getroot().find(SVG + "title").text
                verdict = self.answers[name]["verdict"].removeprefix("VERDICT_").replace("_", " ")
                self.assertTrue(title.startswith(verdict + ": "), title)

    def test_each_colour_that_has_room_is_seen(self):
        """A role that ever holds a twentieth of the peak shows in the screenshot."""
        for name in JOBS:
            for suffix in ("svg", "html") if name in PAGES else ("svg",):
                with self.subTest(name, suffix=suffix):
                    colors = self.screenshot(self.folder / f"{name}.{suffix}")
                    timeline = self.timeline(name)
                    peak = int(timeline["points"][int(timeline["peakPoint"])]["allocatedBytes"])
                    fills = {area.find(SVG + "title").text: area.get("fill")
                             for area in self.areas(name)}
                    drawn = 0
                    for index, role in enumerate(timeline["roles"]):
                        held = sum(int(point["roleBytes"][index]) for point in timeline["points"])
                        if held / len(timeline["points"]) < peak / 20:
                            continue
                        drawn += 1
                        word = role.removeprefix("ROLE_").split("_")[0].lower()
                        fill = next(fill for text, fill in fills.items() if text.startswith(word))
                        self.assertGreater(colors.get(fill, 0), 1000, (role, fill))
                    self.assertGreaterEqual(drawn, 3)

    def test_pages_follow_a_dark_screen(self):
        dark = "--blink-settings=preferredColorScheme=0"
        for suffix in ("svg", "html"):
            page = self.folder / f"fsdp2_8b.{suffix}"
            light_colors, dark_colors = self.screenshot(page), self.screenshot(page, dark)
            self.assertEqual(max(light_colors, key=light_colors.get), "#ffffff")
            self.assertEqual(max(dark_colors, key=dark_colors.get), "#14171b")

    def test_the_page_shows_the_figures_at_the_cursor(self):
        page = self.folder / "fsdp2_8b.html"
        timeline = self.timeline("fsdp2_8b")
        at = int(timeline["peakPoint"])
        hover = f"""<script>{{
            const box = svg.getBoundingClientRect();
            const x = (xs[{at}] + xs[{at} + 1]) / 2;
            svg.dispatchEvent(new MouseEvent('mousemove', {{clientX: box.left + x, clientY: 200}}));
            document.title = figures.hidden ? 'hidden' : figures.textContent;
        }}</script></body>"""
        moved = self.folder / "hover.html"
        moved.write_text(page.read_text().replace("</body>", hover))
        dom = self.run_browser("--dump-dom", moved.as_uri())
        title = dom[dom.index("<title>") + 7:dom.index("</title>")]
        peak = timeline["points"][at]
        gib = f"{int(peak['allocatedBytes']) / 2**30:.2f} GiB"
        self.assertIn(f"{gib}  allocated", title)
        self.assertIn("loss, event " + peak["event"], title)
        self.assertIn("optimizer states", title)

    def test_pages_list_the_largest(self):
        for name in PAGES:
            dom = self.run_browser("--dump-dom", (self.folder / f"{name}.html").as_uri())
            self.assertEqual(dom.count("<tr>"), 1 + len(self.timeline(name)["largest"]))
            self.assertEqual(dom.count('class="area"'), len(self.timeline(name)["roles"]))


if __name__ == "__main__":
    unittest.main()
