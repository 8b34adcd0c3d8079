"""What `plimsoll measure` does within Python, without torch."""

import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

HOOK = pathlib.Path(__file__).resolve().parents[3] / "client" / "measure" / "hook"
sys.path.insert(0, str(HOOK))

from plimsoll_measure import alive, launchers, phases, processes, profile, steps  # noqa: E402


def python(code, folder, **variables):
    """A Python that the hook is loaded into, with `folder` behind it on the path."""
    environment = {**os.environ, "PYTHONPATH": f"{HOOK}:{folder}", "PYTHONDONTWRITEBYTECODE": "1",
                   "PLIMSOLL_MEASURE_RESULTS": str(folder), **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                          text=True, check=False)


class ProcessTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def test_hands_over_to_the_users_own(self):
        self.write("sitecustomize.py", "import builtins\nbuiltins.own = 'loaded'\n")
        self.assertEqual(python("print(own)", self.folder).stdout, "loaded\n")

    def test_is_one_of_many(self):
        done = python("import os; print(*[os.environ.get(n) for n in ('RANK', 'WORLD_SIZE', "
                      "'LOCAL_RANK')])", self.folder, PLIMSOLL_MEASURE_RANK="3",
                      PLIMSOLL_MEASURE_RANKS="16")
        self.assertEqual(done.stdout, "3 16 0\n")

    def test_is_alone_where_there_is_one(self):
        done = python("import os; print('RANK' in os.environ)", self.folder)
        self.assertEqual(done.stdout, "False\n")

    def test_ends_a_launchers_other_ranks(self):
        done = python("print('ran')", self.folder, LOCAL_RANK="1")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_does_nothing_where_nothing_is_asked(self):
        done = python("import sys; print('plimsoll_measure' in sys.modules)", self.folder,
                      PLIMSOLL_MEASURE_RESULTS="", LOCAL_RANK="1")
        self.assertEqual(done.stdout, "False\n")

    def test_is_there_before_names_are_copied(self):
        self.write("package/__init__.py", "from package.inner import value\n")
        self.write("package/inner.py", "value = 1\n")
        done = python("from plimsoll_measure import imports\n"
                      "imports.after('package.inner', lambda m: setattr(m, 'value', m.value + 1))\n"
                      "import package\nprint(package.value, package.inner.value)", self.folder)
        self.assertEqual(done.stdout, "2 2\n", done.stderr)

    def test_is_there_where_somebody_only_looked_before(self):
        self.write("package.py", "value = 1\n")
        done = python("from plimsoll_measure import imports\n"
                      "imports.after('package', lambda m: setattr(m, 'value', m.value + 1))\n"
                      "import importlib.util\nimportlib.util.find_spec('package')\n"
                      "import package\nprint(package.value)", self.folder)
        self.assertEqual(done.stdout, "2\n", done.stderr)

    def test_refuses_a_torch_for_cpus(self):
        self.write("torch/__init__.py",
                   "import types\n__version__ = '9.9+cpu'\nversion = types.SimpleNamespace(cuda=None)\n")
        done = python("import torch\nprint('ran')", self.folder)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        (result,) = self.folder.glob("*.json")
        self.assertEqual(result.read_text(), '{"refused": "torch 9.9+cpu; must be a build for CUDA, '
                                             'as the registry\'s is"}')


def entry(action, address, size, line):
    return {"action": action, "addr": address, "size": size,
            "frames": [{"filename": "/site-packages/torch/nn.py", "line": 1},
                       {"filename": f"{os.getcwd()}/train.py", "line": line}]}


def torch_with(segments, trace):
    snapshot = {"segments": segments, "device_traces": [trace]}
    memory = types.SimpleNamespace(_snapshot=lambda: snapshot)
    return types.SimpleNamespace(__file__="/site-packages/torch/__init__.py",
                                 cuda=types.SimpleNamespace(memory=memory))


class StepsTest(unittest.TestCase):
    """An optimizer whose groups are stepped one by one, as DeepSpeed does."""

    def setUp(self):
        self.peak = 0
        gauges = lambda: {f"{gauge}_bytes.all.{when}": self.peak for gauge in steps.GAUGES
                          for when in ("peak", "current")}
        memory = types.SimpleNamespace(reset_peak_memory_stats=lambda: None)
        cuda = types.SimpleNamespace(memory=memory, memory_stats=gauges, is_initialized=lambda: True)
        self.meter = steps.Meter(types.SimpleNamespace(cuda=cuda))
        self.optimizer = types.SimpleNamespace(param_groups=[], state={})
        self.meter.write = lambda: None
        for module, name, fake in (
                (steps.alive, "at_peak", lambda *_: None), (steps.alive, "record", lambda _: None),
                (steps.profile, "groups", lambda _: []),
                (steps.profile, "Parameters", lambda *_: types.SimpleNamespace(
                    trained=(), weight_bytes=0, optimizer_state_bytes=0, gradient_bytes=lambda: 0))):
            patch = unittest.mock.patch.object(module, name, fake)
            patch.start()
            self.addCleanup(patch.stop)

    def step(self, peaks):
        self.meter.begin_backward()
        for self.peak in peaks:
            self.meter.end_step(self.optimizer)

    def test_groups_are_of_one_step(self):
        self.step([5, 7])
        self.step([9, 4])
        self.assertEqual([step["allocated"] for step in self.meter.steps], [7, 9])
        self.assertEqual(self.meter.count, 2)

    def test_without_a_backward_each_is_a_step(self):
        for self.peak in (3, 2):
            self.meter.end_step(self.optimizer)
        self.assertEqual([step["allocated"] for step in self.meter.steps], [3, 2])


class AliveTest(unittest.TestCase):
    """Weights of 10 bytes were there before; 5 came and went, then 3 came and stayed."""

    def setUp(self):
        weights = {"address": 0, "requested_size": 10, "state": "active_allocated",
                   "frames": entry("", 0, 0, 1)["frames"]}
        kept = {"address": 100, "requested_size": 3, "state": "active_allocated", "frames": []}
        cached = {"address": 200, "requested_size": 0, "state": "inactive"}
        self.torch = torch_with([{"blocks": [weights, kept, cached]}],
                                [entry("alloc", 100, 5, 2), entry("free_requested", 100, 5, 2),
                                 entry("free_completed", 100, 5, 2), entry("alloc", 100, 3, 3)])

    def test_plays_the_record_backwards(self):
        at_peak = alive.at_peak(self.torch, 7)
        self.assertEqual((at_peak["step"], at_peak["requested_bytes"]), (7, 15))
        self.assertEqual([(group["bytes"], group["line"], group["within"]) for group in at_peak["groups"]],
                         [(10, "train.py:1", "torch/nn.py:1"), (5, "train.py:2", "torch/nn.py:1")])

    def test_says_what_is_there_now(self):
        now = alive.now(self.torch, 1)
        self.assertEqual([(group["bytes"], group["line"]) for group in now["groups"]],
                         [(10, "train.py:1"), (3, alive.NO_LINE)])


class PhasesTest(unittest.TestCase):
    """Two micro-batches, clipping, and the optimizer's step."""

    def step(self):
        seen = phases.Phases()
        for name, peak in (("forward", 3), ("backward", 5), ("between", 4), ("backward", 6),
                           ("between", 2), ("optimizer", 1)):
            seen.move(name)
            seen.see({"allocated": peak})
        return seen

    def test_what_is_between_is_of_what_comes_next(self):
        self.assertEqual(self.step().peaks, {
            "forward": {"allocated": 4}, "backward": {"allocated": 6},
            "gradient_reduction": {"allocated": 2}, "optimizer": {"allocated": 1}})

    def test_a_step_begins_with_forward(self):
        seen = self.step()
        seen.begin_step()
        seen.see({"allocated": 7})
        self.assertEqual(seen.peaks, {"forward": {"allocated": 7}})

    def test_later_steps_have_the_higher_peaks(self):
        steady = {}
        phases.raise_all(steady, {"forward": {"allocated": 2}})
        phases.raise_all(steady, {"forward": {"allocated": 1}, "backward": {"allocated": 3}})
        self.assertEqual(steady, {"forward": {"allocated": 2}, "backward": {"allocated": 3}})

    def test_a_backward_within_another_is_of_it(self):
        calls = []

        def run_backward(inner=None):
            if inner is not None:
                variable._execution_engine.run_backward()
            if inner == "fails":
                raise ValueError(inner)

        engine = types.SimpleNamespace(run_backward=run_backward, queue_callback=len)
        variable = types.SimpleNamespace(_execution_engine=engine)
        module = types.SimpleNamespace(autograd=types.SimpleNamespace(Variable=variable))
        phases.watch_backward(module, lambda: calls.append("begin"), lambda: calls.append("end"))
        variable._execution_engine.run_backward("checkpoint")
        self.assertEqual(calls, ["begin", "end"])
        with self.assertRaises(ValueError):
            variable._execution_engine.run_backward("fails")
        self.assertEqual(calls, ["begin", "end"] * 2)
        self.assertIs(variable._execution_engine.queue_callback, len, "the rest is torch's")


class ProfileTest(unittest.TestCase):
    def communicators(self, used, groups):
        real, profile._used_communicators = profile._used_communicators, lambda: used
        self.addCleanup(setattr, profile, "_used_communicators", real)
        return profile.communicators(groups)

    def test_communicators_are_those_that_were_used(self):
        groups = [list(range(16)), [3, 7, 11, 15], [0, 1, 2, 3], [3]]
        self.assertEqual(self.communicators([16, 4], groups), [[16, 1], [4, 4]])
        self.assertEqual(self.communicators([4, 4, 2], groups), [[4, 4], [4, 1], [2, 1]])
        self.assertEqual(self.communicators([], groups), [])


class StoreTest(unittest.TestCase):
    def test_has_what_others_would_have_written(self):
        store = processes._mirror(types.SimpleNamespace(Store=object))
        self.assertEqual(len(store.get("0")), 128, "NCCL's id")
        store.set("own", "value")
        self.assertEqual(store.get("own"), b"value")
        self.assertEqual((store.add("count", 2), store.add("count", 3)), (2, 5))

    def test_has_no_alarm_that_nobody_gave(self):
        """NCCL's watchdog would end the process."""
        store = processes._mirror(types.SimpleNamespace(Store=object))
        self.assertFalse(store.check(["exception_dump"]))
        store.set("own", b"1")
        self.assertTrue(store.check(["own"]))
        self.assertFalse(store.check(["own", "other"]))


class LaunchersTest(unittest.TestCase):
    def launch(self, nodes, processes):
        module = types.SimpleNamespace(launch_agent=lambda config, entrypoint: config)
        launchers.launch_one(module, 16)
        return module.launch_agent(types.SimpleNamespace(
            min_nodes=nodes, max_nodes=nodes, nproc_per_node=processes, max_restarts=3,
            rdzv_backend="static", rdzv_endpoint="first:29500", rdzv_configs={"rank": 0}), "train.py")

    def test_starts_one_process(self):
        config = self.launch(2, 8)
        self.assertEqual((config.max_nodes, config.nproc_per_node, config.max_restarts), (1, 1, 0))
        self.assertEqual(config.rdzv_endpoint, "localhost:0", "nobody waits for the other node")
        self.assertEqual(self.launch(1, 16).rdzv_endpoint, "first:29500")
        self.assertEqual(self.launch(1, 1).nproc_per_node, 1)

    def test_tells_how_many_ranks_a_node_has(self):
        os.environ.pop(launchers._PER_NODE, None)
        self.addCleanup(os.environ.pop, launchers._PER_NODE, None)
        self.assertEqual(launchers.ranks_per_node(), 0)
        self.launch(2, 8)
        self.assertEqual(launchers.ranks_per_node(), 8)


if __name__ == "__main__":
    unittest.main()
