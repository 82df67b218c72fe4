"""`kbroker metadata export|import|undo-export`: one node's metadata goes to ZooKeeper.

    kbroker metadata export --data-dir DIRECTORY FILE        the broker is stopped
    kbroker metadata import --zookeeper HOST:PORT/PATH FILE
    kbroker start --data-dir DIRECTORY --override zookeeper.connect=HOST:PORT/PATH

No broker is asked: the first reads the embedded store in the data directory and marks it, so that
no broker starts from it any more; the second makes its tree in ZooKeeper. Records stay where they
are. A ZooKeeper that wants a password or TLS is reached with the broker's own settings
`zookeeper.*`, from --config or the environment.
"""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.output import output_option, say, write_json
from kbroker.clock import SystemClock
from kbroker.errors import UsageError

if TYPE_CHECKING:
    from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
    from kbroker.metadata.transfer.file import Export

data_dir_option = click.option(
    "--data-dir",
    "data_dir",
    metavar="DIRECTORY",
    required=True,
    help="As for start; of several in log.dirs, the first.",
)


@click.group("metadata")
def command() -> None:
    """Take the metadata of a broker without a cluster to ZooKeeper: topics, settings, epochs."""


@command.command("export")
@click.argument("file", metavar="FILE")
@data_dir_option
@output_option
def export_metadata(file: str, data_dir: str, output: str) -> None:
    """Write the metadata to a new FILE; the broker is stopped, and does not start from it again."""
    from kbroker.metadata.transfer.export import export_store

    target = Path(os.path.abspath(os.path.expanduser(file)))
    export = export_store(directory_of(data_dir), target, SystemClock())
    _report(f"{target}: {_told(export)}", {"file": str(target), **_fields(export)}, output)


@command.command("import")
@click.argument("file", metavar="FILE")
@click.option("--zookeeper", metavar="HOST:PORT,.../PATH", help="Where to; zookeeper.connect.")
@click.option("--config", metavar="CONFIG", help="A server.properties file with zookeeper.* keys.")
@output_option
def import_metadata(file: str, zookeeper: str | None, config: str | None, output: str) -> None:
    """Make what FILE has in a ZooKeeper; one that ended half way goes on."""
    from kbroker.metadata.transfer.file import load
    from kbroker.metadata.transfer.into_zookeeper import TreeImport
    from kbroker.server.metadata_store import open_zookeeper

    settings = zookeeper_settings(zookeeper, config)
    export = load(Path(file).expanduser())
    for library in ("kbroker", "kazoo"):
        logging.getLogger(library).addHandler(logging.NullHandler())  # the error says it all
    with closing(open_zookeeper(settings)) as store:
        TreeImport(store, export, str(settings)).run()
    where = str(settings)
    _report(f"{where}: {_told(export)}", {"zookeeper": where, **_fields(export)}, output)


@command.command("undo-export")
@data_dir_option
@output_option
def undo_export_metadata(data_dir: str, output: str) -> None:
    """Have a broker start from its own metadata again: the export is not used."""
    from kbroker.metadata.transfer.export import undo_export

    directory = directory_of(data_dir)
    exported = undo_export(directory)
    if exported is None:
        text = f"{directory}: was not exported"
    else:
        text = f"{directory}: a broker may start from it again; {exported.file} is of no use now"
    fields = {} if exported is None else {"file": exported.file, "exported_at": exported.at}
    _report(text, {"directory": str(directory), "undone": exported is not None, **fields}, output)


def directory_of(text: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(text)))


def zookeeper_settings(zookeeper: str | None, file: str | None) -> ZooKeeperSettings:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.store.zookeeper_settings import CONNECT, ZooKeeperSettings

    overrides = [] if zookeeper is None else [f"{CONNECT}={zookeeper}"]
    config = BrokerConfig.load(file, os.environ, overrides)
    if config[CONNECT] is None:
        raise UsageError(f"nothing says which ZooKeeper, nor does {CONNECT}", "name --zookeeper")
    return ZooKeeperSettings.of(config)


def _told(export: Export) -> str:
    return f"{len(export.tree)} nodes of cluster {export.cluster_id}"


def _fields(export: Export) -> dict[str, Any]:
    return {
        "cluster_id": export.cluster_id,
        "exported_at": export.exported_at,
        "sha256": export.sha256,
        "nodes": len(export.tree),
    }


def _report(text: str, document: dict[str, Any], output: str) -> None:
    if output == "json":
        write_json(document)
    else:
        say(text)
