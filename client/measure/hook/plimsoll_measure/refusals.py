"""What the phantom cannot run, said before it would run wrongly."""

import ctypes
import os

from plimsoll_measure import results

# The major version of CUDA whose libraries are stood in for.
CUDA = "13"


def check(torch):
    if torch.version.cuda is None:
        results.refuse(f"torch {torch.__version__}; must be a build for CUDA, as the registry's is")
    if torch.version.cuda.split(".")[0] != CUDA:
        results.refuse(f"torch {torch.__version__}; must be a build for CUDA {CUDA}")
    _check_kernels(torch)


def _check_kernels(torch):
    """Of one major capability, kernels run on every later minor one; the latest of them do."""
    wanted = os.environ["PLIMSOLL_PHANTOM_CAPABILITY"].split(".")
    flags = (torch._C._cuda_getArchFlags() or "").split()
    fitting = []
    for flag in flags:
        digits = flag.removeprefix("sm_").rstrip("af")
        if flag.startswith("sm_") and digits[:-1] == wanted[0] and digits[-1] <= wanted[1]:
            fitting.append(int(digits))
    if not fitting:
        results.refuse(f"torch {torch.__version__}; has no kernels for compute capability "
                       f"{'.'.join(wanted)}, but for {', '.join(flags)}")
    ctypes.CDLL(None).plimsoll_phantom_kernel_architecture(max(fitting))
