"""One process that is rank `rank` of `ranks`: whatever another would say, it said the same.

NCCL itself is stood in for below Python. Here is what has to happen above it: the rendezvous, the
store, collectives of objects, and collectives of the CPU, which Gloo would do over sockets.
"""

import ctypes


def pretend(module, rank, ranks):
    """`module` is torch.distributed.distributed_c10d, of which nobody has copied names yet."""
    _pretend_rendezvous(module, rank, ranks)
    _pretend_objects(module)
    _tell_group_sizes(module)
    _pretend_gloo(module)


def _mirror(module):
    class Mirror(module.Store):
        """A store in which whatever another rank should have written is there: NCCL's id."""

        NCCL_ID = b"\1" * 128

        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value if isinstance(value, bytes) else value.encode()

        def get(self, key):
            return self.values.get(key, self.NCCL_ID)

        def add(self, key, amount):
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            return total

        def compare_set(self, key, expected, desired):
            self.set(key, desired)
            return self.values[key]

        def check(self, keys):
            return all(key in self.values for key in keys)  # NCCL's watchdog asks for alarms

        def wait(self, keys, timeout=None):
            return None

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

        def num_keys(self):
            return len(self.values)

        def set_timeout(self, timeout):
            return None

    return Mirror()


def _pretend_rendezvous(module, rank, ranks):
    real = module.init_process_group
    kept = []  # the process group does not keep what is Python's

    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank_=-1,
                           store=None, *args, **kwargs):
        kwargs.pop("rank", None)
        kept.append(_mirror(module))
        return real(backend, None, timeout, ranks, rank, kept[-1], *args, **kwargs)

    module.init_process_group = init_process_group
    module._store_based_barrier = lambda *args, **kwargs: None
    module.monitored_barrier = lambda *args, **kwargs: None


def _pretend_objects(module):
    def all_gather_object(object_list, obj, group=None):
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj, object_gather_list=None, *args, **kwargs):
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def broadcast_object_list(object_list, *args, **kwargs):
        return None

    def scatter_object_list(output, inputs=None, *args, **kwargs):
        output[0] = (inputs or [None])[0]

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list):
        setattr(module, function.__name__, function)


def _tell_group_sizes(module):
    """Only here is known how many ranks a part of a split group has."""
    say = ctypes.CDLL(None).plimsoll_phantom_next_group_size
    helper, split = module._new_process_group_helper, module.split_group

    def new_process_group_helper(group_size, *args, **kwargs):
        say(group_size)
        return helper(group_size, *args, **kwargs)

    def split_group(parent_pg=None, split_ranks=None, *args, **kwargs):
        own = module.get_rank(parent_pg)
        say(next((len(part) for part in split_ranks or [] if own in part), 1))
        return split(parent_pg, split_ranks, *args, **kwargs)

    module._new_process_group_helper, module.split_group = new_process_group_helper, split_group


def _pretend_gloo(module):
    def create(options, _):
        from torch._C._distributed_c10d import FakeProcessGroup

        return FakeProcessGroup._create_internal(options.group_rank, options.group_size, None)

    module.Backend._ensure_backend_registered("gloo")
    plugins = module.Backend._plugins
    plugins["GLOO"] = plugins["GLOO"]._replace(creator_fn=create, extended_api=True)
