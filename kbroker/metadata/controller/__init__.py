"""The controller's public face; each name is described in the file it comes from."""

from kbroker.metadata.controller.config_changes import ConfigRules, ResourceChange
from kbroker.metadata.controller.controller import Controller
from kbroker.metadata.controller.decisions import (
    USE_DEFAULT,
    ConfigChange,
    MorePartitions,
    NewTopic,
    TopicResult,
)
from kbroker.metadata.controller.producer_ids import ProducerIdBlock, ProducerIdManager
from kbroker.metadata.controller.statistics import ControllerStatistics
from kbroker.metadata.controller.topic_changes import Settings

__all__ = [
    "USE_DEFAULT",
    "ConfigChange",
    "ConfigRules",
    "Controller",
    "ControllerStatistics",
    "MorePartitions",
    "NewTopic",
    "ProducerIdBlock",
    "ProducerIdManager",
    "ResourceChange",
    "Settings",
    "TopicResult",
]
