"""How many bytes of settings the cluster has room for, all resources together.

Place in the flow: `topic_changes.py` and `config_changes.py` ask before a change is written. Each
resource has a bound of its own (`decisions.check_config_bytes`), but there may be any number of
resources, and every broker holds all settings and is sent all of them when it starts.

Pure; made for one event of the controller, counted when something is first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SETTINGS_BYTES_MAX
from kbroker.metadata.image import ClusterImage


class SettingsRoom:
    def __init__(self, image: ClusterImage, bytes_max: int = SETTINGS_BYTES_MAX) -> None:
        self._image = image
        self._bytes_max = bytes_max
        self._used: int | None = None

    def take(self, before: Mapping[str, str], after: Mapping[str, str]) -> KafkaError | None:
        """One resource gets other settings. An INVALID_CONFIG where they are longer and there is
        no room; then nothing is taken."""
        grows = _bytes_of(after) - _bytes_of(before)
        if not grows:
            return None
        if self._used is None:
            topics = self._image.topics.values()
            self._used = sum(_bytes_of(topic.configs) for topic in topics if topic.configs)
            self._used += sum(map(_bytes_of, self._image.configs.values()))
        if grows > 0 and self._used + grows > self._bytes_max:
            return KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The settings of the cluster would have {self._used + grows} bytes of at most"
                f" {self._bytes_max}; remove settings that are not needed",
            )
        self._used += grows
        return None


def _bytes_of(configs: Mapping[str, str]) -> int:
    return sum(len(name) + len(value.encode()) for name, value in configs.items())
