"""Words of AES-256 under a key: the secret tags from which an order is made, and the words that hide what is spilled.

Word i of a key is word i of AES in counter mode, the counter from 0, little-endian. The same key gives the same words
for ever, on every machine and with every version of every library, which a generator's `permutation` does not promise:
an order that changed between a crash and a restart would let records answer twice.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]

PLACE_BITS = 24
"""Up to so many bits of a tag give way to a row's place, so that one plain sort puts both in order."""

PIECE = 1 << 20


def words_at(key: bytes, start: int, count: int) -> Words:
    """The words of a key from number `start` on, wherever that is.

    >>> bool((words_at(b"k" * 32, 999, 5) == words_at(b"k" * 32, 0, 1004)[999:]).all())
    True
    """
    skipped = start % 2  # a block is two words
    counter = (start // 2).to_bytes(16, "big")
    encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    words = np.empty(skipped + count + 2, dtype="<u8")  # the library wants room for one block more
    nothing = bytes(8 * min(PIECE, skipped + count))
    for at in range(0, skipped + count, PIECE):
        piece = memoryview(nothing)[: 8 * min(PIECE, skipped + count - at)]
        encryptor.update_into(piece, words[at:].view(np.uint8).data)
    return words[skipped : skipped + count].astype(np.uint64, copy=False)


def words_of(key: bytes, numbers: Words) -> Words:
    """The words of a key with these numbers.

    >>> words_of(b"k" * 32, np.array([7, 2], dtype=np.uint64)).tolist() == words_at(b"k" * 32, 0, 8)[[7, 2]].tolist()
    True
    """
    blocks = np.zeros((len(numbers), 2), dtype=">u8")
    blocks[:, 1] = numbers >> np.uint64(1)
    return _encrypted(key, blocks)[np.arange(len(numbers)), (numbers & np.uint64(1)).astype(np.intp)]


def person_words(key: bytes, people: Words) -> Words:
    """A word for each person or tag: the first one of AES over it and nothing else, wherever it stands in a file.

    >>> people = np.array([5, 6], dtype=np.uint64)
    >>> person_words(b"k" * 32, people).tolist() == person_words(b"k" * 32, people[::-1]).tolist()[::-1]
    True
    """
    blocks = np.zeros((len(people), 2), dtype="<u8")
    blocks[:, 0] = people
    return _encrypted(key, blocks)[:, 0]


def _encrypted(key: bytes, blocks: NDArray[np.generic]) -> Words:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    text = encryptor.update(np.ascontiguousarray(blocks).view(np.uint8).data)
    return np.frombuffer(text, dtype="<u8").astype(np.uint64, copy=False).reshape(-1, 2)


def by_tag(tags: Words, numbers: Words | None = None) -> NDArray[np.intp]:
    """The places of rows in the order of their tags, equal tags in the order of their numbers, or of the rows.

    >>> by_tag(np.array([9 << 40, 7, 9 << 40], dtype=np.uint64)).tolist()
    [1, 0, 2]
    """
    low = np.uint64((1 << PLACE_BITS) - 1)
    if len(tags) > 1 << PLACE_BITS:
        return np.argsort(tags, kind="stable") if numbers is None else np.lexsort((numbers, tags))
    keys = tags & ~low
    keys |= np.arange(len(tags), dtype=np.uint64)
    keys.sort()
    near = np.zeros(len(tags) + 1, dtype=np.bool_)
    for start in range(1, len(tags), PIECE):
        piece = keys[start - 1 : start + PIECE]
        near[start : start + len(piece) - 1] = (piece[1:] ^ piece[:-1]) <= low
    keys &= low
    places = keys.view(np.int64)
    # Tags that are the same but for their lower bits: few, unless somebody asks for many of them.
    some = np.flatnonzero(near[:-1] | near[1:])
    if len(some):
        own = places[some]
        places[some] = own[np.lexsort((own if numbers is None else numbers[own], tags[own]))]
    return places
