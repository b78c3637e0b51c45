"""Settings of XLA under which programs compile soonest, for tests whose programs run once or twice."""

from jaxlib import version

LATER = (0, 11)  # XLA has one generator from here on, and ends a process that is told of another
OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,  # one LLVM module per program
}
if tuple(map(int, version.__version__.split(".")[:2])) < LATER:
    OPTIONS["xla_cpu_use_fusion_emitters"] = False  # straight to LLVM, not by way of MLIR
FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in OPTIONS.items())

if __name__ == "__main__":  # for the Makefile
    print(FLAGS)
