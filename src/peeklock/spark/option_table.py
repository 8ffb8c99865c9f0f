"""Every option of the connector, once: what errors say, the reference prints and readers parse."""

from dataclasses import dataclass
from typing import Final, final

# What an option is for.
READ: Final = "read"
WRITE: Final = "write"
BOTH: Final = "read, write"

# What its text means.
TEXT: Final = "text"
SECRET: Final = "secret"
NUMBER: Final = "number"
SIZE: Final = "size"
DURATION: Final = "duration"
FLAG: Final = "true or false"
CHOICE: Final = "choice"
INSTANT: Final = "instant"


@final
@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as documented, what it takes, and what it is when nobody says."""

    name: str
    kind: str
    default: str
    use: str
    meaning: str
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    low: int = 0
    high: int = (1 << 63) - 1


OPTIONS: Final = (
    # --- where
    Option(
        "connectionString",
        SECRET,
        "",
        BOTH,
        "How to reach the namespace. Without it, `credential` is taken, then the environment "
        "variable `SERVICEBUS_CONNECTION_STRING` of the process that started Spark.",
    ),
    Option(
        "namespace",
        TEXT,
        "",
        BOTH,
        "Host (and port) of the namespace, where `credential` holds only the key. It is reached by "
        "TLS: with an authority of your own `caFile` is needed.",
    ),
    Option(
        "credential",
        TEXT,
        "",
        BOTH,
        "Where the driver finds the connection string, or "
        "`SharedAccessKeyName=...;SharedAccessKey=...`: `env:NAME` or `file:PATH`. "
        "The options then hold no secret.",
    ),
    Option(
        "queue", TEXT, "", BOTH, 'The queue. `load("name")` says the same.', aliases=("queueName",)
    ),
    Option(
        "topic",
        TEXT,
        "",
        BOTH,
        "The topic, with `subscription` for reading.",
        aliases=("topicName",),
    ),
    Option(
        "subscription", TEXT, "", READ, "The subscription to read.", aliases=("subscriptionName",)
    ),
    Option(
        "subQueue",
        CHOICE,
        "",
        READ,
        "Read the dead letters, or those of the transfer queue.",
        choices=("deadLetter", "transferDeadLetter"),
    ),
    Option(
        "transport",
        CHOICE,
        "amqp",
        BOTH,
        "How AMQP travels.",
        choices=("amqp", "websocket"),
        aliases=("transportType",),
    ),
    Option(
        "caFile", TEXT, "", BOTH, "Certificates to trust for TLS, instead of the system's (PEM)."
    ),
    Option(
        "httpPort",
        NUMBER,
        "0",
        BOTH,
        "Where HTTP is served; 0 means the port of the connection string, which serves both on our "
        "broker, or else 5300 with `UseDevelopmentEmulator=true` and 443 without.",
        high=65_535,
    ),
    # --- what
    Option(
        "mode",
        CHOICE,
        "",
        READ,
        "What reading means. A stream is `claim` and a batch is `peek` when nothing is said.",
        choices=("claim", "peek", "journal", "receiveAndDelete"),
    ),
    Option(
        "consumerId",
        TEXT,
        "",
        READ,
        "Who claims: one name for one query. The default is made of the entity's name.",
        aliases=("readerName",),
    ),
    Option(
        "ledger",
        CHOICE,
        "auto",
        READ,
        "How claims are kept: by the broker, or by deferral as on Azure. `auto` asks.",
        choices=("auto", "broker", "deferral"),
    ),
    Option(
        "settlement",
        CHOICE,
        "auto",
        READ,
        "Who completes: the source, when Spark has committed the batch, or the job by "
        "`operation=settle`.",
        choices=("auto", "manual"),
    ),
    Option(
        "includeBody",
        FLAG,
        "",
        READ,
        "Whether `body` is filled: true for messages, false for the journal when nothing is said.",
    ),
    Option(
        "badRecords",
        CHOICE,
        "emit",
        READ,
        "What happens to a message that cannot be decoded: a row with `error`, the "
        "dead-letter queue, or a failing task.",
        choices=("emit", "deadletter", "fail"),
    ),
    Option(
        "failOnDataLoss",
        FLAG,
        "true",
        READ,
        "Fail when planned messages are gone, or the journal begins after the offset.",
    ),
    # --- how much
    Option(
        "maxMessagesPerTrigger",
        NUMBER,
        "100000",
        READ,
        "Most messages of one batch. Not said, the journal has a million facts, within its bytes.",
        aliases=("maxEventsPerTrigger", "maxOffsetsPerTrigger"),
        low=1,
        high=1_000_000,
    ),
    Option(
        "maxBytesPerTrigger",
        SIZE,
        "64m",
        READ,
        "Most bytes of one batch; one message at least.",
        low=1,
    ),
    Option(
        "maxSessionsPerTrigger", NUMBER, "100", READ, "Most message sessions of one batch.", low=1
    ),
    Option(
        "minPartitions",
        NUMBER,
        "1",
        READ,
        "Least tasks of a batch, as far as it divides.",
        low=1,
        high=10_000,
    ),
    Option("bytesPerPartition", SIZE, "8m", READ, "From which size on a batch is divided.", low=1),
    Option(
        "maxWait",
        DURATION,
        "1s",
        READ,
        "How long an empty trigger waits for messages; not at all with AvailableNow.",
    ),
    Option(
        "claimTimeout",
        DURATION,
        "24h",
        READ,
        "When claims return by themselves if the query is not heard of.",
        low=1_000,
        high=(1 << 32) - 1,
    ),
    Option(
        "maxBatchAttempts",
        NUMBER,
        "5",
        READ,
        "How often a batch is tried that takes the query down, before its poison is searched for.",
        low=1,
    ),
    # --- from where to where
    Option(
        "startingPosition",
        CHOICE,
        "earliest",
        READ,
        "Where peek and journal begin without a checkpoint.",
        choices=("earliest", "latest"),
    ),
    Option("startingSequenceNumber", NUMBER, "", READ, "Peek begins with this number."),
    Option(
        "startingTime", INSTANT, "", READ, "Only what was enqueued then or later (ISO 8601 or ms)."
    ),
    Option("endingSequenceNumber", NUMBER, "", READ, "A batch ends with this number."),
    Option("endingTime", INSTANT, "", READ, "Only what was enqueued before then; for batches."),
    # --- patience
    Option(
        "retryDeadline",
        DURATION,
        "5m",
        BOTH,
        "How long a broker that is away or busy is asked again before the query fails.",
    ),
    Option(
        "receiverTimeout", DURATION, "60s", BOTH, "How long one answer is waited for.", low=1_000
    ),
    Option(
        "prefetch",
        NUMBER,
        "500",
        READ,
        "Most messages that a task asks for at once in mode receiveAndDelete.",
        low=1,
    ),
)
