//! From what was typed behind a flag to a value of the configuration.
//!
//! Values are kept as `/configz` shows them: durations and quantities as canonical texts, maps as objects.

use std::net::IpAddr;

use crablet_model::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::go;
use crate::labels;
use crate::schema::{Items, Kind, Pairs, Setting};

/// The values of one flag in the order in which they were said, applied to what the file says.
///
/// The first occurrence of a list or a map replaces the file's; later ones add to it. `Err` says what is wrong with the
/// value that it names.
pub fn from_flag(
    setting: &Setting,
    before: Option<Value>,
    texts: &[String],
) -> Result<Option<Value>, (String, String)> {
    let mut value = match setting.kind {
        // As upstream: these add to the file's.
        Kind::Objects(Items::VModule) => before.clone(),
        _ => None,
    };
    for (index, text) in texts.iter().enumerate() {
        let so_far = if index == 0 && !matches!(setting.kind, Kind::Objects(Items::VModule)) {
            None
        } else {
            value.take()
        };
        value = one(setting.kind, so_far, before.as_ref(), text).map_err(|why| (text.clone(), why))?;
    }
    Ok(value)
}

/// The value of a default, as the table writes it.
pub fn from_default(setting: &Setting) -> Option<Value> {
    setting.default.and_then(|text| one(setting.kind, None, None, text).ok().flatten())
}

fn one(
    kind: Kind,
    so_far: Option<Value>,
    before: Option<&Value>,
    text: &str,
) -> Result<Option<Value>, String> {
    Ok(Some(match kind {
        Kind::Bool => go::parse_bool(text).ok_or("give `true` or `false`")?.into(),
        Kind::Int32 => int(text, i32::MIN.into(), i32::MAX.into())?.into(),
        Kind::Int64 => int(text, i64::MIN, i64::MAX)?.into(),
        Kind::Level => level(text)?.into(),
        Kind::Float => text.parse::<f64>().map_err(|_| "give a number")?.into(),
        Kind::Duration | Kind::Flush => go::format_duration(go::parse_duration(text)?).into(),
        Kind::Text(_) | Kind::Path => text.into(),
        Kind::Ip if text.is_empty() => return Ok(so_far.or_else(|| before.cloned())),
        Kind::Ip if ip(text).is_some() => text.into(),
        Kind::Ip => return Err(format!("{text:?} is not a valid IP address")),
        Kind::Quantity => quantity(text)?.into(),
        Kind::TextList(_) => list(so_far, text)?,
        Kind::Int32List => return Err("this has no flag".to_owned()),
        Kind::TextMap(pairs) => map(pairs, so_far, text)?,
        Kind::BoolMap => bools(so_far, text)?,
        Kind::Headers => headers(so_far, text)?,
        Kind::Objects(items) => return items_of(items, so_far, before, text),
    }))
}

fn int(text: &str, from: i64, to: i64) -> Result<i64, String> {
    match go::parse_int(text) {
        Some(number) if (from..=to).contains(&number) => Ok(number),
        Some(_) => Err(format!("give a whole number from {from} to {to}")),
        None => Err("give a whole number".to_owned()),
    }
}

fn level(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let number = digits.then(|| text.parse::<u32>().ok()).flatten();
    number
        .filter(|level| *level <= i32::MAX as u32)
        .ok_or_else(|| "give a whole number, at least 0".to_owned())
}

/// Upstream also takes leading zeros, as in `010.0.0.1`.
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let parts: Vec<_> = text.split('.').map(|part| part.trim_start_matches('0')).collect();
        let parts: Vec<_> = parts.iter().map(|part| if part.is_empty() { "0" } else { part }).collect();
        (text.bytes().all(|c| c.is_ascii_digit() || c == b'.') && !text.contains(".."))
            .then(|| parts.join(".").parse().ok())
            .flatten()
    })
}

pub(crate) fn quantity(text: &str) -> Result<String, String> {
    Quantity::parse(text).map(|quantity| quantity.to_string()).map_err(|error| error.to_string())
}

fn list(so_far: Option<Value>, text: &str) -> Result<Value, String> {
    let mut items = match so_far {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    if !text.is_empty() {
        let more = go::parse_csv(text).ok_or("its quotes do not match")?;
        items.extend(more.into_iter().map(Value::from));
    }
    Ok(items.into())
}

fn object(so_far: Option<Value>) -> Map<String, Value> {
    match so_far {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn map(pairs: Pairs, so_far: Option<Value>, text: &str) -> Result<Value, String> {
    let mut map = object(so_far);
    let separator = if pairs == Pairs::Less { '<' } else { '=' };
    let parts: Vec<&str> = if pairs == Pairs::One { vec![text] } else { text.split(',').collect() };
    for part in parts {
        if part.is_empty() && pairs != Pairs::One {
            continue;
        }
        let (name, value) = match (part.split_once(separator), pairs) {
            (Some(pair), _) => pair,
            (None, Pairs::Labels) => (part, ""),
            (None, _) => return Err(format!("malformed pair, expect string{separator}string")),
        };
        map.insert(name.trim().to_owned(), value.trim().into());
    }
    Ok(map.into())
}

fn bools(so_far: Option<Value>, text: &str) -> Result<Value, String> {
    let mut map = object(so_far);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or("malformed pair, expect string=bool")?;
        let (name, value) = (name.trim(), value.trim());
        let on = go::parse_bool(value)
            .ok_or_else(|| format!("invalid value of {name}: {value}, err: give `true` or `false`"))?;
        map.insert(name.to_owned(), on.into());
    }
    Ok(map.into())
}

fn headers(so_far: Option<Value>, text: &str) -> Result<Value, String> {
    let mut map = object(so_far);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once(':').ok_or("malformed pair, expect string:string")?;
        let values = map.entry(name.trim()).or_insert_with(|| json!([]));
        if let Value::Array(values) = values {
            values.push(value.trim().into());
        }
    }
    Ok(map.into())
}

fn items_of(
    items: Items,
    so_far: Option<Value>,
    before: Option<&Value>,
    text: &str,
) -> Result<Option<Value>, String> {
    let mut list = match so_far {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    match items {
        // Every occurrence replaces the one before.
        Items::Taints => list = taints(text)?,
        // Upstream forgets where it wanted to write it.
        Items::ReservedMemory if text.is_empty() => return Ok(before.cloned()),
        Items::ReservedMemory => {
            list.extend(text.split(';').map(reservation).collect::<Result<Vec<_>, _>>()?);
        }
        Items::VModule => {
            for part in text.split(',').filter(|part| !part.is_empty()) {
                list.push(pattern(part)?);
            }
        }
        Items::ShutdownByPriority => return Err("this has no flag".to_owned()),
    }
    Ok(Some(list.into()))
}

fn pattern(text: &str) -> Result<Value, String> {
    let wrong = || format!("{text:?} does not have the pattern=N format");
    let (pattern, number) = text.split_once('=').ok_or_else(wrong)?;
    if pattern.is_empty() || number.is_empty() || number.contains('=') {
        return Err(wrong());
    }
    let verbosity = level(number).map_err(|why| format!("parsing verbosity in {text:?}: {why}"))?;
    Ok(json!({"filePattern": pattern, "verbosity": verbosity}))
}

fn taints(text: &str) -> Result<Vec<Value>, String> {
    let mut taints: Vec<Value> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        // As `kubectl taint` would take one away: upstream reads it and forgets it.
        if let Some(gone) = part.strip_suffix('-') {
            match gone.contains(':') {
                true => drop(taint(gone)?),
                false => drop(taint(&format!("{gone}:NoSchedule"))?),
            }
            continue;
        }
        let taint = taint(part)?;
        let same = |known: &Value| known["key"] == taint["key"] && known["effect"] == taint["effect"];
        if taints.iter().any(same) {
            return Err(format!("duplicated taints with the same key and effect: {part}"));
        }
        taints.push(taint);
    }
    Ok(taints)
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Result<Value, String> {
    let wrong = || format!("invalid taint spec: {text}");
    let (pair, effect) = text.split_once(':').ok_or_else(wrong)?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if effect.contains(':') || value.contains('=') {
        return Err(wrong());
    }
    if !labels::is_effect(effect) {
        return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
    }
    if let Some(why) = labels::key_problem(key).or_else(|| labels::value_problem(value)) {
        return Err(format!("invalid taint spec: {text}, {why}"));
    }
    Ok(match value {
        "" => json!({"key": key, "effect": effect}),
        _ => json!({"key": key, "value": value, "effect": effect}),
    })
}

/// `0:memory=1Gi,hugepages-2Mi=2Gi`.
fn reservation(text: &str) -> Result<Value, String> {
    let wrong = || {
        format!(
            "the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...], got {text}"
        )
    };
    let (node, reserved) = text.split_once(':').ok_or_else(wrong)?;
    if reserved.contains(':') {
        return Err(wrong());
    }
    let node = node
        .parse::<i32>()
        .map_err(|_| format!("failed to convert the NUMA node ID, expected integer, got {node}"))?;
    let mut limits = Map::new();
    for part in reserved.split(',') {
        let (name, amount) =
            part.split_once('=').filter(|(_, amount)| !amount.contains('=')).ok_or_else(|| {
                format!("the reserved limit has incorrect value, expected type=quantity, got {part}")
            })?;
        if name != "memory" && !name.starts_with("hugepages-") {
            return Err(format!("memory type conversion error, unknown type: {name:?}"));
        }
        let amount = quantity(amount).map_err(|_| format!("failed to parse the quantity: {amount}"))?;
        limits.insert(name.to_owned(), amount.into());
    }
    Ok(json!({"numaNode": node, "limits": limits}))
}
