//! What is written to the log.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "Logging", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("logging.verbosity", Level)
        .flag("v")
        .short('v')
        .welcome()
        .default("0")
        .live()
        .doc("How much is logged: 4 adds what a developer wants to know, 6 everything."),
    field("logging.vmodule", Objects(Items::VModule))
        .flag("vmodule")
        .welcome()
        .live()
        .doc("A verbosity of its own for some files, as `pattern=N,...`. Only for the text format. Flags add to the file's."),
    field("logging.format", Text("FORMAT"))
        .flag("logging-format")
        .default("text")
        .acts()
        .doc("`text` or `json`."),
    field("logging.flushFrequency", Flush)
        .flag("log-flush-frequency")
        .welcome()
        .default("5s")
        .acts()
        .doc("The longest time that a line may wait in a buffer."),
    field("logging.options.text.splitStream", Bool)
        .flag("log-text-split-stream")
        .acts()
        .doc("Text format: info to stdout, errors to stderr. Needs the gate LoggingAlphaOptions."),
    field("logging.options.text.infoBufferSize", Quantity)
        .flag("log-text-info-buffer-size")
        .default("0")
        .acts()
        .doc("Text format with split streams: how many bytes of info may wait. Needs the gate LoggingAlphaOptions."),
    field("logging.options.json.splitStream", Bool)
        .flag("log-json-split-stream")
        .acts()
        .doc("JSON format: info to stdout, errors to stderr. Needs the gate LoggingAlphaOptions."),
    field("logging.options.json.infoBufferSize", Quantity)
        .flag("log-json-info-buffer-size")
        .default("0")
        .acts()
        .doc("JSON format with split streams: how many bytes of info may wait. Needs the gate LoggingAlphaOptions."),
    field("tracing.endpoint", Text("ADDRESS"))
        .pointer()
        .doc("Where OpenTelemetry traces are sent."),
    field("tracing.samplingRatePerMillion", Int32)
        .pointer()
        .doc("How many of a million requests are traced."),
];
