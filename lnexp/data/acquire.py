"""The raw files of a published corpus: from a folder of yours, else fetched; unpacked where they are packed.

In: a `Published`, the user's folder or none. Out: the path of every raw file. What was fetched stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lnexp.data import archive, fetch
from lnexp.data.lines import sha256
from lnexp.data.published import Bundle, Published
from lnexp.errors import UserError

Say = Callable[[str], None]
# The largest file in them is 330 MB (Common Crawl), the fullest archive has some hundred entries.
_MOST_BYTES, _MOST_ENTRIES = 4 << 30, 10_000


def digests(wanted: Published, local: Path) -> dict[str, str]:
    """Hash what `local` has of each bundle, unpacked files or an archive."""
    found: dict[str, str] = {}
    for bundle in wanted.bundles:
        unpacked, packed = _unpacked(bundle, local), _packed(bundle, local)
        paths = list(unpacked.values()) if unpacked else [packed] if packed else []
        found |= {path.name: sha256(path) for path in paths}
    return found


def acquire(
    wanted: Published, local: Path | None, archives: Path, raw: Path, standard: bool, say: Say
) -> dict[str, Path]:
    """Give the path of every raw file: unpacked files of `local` as they lie there, all others taken from an archive.

    Archives are looked for in `local`, else fetched into `archives`; what they hold goes into the folder `raw`.
    """
    where: dict[str, Path] = {}
    if local:
        _need_all(wanted, local)
    for bundle in wanted.bundles:
        there = {file: raw / file for file in bundle.files}
        if not all(path.exists() for path in there.values()):  # else unpacked before an earlier attempt was cut
            if local and (unpacked := _unpacked(bundle, local)):
                where |= unpacked
                continue
            path = _packed(bundle, local) if local else None
            if path is None:
                try:
                    path = _fetched(bundle, archives, wanted.licence, say)
                except UserError as error:
                    raise UserError(f"{error}; the corpus needs {_names(wanted.bundles)}") from None
            elif standard:
                _verify(bundle, path)
            say(f"data: unpacking {path}")
            raw.mkdir(parents=True, exist_ok=True)
            for copy in bundle.copies:
                if copy.inner and copy.remote.name == path.name:
                    inner = raw / Path(copy.inner).name
                    _extract(path, {copy.inner: inner})
                    path = inner
            _extract(path, there)
        where |= there
    return where


def _extract(path: Path, wanted: dict[str, Path]) -> None:
    archive.extract(path, wanted, most_bytes=_MOST_BYTES, most_entries=_MOST_ENTRIES)


def _unpacked(bundle: Bundle, local: Path) -> dict[str, Path] | None:
    found = {file: path for file in bundle.files if (path := archive.find(local, file))}
    return found if len(found) == len(bundle.files) else None


def _packed(bundle: Bundle, local: Path) -> Path | None:
    found = (archive.find(local, copy.remote.name) for copy in bundle.copies)
    return next((path for path in found if path), None)


def _need_all(wanted: Published, local: Path) -> None:
    """Raise UserError that names every archive that is not in the folder, or what it would hold."""
    missing = []
    for bundle in wanted.bundles:
        if not _packed(bundle, local) and not _unpacked(bundle, local):
            names = _names([bundle])
            files = [file for file in bundle.files if not archive.find(local, file)]
            more = f" and {len(files) - 2} more" if len(files) > 2 else ""
            missing.append(f"{names} (or unpacked {', '.join(files[:2])}{more})")
    if missing:
        raise UserError(f"data.local={local}: missing {'; '.join(missing)}: put the archives or these files there")


def _names(bundles: Iterable[Bundle]) -> str:
    """Name archives, alternatives with "or"."""
    return ", ".join(" or ".join(dict.fromkeys(copy.remote.name for copy in b.copies)) for b in bundles)


def _verify(bundle: Bundle, path: Path) -> None:
    """Raise UserError unless the archive is one of the known copies of that name."""
    refused: UserError | None = None
    for copy in (copy for copy in bundle.copies if copy.remote.name == path.name):
        try:
            return fetch.verify(path, copy.remote)
        except UserError as error:
            refused = refused or error
    if refused:
        raise UserError(f"{refused}; data.standard=false takes it as it is")


def _fetched(bundle: Bundle, archives: Path, licence: str, say: Say) -> Path:
    """Fetch the first copy that can be had."""
    say(f"data: {bundle.copies[0].remote.name}: {licence}")
    reasons = []
    for copy in (copy for copy in bundle.copies if copy.remote.urls):
        try:
            # Copies of one name differ (dev.tgz of three years): each has a folder of its own.
            return fetch.fetch(copy.remote, archives / str(bundle.copies.index(copy)), say)
        except UserError as error:
            reasons.append(str(error))
    raise UserError("; ".join(reasons))
