//! A JSON value as YAML: block style, keys in order, strings plain where no reader could take them for something else.

use serde_json::Value;

pub fn print(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, indent: usize, text: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            for (key, value) in sorted {
                text.push_str(&format!("{margin}{}:", scalar(&Value::String(key.clone()))));
                below(value, indent + 2, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&format!("{margin}-"));
                below(item, indent + 2, text);
            }
        }
        other => text.push_str(&format!("{margin}{}\n", scalar(other))),
    }
}

fn below(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            block(value, indent, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            // Lists stand under their name.
            block(value, indent.saturating_sub(2), text);
        }
        other => text.push_str(&format!(" {}\n", scalar(other))),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        // An empty list or object, a number and a quoted string are the same in JSON.
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./<>=,+() ".contains(c);
    begins
        && text.chars().all(allowed)
        && !text.ends_with(' ')
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}
