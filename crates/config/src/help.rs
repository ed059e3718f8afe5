//! `--help`, written from the table.

use std::fmt::Write;

use crate::explain;
use crate::table::{Group, SETTINGS, Setting, Take};

const WIDTH: usize = 100;

pub fn text() -> String {
    let mut out = format!(
        "Crablet runs the pods of one node. It behaves like the kubelet of Kubernetes {}.\n\n\
         Usage: crablet [flags]\n       {}\n",
        crate::KUBERNETES_VERSION,
        explain::USAGE
    );
    for (group, title) in Group::ALL {
        let _ = write!(out, "\n{title}:\n");
        for setting in SETTINGS.iter().filter(|setting| setting.group == group) {
            describe(&mut out, setting);
        }
        if group == Group::General {
            out.push_str("  -h, --help\n          Print this.\n");
            out.push_str("      --version\n          Print the version.\n");
        }
    }
    out
}

fn describe(out: &mut String, setting: &Setting) {
    let short = setting.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let _ = match (setting.flag, setting.field) {
        (Some(flag), _) => writeln!(out, "  {short}--{flag}{}", placeholder(setting.take)),
        (None, field) => writeln!(out, "      {} (in the config file only)", field.unwrap_or_default()),
    };
    wrap(out, setting.doc);
    let mut notes = Vec::new();
    if !setting.default.is_empty() {
        notes.push(format!("default {}", setting.default));
    }
    if let (Some(_), Some(field)) = (setting.flag, setting.field) {
        notes.push(format!("config field {field}"));
    }
    if !notes.is_empty() {
        wrap(out, &format!("[{}]", notes.join("; ")));
    }
}

fn placeholder(take: Take) -> String {
    match take {
        Take::Bool(_) => "[=true|false]".to_owned(),
        Take::Number(..) => " NUMBER".to_owned(),
        Take::Duration(_) => " DURATION".to_owned(),
        Take::Text(name, _) => format!(" {name}"),
        Take::Path(_) => " PATH".to_owned(),
        Take::List(name, _) => format!(" {name},..."),
        Take::Headers(_) => " NAME:VALUE,...".to_owned(),
    }
}

fn wrap(out: &mut String, text: &str) {
    const INDENT: &str = "          ";
    let mut line = INDENT.to_owned();
    for word in text.split_whitespace() {
        if line.len() > INDENT.len() && line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = INDENT.to_owned();
        }
        if line.len() > INDENT.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}
