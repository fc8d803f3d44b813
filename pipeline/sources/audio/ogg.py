"""The container Ogg: what decoders pass over in silence, a lost end and damaged pages, is found here.

A page begins with OggS; byte 5 holds flags (4: the stream's last page), bytes 22 to 25 a checksum, byte 26 the number of
segments, whose sizes follow and add up to the page's payload.
"""

from __future__ import annotations

import zlib

_CAPTURE = b"OggS"
_HEADER = 27
_LAST_PAGE = 4
_LARGEST_PAGE = _HEADER + 255 + 255 * 255
TAIL = _LARGEST_PAGE + 4096
"""The last page lies within as many of a file's last bytes."""
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_FULL = 0xFFFFFFFF


def is_ogg(start: bytes) -> bool:
    """Whether a file that begins so is an Ogg file."""
    return start[:4] == _CAPTURE


def lost_end(tail: bytes) -> bool:
    """Whether a file's last page is missing or isn't whole: what is there before decodes without a complaint.

    Args:
        tail: the file's last bytes, TAIL of them or all.
    """
    page = tail[max(0, tail.rfind(_CAPTURE)) :]
    size = _page_size(page)
    return not is_ogg(page) or size is None or size > len(page) or not page[5] & _LAST_PAGE


def _page_size(page: bytes) -> int | None:
    """Bytes of the page that begins here; None if its header isn't whole."""
    if len(page) < _HEADER or len(page) < _HEADER + page[26]:
        return None
    return _HEADER + page[26] + sum(page[_HEADER : _HEADER + page[26]])


def damaged_page(content: bytes) -> int | None:
    """Finds the first page whose bytes differ from its checksum.

    Args:
        content: the whole file.

    Returns:
        Where it begins, or None if all are whole.
    """
    at, ended = 0, False
    while at < len(content):
        size = _page_size(content[at : at + _LARGEST_PAGE])
        page = content[at : at + (size or 0)]
        if not is_ogg(page) or len(page) != size:
            return None if ended and content.find(_CAPTURE, at) < 0 else at  # something may follow the last page
        if _checksum(page[:22] + bytes(4) + page[26:]) != int.from_bytes(page[22:26], "little"):
            return at
        at, ended = at + len(page), bool(page[5] & _LAST_PAGE)
    return None


def _checksum(page: bytes) -> int:
    """CRC-32 with the highest bit first and nothing inverted: zlib's of the bits in reverse."""
    reverse = zlib.crc32(page.translate(_REVERSED), _FULL) ^ _FULL
    return int(f"{reverse:032b}"[::-1], 2)
