"""Does something to a module as soon as it is there, before anyone has copied its names."""

import importlib.abc
import importlib.machinery
import sys


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.waiting = {}

    def find_spec(self, name, path, target=None):
        if name not in self.waiting:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            do = self.waiting.pop(name, None)  # not before: who asks for a spec may not import it
            if do is not None:
                do(module)

        spec.loader.exec_module = exec_module
        return spec


_finder = _Finder()


def after(name, do):
    """Calls do(module) once the module of that name has been executed."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting[name] = do
