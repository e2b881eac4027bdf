"""The command that decodes binlog files: to entries, JSON lines, Arrow, or Canal's queue
messages."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ray_canal.cli.first_use import tell_of_first_use
from ray_canal.cli.options import Tables
from ray_canal.errors import ConfigError

Files = Annotated[list[Path], typer.Argument(help="Binlog files, in order, or a directory.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="File (a directory for arrow); standard output if left out."
    ),
]
Schema = Annotated[
    Path | None, typer.Option(help="CREATE TABLE statements, used where they fit the rows.")
]

_FLAT = ("flat", "flat-entries")
_ENTRIES, _EVENTS = ("entries", *_FLAT), ("debezium", "avro")
OF_FORMATS: dict[str, tuple[str, ...]] = {
    "time_zone": _ENTRIES,
    "gtid": _ENTRIES,
    "gtid_set": _ENTRIES,
    "topic": (*_FLAT, *_EVENTS),
    "ts": ("flat", *_EVENTS),
    "decimals": _EVENTS,
    "schemas": ("debezium",),
    "partition": _FLAT,
    "partitions": _FLAT,
    "partition_hash": _FLAT,
    "dynamic_topic": _FLAT,
    "dynamic_topic_partitions": _FLAT,
    "database_hash": _FLAT,
    "split_key_changes": ("flat",),
    "batch_entries": _FLAT,
    "old": ("flat",),
}
"""Options that only these formats use."""
_QUEUE = "With --format flat and flat-entries"


class Format(str, Enum):
    entries = "entries"
    json = "json"
    arrow = "arrow"
    flat = "flat"
    flat_entries = "flat-entries"
    debezium = "debezium"
    avro = "avro"


class Decimals(str, Enum):
    precise = "precise"
    string = "string"
    double = "double"


class Old(str, Enum):
    canal = "canal"
    exact = "exact"


OutputFormat = Annotated[
    Format,
    typer.Option(
        help="entries: varint length + Entry; arrow: IPC stream per table; flat, flat-entries: "
        "what Canal would send to a message queue, as JSON lines; debezium, avro: "
        "change events as JSON lines, in a file per table."
    ),
]
LowerCase = Annotated[
    int | None, typer.Option(min=0, max=2, help="The server's; left out: not known.")
]
SkipEvents = Annotated[
    list[str] | None, typer.Option(help="FILE:POSITION to leave out if it cannot be read.")
]
GtidSet = Annotated[
    str, typer.Option(help="With --gtid: what was executed before the first file.")
]
TopicPartitions = Annotated[
    str, typer.Option(help="canal.mq.dynamicTopicPartitionNum.")
]
Topic = Annotated[
    str, typer.Option(help=f"{_QUEUE}: canal.mq.topic; debezium and avro: topic.prefix.")
]
OldWay = Annotated[
    Old, typer.Option(help="exact: without columns that only an earlier row changed.")
]
DecimalWay = Annotated[
    Decimals, typer.Option(help="debezium, avro: decimal.handling.mode.")
]


def refuse_unused(context: typer.Context, format: str) -> None:
    """Raise ConfigError if an option was given that the format does not use."""
    for name in context.params:
        if getattr(context.get_parameter_source(name), "name", "") != "COMMANDLINE":
            continue
        formats = OF_FORMATS.get(name, (format,))
        option = "--" + name.replace("_", "-")
        if format not in formats:
            raise ConfigError(
                f"{option} changes nothing with --format {format}; it is of {', '.join(formats)}"
            )
        if name == "gtid_set" and not context.params["gtid"]:
            raise ConfigError(f"{option} changes nothing without --gtid")


def decode(
    context: typer.Context,
    files: Files,
    format: OutputFormat = Format.json,
    output: Output = None,
    schema: Schema = None,
    lower_case_table_names: LowerCase = None,
    skip_event: SkipEvents = None,
    time_zone: Annotated[str, typer.Option(help="Zone in which entries print TIMESTAMP.")] = "UTC",
    gtid: Annotated[bool, typer.Option(help="Canal's GTID fields in entries.")] = False,
    gtid_set: GtidSet = "",
    filter: Tables = r".*\..*",
    topic: Topic = "example",
    partition: Annotated[int, typer.Option(min=0, help="canal.mq.partition.")] = 0,
    partitions: Annotated[int, typer.Option(min=1, help="canal.mq.partitionsNum.")] = 1,
    partition_hash: Annotated[str, typer.Option(help="canal.mq.partitionHash.")] = "",
    dynamic_topic: Annotated[str, typer.Option(help="canal.mq.dynamicTopic.")] = "",
    dynamic_topic_partitions: TopicPartitions = "",
    database_hash: Annotated[bool, typer.Option(help="canal.mq.database.hash.")] = True,
    split_key_changes: Annotated[
        bool, typer.Option(help="A row that moves to another partition: DELETE and INSERT.")
    ] = False,
    batch_entries: Annotated[int, typer.Option(min=1, help="Entries that have one id.")] = 50,
    ts: Annotated[int, typer.Option(min=0, help="`ts` in milliseconds; 0: the time now.")] = 0,
    old: OldWay = Old.canal,
    decimals: DecimalWay = Decimals.precise,
    schemas: Annotated[bool, typer.Option(help="debezium: each message has its schema.")] = False,
) -> None:
    """Decode binlog files: no Ray, no server."""
    from ray_canal.render import write_decoded
    from ray_canal.views.debezium import DebeziumOptions
    from ray_canal.views.flat import FlatOptions
    from ray_canal.views.routing import Routing

    refuse_unused(context, format.value)
    routing = Routing(
        topic=topic, partition=partition, partitions=partitions, partition_hash=partition_hash,
        dynamic_topic=dynamic_topic, dynamic_topic_partitions=dynamic_topic_partitions,
        database_hash=database_hash, key_changes="split" if split_key_changes else "canal",
    )  # fmt: skip
    options = FlatOptions(
        ts_ms=ts, routing=routing, time_zone=time_zone, gtid=gtid, old=old.value
    )
    events = DebeziumOptions(
        prefix=topic, decimals=decimals.value, schemas=schemas, ts_us=1000 * ts
    )
    tell_of_first_use()
    write_decoded(
        files,
        format.value,
        output,
        schema,
        filter,
        lower_case_table_names=lower_case_table_names,
        skip_events=skip_event or (),
        messages={"options": options, "batch_entries": batch_entries, "change_events": events},
        time_zone=time_zone,
        gtid=gtid,
        gtid_set=gtid_set,
    )
