//! What an unquoted scalar means.

use super::Data;
use crate::go;

pub fn resolve(text: &str) -> Data {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Data::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Data::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Data::Bool(false)
        }
        _ => number(text).unwrap_or_else(|| Data::Text(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Data> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return None;
    }
    let plain = text.replace('_', "");
    if let Some(whole) = go::parse_int(&plain) {
        return Some(Data::Int(whole));
    }
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let looks_like_one = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    looks_like_one
        .then(|| plain.parse().ok())
        .flatten()
        .filter(|value: &f64| value.is_finite())
        .map(Data::Float)
}
