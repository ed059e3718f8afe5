//! What each flag is set to, as `/flagz` shows it: by the command line, or else by its default. The file behind
//! `--config` is not looked at; `/configz` tells of that.

use std::collections::BTreeMap;

use crate::flags::Said;
use crate::schema::{self, Kind, Setting};

pub fn values(said: &Said) -> BTreeMap<String, String> {
    let flags = schema::settings().filter_map(|setting| Some((setting.flag?, setting)));
    flags.map(|(flag, setting)| (flag.to_owned(), value(setting, said.all(flag)))).collect()
}

/// In the form in which Go's flags print themselves.
fn value(setting: &Setting, said: &[String]) -> String {
    let zero = match setting.kind {
        Kind::Bool => "false",
        Kind::Int32 | Kind::Int64 | Kind::Level | Kind::Float => "0",
        Kind::Duration | Kind::Flush => "0s",
        _ => "",
    };
    let otherwise = setting.default.unwrap_or(zero);
    match setting.kind {
        Kind::TextList(_) | Kind::Int32List => {
            let items = if said.is_empty() { otherwise.to_owned() } else { said.join(",") };
            format!("[{items}]")
        }
        // Headers carry credentials.
        Kind::Headers if !said.is_empty() => "<masked>".to_owned(),
        Kind::TextMap(_) | Kind::BoolMap | Kind::Objects(_) if !said.is_empty() => said.join(","),
        _ => said.last().map_or_else(|| otherwise.to_owned(), Clone::clone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn what_was_said_wins_over_the_default() {
        let args = [
            "--manifest-url-header=Authorization:secret",
            "--v=4",
            "--register-node=false",
            "--cluster-dns=10.0.0.10,10.0.0.11",
            "--node-labels=a=b",
        ]
        .map(str::to_owned);
        let said = flags::scan(&args, schema::by_flag, &[]).expect("good flags");
        let values = values(&said);
        let of = |flag: &str| values.get(flag).map(String::as_str);
        assert_eq!(of("v"), Some("4"));
        assert_eq!(of("register-node"), Some("false"));
        assert_eq!(of("cluster-dns"), Some("[10.0.0.10,10.0.0.11]"));
        assert_eq!(of("node-labels"), Some("a=b"));
        assert_eq!(of("enable-server"), Some("true"));
        assert_eq!(of("config"), Some(""));
        assert_eq!(of("streaming-connection-idle-timeout"), Some("4h0m0s"));
        assert_eq!(of("manifest-url-header"), Some("<masked>"));
        assert_eq!(of("no-such-flag"), None);
    }
}
