"""How programs run: compilation, precision, memory, threads, batches."""
