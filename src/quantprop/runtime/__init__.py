"""Running programs: compilation, precision, memory, threads, batches."""
