"""The format numbers of this broker's directories, of its store and of its cluster, kept right.

Place in the flow: the table is `metadata/formats.py`. At a start the numbers that are there are
checked before anything else is read: those of the directories by `server/directories.py`, that of
the embedded store when it is opened, those of the cluster here. `follow` is called with every image
that is published; where that needs higher numbers than were written, they are raised, at a start
before the broker serves, later by the scheduler, which tries again if a disk or the store fails.

`check` and `raise_numbers` on the main thread at a start; `follow` on the controller's thread,
which must not wait for a disk; then `raise_numbers` on the scheduler's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker import __version__
from kbroker.errors import DataDirectoryError
from kbroker.metadata import directory_format
from kbroker.metadata.controller.own_nodes import (
    FEATURES,
    FORMATS,
    load_features,
    load_formats,
    raise_formats,
)
from kbroker.metadata.features import FEATURE_OF, GROUP_VERSION, SHARE_VERSION, UNSTABLE_KEY
from kbroker.metadata.formats import LABELS, Format, check, needed
from kbroker.metadata.image import TRANSACTIONS_TOPIC, ClusterImage
from kbroker.metadata.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from kbroker.metadata.store.base import MetadataStore
    from kbroker.scheduler import Scheduler

log: Final = logging.getLogger("kbroker.server")


class Formats:
    """See the head of this file."""

    def __init__(
        self,
        directories: Callable[[], Iterable[Path]],
        store: Callable[[], MetadataStore],
        scheduler: Scheduler,
    ) -> None:
        """`directories` are those in use."""
        self._directories: Final = directories
        self._store: Final = store
        self._scheduler: Final = scheduler
        self._serves = False
        # Whether there were any.
        self._transactions = self._users = self._acls = self._quotas = False
        self._consumer_groups = self._share_groups = self._tokens = False
        self._wanted = self._written = needed(transactions=False)

    def follow(self, image: ClusterImage) -> None:
        """This is the image now."""
        self._transactions = self._transactions or needs_transactions(image)
        self._users = self._users or bool(image.users)
        self._acls = self._acls or len(image.acls) > 0
        self._quotas = self._quotas or bool(image.quotas)
        level = image.features.level
        self._consumer_groups = self._consumer_groups or level(GROUP_VERSION) > 0
        self._share_groups = self._share_groups or level(SHARE_VERSION) > 0
        some = {"users": self._users, "acls": self._acls, "quotas": self._quotas}
        some["consumer_groups"] = self._consumer_groups
        some["share_groups"] = self._share_groups
        self._tokens = self._tokens or bool(image.tokens)
        some["tokens"] = self._tokens
        self._wanted = needed(transactions=self._transactions, **some)
        if self._serves and self._wanted != self._written:
            self._scheduler.once("formats", self.raise_numbers, 0)

    def raise_at_start(self) -> None:
        """Before the broker serves; StoreError if it cannot be done."""
        self.raise_numbers()
        self._serves = True

    def raise_numbers(self) -> None:
        """Write what the image needs, where a lower number is."""
        wanted = self._wanted
        if wanted == self._written:
            return
        number = wanted[Format.LOG_DIRECTORY]
        for path in self._directories():
            if directory_format.load(path) < number:
                _raise_directory(path, number)
        store = self._store()
        if isinstance(store, EmbeddedStore) and store.format < wanted[Format.STORE]:
            store.raise_format(wanted[Format.STORE], __version__)
            _say(Format.STORE, wanted[Format.STORE], "metadata.db")
        if raise_formats(store, wanted, __version__):
            log.info("%s has the numbers of formats that are in use", FORMATS)
        self._written = wanted


def _raise_directory(path: Path, number: int) -> None:
    try:
        directory_format.save(path, number, __version__)
    except OSError as error:
        # The next start says it again, if this disk is there by then.
        log.error("%s: its format number cannot be written: %s", path, error.strerror)
    else:
        _say(Format.LOG_DIRECTORY, number, str(path))


def needs_transactions(image: ClusterImage) -> bool:
    """Whether levels of features, or transactions, may be written."""
    return bool(image.features.levels) or TRANSACTIONS_TOPIC in image.topics


def check_cluster(store: MetadataStore, *, unstable: bool = False) -> None:
    """DataDirectoryError if this kbroker cannot read what its cluster writes. `unstable`: whether
    it has feature levels that are in work."""
    numbers, written_by = load_formats(store)
    for each, number in numbers.items():
        check(each, number, FORMATS, written_by)
    for name, level in load_features(store).levels.items():
        known = FEATURE_OF.get(name)
        highest = 0 if known is None else known.highest_of(unstable=unstable)
        if known is not None and highest < level <= known.in_work:
            raise DataDirectoryError(
                f"{FEATURES} has {name} at level {level}, which is in work in kbroker"
                f" {__version__}",
                f"set {UNSTABLE_KEY}=true, or lower the level with a broker that has it",
            )
        if level > highest:
            raise DataDirectoryError(
                f"{FEATURES} has {name} at level {level}, and kbroker {__version__} knows levels up"
                f" to {highest}",
                "start the kbroker that the other brokers run, or a later one",
            )


def _say(format_: Format, number: int, where: str) -> None:
    log.info(
        "%s has format %d of the %s now: kbroker %s and later ones can read it",
        where, number, LABELS[format_], __version__,
    )  # fmt: skip
