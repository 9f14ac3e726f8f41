"""Reads price lists: those of the package, and the user's own."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from importlib import resources
from pathlib import Path

from pairbus.pricing import PriceError, PriceList, parse_prices


def shipped() -> list[str]:
    """Return the names (dates) of the price lists in the package, oldest first."""
    folder = resources.files("pairbus") / "prices"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def load_prices(file: str | None = None) -> PriceList:
    """Read a price list: a file, the name of a list in the package, or the newest of these.

    Raises:
        PriceError: there is no such file, it is not TOML, or it is incomplete.
    """
    if file is None or file in shipped():
        name = file or shipped()[-1]
        text = (resources.files("pairbus") / "prices" / f"{name}.toml").read_text()
        name = f"{name}.toml"
    else:
        name = file
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            reason = getattr(exc, "strerror", None) or "it is not a text file"
            known = ", ".join(shipped())
            raise PriceError(f"{file}: {reason} (price lists that ship: {known})") from None
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as exc:
        raise PriceError(f"{name}: not TOML: {exc}") from None
    return parse_prices(data, name)
