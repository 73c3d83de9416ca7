"""Kernels of words on the first OpenCL device, each held to numpy; a JSON line a case. Run as a module, in a child."""

from __future__ import annotations

import json

import numpy as np
import pyopencl as cl

from wavefit.native import reference, specimens
from wavefit.native.limits import of_opencl
from wavefit.native.opencl import bench, build, kernels
from wavefit.native.opencl.selftest import data

_KNOWN = """
#ifndef __opencl_c_integer_dot_product_input_4x8bit_packed
#error "no dot products of bytes"
#endif
#ifndef cl_khr_fp16
#error "no arithmetic in half"
#endif
__kernel void nothing(__global float *a) {}
"""


def main() -> None:
    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    context, limits = cl.Context([device]), of_opencl(device)
    build.build(context, _KNOWN)  # else the kernels below are plain C's
    for name, operation in specimens.odd().items():
        if operation.op not in ("Conv", "MatMul"):
            continue
        for template in kernels.claiming(operation, limits):
            if not template.endswith("_dot"):
                continue
            config = next(iter(kernels.get(template).configurations(operation, limits)))
            arrays = data(operation)
            got = bench.run(device, template, operation, config, arrays, context)
            want = reference.compute(operation, arrays)
            off = float(np.linalg.norm(got.output.astype(np.float64) - want) / np.linalg.norm(want))
            line = {
                "case": f"{template}: {name}",
                "sums": config["sums"],
                "off": off,
                "wrote": got.trespasses,
            }
            print(json.dumps(line))


if __name__ == "__main__":
    main()
