"""How many bytes of settings the cluster has room for, all resources together.

Place in the flow: `topic_changes.py` and `config_changes.py` ask before a change is written. Each
resource has a bound of its own (`decisions.check_config_bytes`), but there may be any number of
resources, and every broker holds all settings and is sent all of them when it starts.

Pure; made for one event of the controller. The bytes in use are in the image (`settings_bytes`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SETTINGS_BYTES_MAX
from kbroker.metadata.image import ClusterImage, bytes_of_settings


class SettingsRoom:
    def __init__(self, image: ClusterImage, bytes_max: int = SETTINGS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._used = image.settings_bytes

    def take(
        self, before: Mapping[str, str], after: Mapping[str, str], *, must: bool = False
    ) -> KafkaError | None:
        """One resource gets other settings. An INVALID_CONFIG where they are longer and there is
        no room; then nothing is taken. `must`: they are taken in any case."""
        grows = bytes_of_settings(after) - bytes_of_settings(before)
        if grows > 0 and not must and self._used + grows > self._bytes_max:
            return KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The settings of the cluster would have {self._used + grows} bytes of at most"
                f" {self._bytes_max}; remove settings that are not needed",
            )
        self._used += grows
        return None
