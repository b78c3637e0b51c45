"""The paper's experiments: protocol, single experiments, sweeps over many, and what is made of their rows."""
