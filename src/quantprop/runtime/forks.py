"""Processes that were forked from one that has computed: they lack its threads, and would wait for them for ever."""

import os

_computes: list[int] = []  # the process that has computed: this one, or the one that it was forked from


def check_fork() -> None:
    """Raise in a process that was forked from one that has computed; from now on this one has."""
    if not _computes:
        _computes.append(os.getpid())
    if _computes[0] != os.getpid():
        raise RuntimeError(
            f"this process was forked from process {_computes[0]} after quantprop had computed there, and lacks the "
            "threads that JAX started: it would wait for them for ever. Start processes afresh instead of forking them "
            "(multiprocessing.get_context('spawn'), multiprocessing_context='spawn' of a DataLoader, joblib's default "
            "backend 'loky'), or fork before the first computation"
        )
