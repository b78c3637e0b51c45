"""Files that tell whether they are whole."""

import hashlib
import zlib

SEALED = "-program"  # how the name of such a file ends
MARK = "_kept_"  # in the names of programs that such files are made of, which JAX need not keep too
DIGEST = 32  # bytes


def sealed(content: bytes) -> bytes:
    """Compressed, behind a digest of what follows."""
    packed = zlib.compress(content, 1)
    return hashlib.sha256(packed).digest() + packed


def unsealed(packed: bytes) -> bytes | None:
    """What was sealed; None if a part is missing."""
    digest, rest = packed[:DIGEST], packed[DIGEST:]
    return zlib.decompress(rest) if hashlib.sha256(rest).digest() == digest else None
