"""`quantprop.cache`: the cache of compiled programs on disk, for all programs of the process.

The library's programs are found by their source (`disk_cache`). JAX has its own cache for all others, but writes in
place: a file that was cut short would never be replaced. Here its programs go to files like the library's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from quantprop.runtime import folders
from quantprop.runtime.arguments import checked

JAXS = "-cache"  # suffix of JAX's programs


@checked()
def cache(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Cache compiled programs on disk, including JAX's own.

    The library's own programs are cached in the user's folder by default. The cache is limited to 512 MB and may be
    deleted at any time. `QUANTPROP_CACHE=off` in the environment disables it, `QUANTPROP_CACHE=folder` selects a
    different folder, and a cache folder that was already set in JAX is left as it is. A PermissionError names a folder
    that others could write to.

    Args:
        folder: Folder of the cache; by default the user's cache folder.

    Returns:
        The folder, or None if caching is disabled.

    >>> import tempfile
    >>> import quantprop
    >>> folder = quantprop.cache(tempfile.mkdtemp())
    """
    from quantprop.runtime import disk_cache  # which imports JAX: this module is imported where only help is asked for

    home = folders.home(folder)
    if home is None:
        return None
    before = disk_cache.jaxs_folder()
    if before and before not in map(str, disk_cache.opened_folders):
        return Path(before)
    store = folders.opened(home)
    disk_cache.opened_folders.append(store)
    _cache_jaxs(store)
    return home


def _cache_jaxs(store: Path) -> None:
    import jax
    from jax._src import compilation_cache

    jax.config.update("jax_compilation_cache_dir", str(store))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small programs too: there are many
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # whose folder would be part of every key
    compilation_cache.reset_cache()
    jaxs: Any = compilation_cache
    jaxs._cache, jaxs._cache_initialized = JaxCache(store), True


class JaxCache:
    """JAX's `CacheInterface`, by the library's files."""

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def get(self, key: str) -> bytes | None:
        """The program of this key."""
        return folders.read(self._path / f"{key}{JAXS}")

    def put(self, key: str, value: bytes) -> None:
        """Cache a program, unless it is one of those that the library writes itself."""
        from quantprop.runtime.disk_cache import MARK

        if MARK not in key:
            folders.write(self._path / f"{key}{JAXS}", value)
