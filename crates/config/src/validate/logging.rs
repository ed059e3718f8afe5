//! The log and traces.

use serde_json::Value;

use super::Check;

const FORMAT: &str = "logging.format";
const VMODULE: &str = "logging.vmodule";
const MOST: i64 = i32::MAX as i64;

pub(super) fn check(check: &mut Check<'_>) {
    if check.tree.duration("logging.flushFrequency") <= 0 {
        let said = check.tree.get("logging.flushFrequency").cloned().unwrap_or_default();
        let message = format!("logging.flushFrequency: Invalid value: {said}: Must be greater than zero");
        check.refuse("logging.flushFrequency", message, "give a duration such as `5s`");
    }
    format(check);
    if check.tree.int("logging.verbosity") > MOST {
        let verbosity = check.tree.int("logging.verbosity");
        let message = format!("logging.verbosity: Invalid value: {verbosity}: Must be <= {MOST}");
        check.refuse("logging.verbosity", message, "10 shows everything");
    }
    patterns(check);
    options(check);
    tracing(check);
}

fn format(check: &mut Check<'_>) {
    match check.tree.text(FORMAT) {
        "text" => (),
        "json" if check.gates.enabled("LoggingBetaOptions") => (),
        "json" => {
            let message =
                "logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature";
            check.refuse(FORMAT, message, "switch the gate on, or use `text`");
        }
        other => {
            let message = format!("logging.format: Invalid value: {other:?}: Unsupported log format");
            check.refuse(FORMAT, message, "give `text` or `json`");
        }
    }
}

fn patterns(check: &mut Check<'_>) {
    let tree = check.tree;
    let items = tree.items(VMODULE);
    if !items.is_empty() && tree.text(FORMAT) != "text" {
        let message = "logging.vmodule: Forbidden: Only supported for text log format";
        check.refuse(VMODULE, message, "leave it out, or use `logging.format: text`");
    }
    for (index, item) in items.iter().enumerate() {
        let pattern = item.get("filePattern").and_then(Value::as_str).unwrap_or_default();
        let verbosity = item.get("verbosity").and_then(Value::as_i64).unwrap_or_default();
        if pattern.is_empty() {
            let message = format!("{VMODULE}[{index}]: Required value: File pattern must not be empty");
            check.refuse(VMODULE, message, "name a file, such as `kubelet*`");
        } else if pattern.contains(['=', ',']) {
            let message = format!(
                "{VMODULE}[{index}]: Invalid value: {pattern:?}: File pattern must not contain equal sign or comma"
            );
            check.refuse(VMODULE, message, "write one item per pattern");
        }
        if verbosity > MOST {
            let message = format!("{VMODULE}[{index}]: Invalid value: {verbosity}: Must be <= {MOST}");
            check.refuse(VMODULE, message, "10 shows everything");
        }
    }
}

fn options(check: &mut Check<'_>) {
    if check.gates.enabled("LoggingAlphaOptions") {
        return;
    }
    let hint = "switch the gate `LoggingAlphaOptions` on, or leave it out";
    for format in ["text", "json"] {
        let split = format!("logging.options.{format}.splitStream");
        let buffer = format!("logging.options.{format}.infoBufferSize");
        if check.tree.is(&split) {
            check.refuse(
                &split,
                format!("{split}: Forbidden: Feature LoggingAlphaOptions is disabled"),
                hint,
            );
        }
        if check.tree.text(&buffer) != "0" {
            check.refuse(
                &buffer,
                format!("{buffer}: Forbidden: Feature LoggingAlphaOptions is disabled"),
                hint,
            );
        }
    }
}

fn tracing(check: &mut Check<'_>) {
    const RATE: &str = "tracing.samplingRatePerMillion";
    const ENDPOINT: &str = "tracing.endpoint";
    let rate = check.tree.int(RATE);
    let rule = match rate {
        ..0 => Some("sampling rate must be positive"),
        1_000_001.. => Some("sampling rate per million must be less than or equal to one million"),
        _ => None,
    };
    if let Some(rule) = rule {
        check.refuse(RATE, format!("{RATE}: Invalid value: {rate}: {rule}"), "give from 0 to 1000000");
    }
    let endpoint = check.tree.text(ENDPOINT);
    let escaped = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if let Some(rest) = endpoint.split('%').skip(1).find(|rest| !escaped(rest)) {
        let message = format!("{ENDPOINT}: Invalid value: {endpoint:?}: invalid URL escape \"%{rest}\"");
        check.refuse(ENDPOINT, message, "write it like `localhost:4317`");
    }
    let scheme = endpoint.split_once("//").map(|(scheme, _)| scheme.trim_end_matches(':'));
    if let Some(scheme) = scheme.filter(|scheme| !["dns", "unix", "unix-abstract"].contains(scheme)) {
        let message = format!(
            "{ENDPOINT}: Invalid value: {endpoint:?}: unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
        );
        check.refuse(ENDPOINT, message, "write it like `localhost:4317`");
    }
}
