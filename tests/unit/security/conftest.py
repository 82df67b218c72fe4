"""Certificates that the tests of this folder share."""

from __future__ import annotations

import pytest

from tests.support.certificates import Authority, Certificate


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def certificate(authority: Authority) -> Certificate:
    return authority.issue("broker")
