"""Sees which of some files are opened, by whichever process: inotify(7)."""

import ctypes
import os
import struct

IN_OPEN = 0x20
EVENT = struct.Struct("iIII")


class Opened:
    def __init__(self, *paths):
        self.paths = [str(path) for path in paths]

    def __enter__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK)
        self.names_by_watch = {}
        for path in self.paths:
            watch = libc.inotify_add_watch(self.descriptor, path.encode(), IN_OPEN)
            if self.descriptor < 0 or watch < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
            self.names_by_watch[watch] = path
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def names(self):
        """The files that were opened since the last call, each once."""
        names = []
        while True:
            try:
                events = os.read(self.descriptor, 65536)
            except BlockingIOError:
                return sorted(set(names))
            at = 0
            while at < len(events):
                watch, _, _, length = EVENT.unpack_from(events, at)
                names.append(self.names_by_watch[watch])
                at += EVENT.size + length
