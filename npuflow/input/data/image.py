"""Pictures as arrays: [H, W] or [H, W, 3], 8 bits a channel, whatever the file holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npuflow.base.errors import DataError
from npuflow.input.data.steps import Alpha
from npuflow.ir.types import Array

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".gif")


def decode(path: Path, alpha: Alpha = "drop", colour: bool = True) -> Array:
    """The picture upright (EXIF), RGB if `colour`, else as stored: grey stays [H, W].

    16-bit pictures are float32 in 0..255, with their fraction. Transparency is dropped (the colour beneath
    shows), or laid over black or white.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            opened.load()
            picture: Image.Image = ImageOps.exif_transpose(opened) or opened
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as fault:
        raise DataError(
            f'"{path.name}" is not a readable picture',
            because=_why(fault), code="NF-DATA-034",
        ) from fault
    if picture.mode.startswith("I") or picture.mode == "F":
        return _deep(picture, path, colour)
    transparent = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
    if transparent and alpha != "drop":
        picture = picture.convert("RGBA")
        ground = Image.new("RGBA", picture.size, (0, 0, 0, 255) if alpha == "black" else (255, 255, 255, 255))
        picture = Image.alpha_composite(ground, picture)
    grey = picture.mode in ("1", "L", "LA")
    array: Array = np.asarray(picture.convert("L" if grey else "RGB"))
    return np.repeat(array[:, :, None], 3, 2) if grey and colour else array


def _why(fault: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(fault, UnidentifiedImageError):  # its text is the path
        return "its bytes are those of no known picture format"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    return str(fault) or type(fault).__name__


def is_picture(content: bytes) -> bool:
    """Whether bytes begin as a picture of a known format does."""
    from io import BytesIO

    from PIL import Image

    try:
        with Image.open(BytesIO(content)):
            return True
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return False


def is_deep(path: Path) -> bool:
    """Whether a picture has more than 8 bits a channel, by its header; False where it cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            return opened.mode.startswith("I") or opened.mode == "F"
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return False


def _deep(picture: object, path: Path, colour: bool) -> Array:
    """Modes I;16, I and F: one channel of 16 bits or more."""
    raw = np.asarray(picture)
    if raw.dtype.kind in "iu":
        if raw.size and (raw.min() < 0 or raw.max() > 65535):
            raise DataError(
                f'"{path.name}" holds {raw.dtype} values outside 0..65535',
                hint="store it as npy", code="NF-DATA-035",
            )
        values = raw.astype(np.float32) / np.float32(257)
    else:
        values = raw.astype(np.float32)
    return np.repeat(values[:, :, None], 3, 2) if colour else values
