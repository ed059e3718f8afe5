//! The command line's grammar, as upstream's parser (pflag) reads it: `--flag=value`, `--flag value`, `--bool`,
//! `--bool=false`, `-v 4`, `-v=4`, `-v4`; underscores in names are hyphens; later ones win over earlier ones.

use std::ffi::OsString;
use std::path::Path;

use crate::error::{Problem, UsageError, nearest};
use crate::go;
use crate::removed;
use crate::schema::{self, Kind, Setting};
use crate::tree::{Origin, Tree};
use crate::value;

/// What was typed, not yet understood.
#[derive(Default)]
pub struct Said {
    pub help: bool,
    /// The value of `--version`: `true`, `raw`, or a version.
    pub version: Option<String>,
    /// What is not a flag.
    pub positional: Vec<String>,
    values: Vec<(&'static Setting, Vec<String>)>,
    /// Options of a subcommand, such as `--output`.
    pub extra: Vec<(&'static str, String)>,
}

/// An option that only a subcommand knows: its name, its letter.
pub type Extra = (&'static str, Option<char>);

pub fn as_text(args: impl Iterator<Item = OsString>) -> Result<Vec<String>, UsageError> {
    args.map(|arg| {
        arg.into_string()
            .map_err(|arg| UsageError::from(Problem::new(format!("argument {arg:?} is not valid UTF-8"))))
    })
    .collect()
}

/// Sorts the arguments by flag. `find` says which flags there are.
pub fn scan(
    args: &[String],
    find: impl Fn(&str) -> Option<&'static Setting>,
    extra: &[Extra],
) -> Result<Said, Problem> {
    let mut scanner = Scanner { find, extra, said: Said::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            scanner.said.positional.extend(args.by_ref().cloned());
        } else if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            if name.is_empty() || name.starts_with('-') {
                return Err(Problem::new(format!("bad flag syntax: {arg}")));
            }
            scanner.long(&name.replace('_', "-"), value, &mut args)?;
        } else if arg.len() > 1 && arg.starts_with('-') {
            scanner.short(&arg[1..], &mut args)?;
        } else {
            scanner.said.positional.push(arg.clone());
        }
    }
    Ok(scanner.said)
}

struct Scanner<'a, F> {
    find: F,
    extra: &'a [Extra],
    said: Said,
}

impl<F: Fn(&str) -> Option<&'static Setting>> Scanner<'_, F> {
    fn long<'a>(
        &mut self,
        name: &str,
        value: Option<String>,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        if let Some((name, _)) = self.extra.iter().find(|(known, _)| *known == name) {
            let value = value.map_or_else(|| next(&format!("--{name}"), rest), Ok)?;
            self.said.extra.push((name, value));
            return Ok(());
        }
        match name {
            "help" => self.said.help = switch(name, value.as_deref())?,
            "version" => self.said.version = Some(value.unwrap_or_else(|| "true".to_owned())),
            _ => {
                let setting = (self.find)(name).ok_or_else(|| self.unknown(name))?;
                let value = match value {
                    Some(value) => value,
                    // A bare switch never swallows the next argument.
                    None if setting.is_bool() => "true".to_owned(),
                    None => next(&format!("--{name}"), rest)?,
                };
                self.said.push(setting, value);
            }
        }
        Ok(())
    }

    fn short<'a>(
        &mut self,
        letters: &str,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        if letters == "h" {
            self.said.help = true;
            return Ok(());
        }
        let mut chars = letters.chars();
        let letter = chars.next();
        let attached = chars.as_str();
        let value = |rest: &mut _| match attached.strip_prefix('=').unwrap_or(attached) {
            "" if attached.is_empty() => next(&format!("-{letters}"), rest),
            value => Ok(value.to_owned()),
        };
        if let Some((name, _)) = self.extra.iter().find(|(_, known)| letter.is_some() && *known == letter) {
            let value = value(rest)?;
            self.said.extra.push((name, value));
            return Ok(());
        }
        let setting = schema::settings()
            .filter(|setting| setting.flag.is_some_and(|flag| (self.find)(flag).is_some()))
            .find(|setting| letter.is_some() && setting.short == letter);
        let Some(setting) = setting else { return Err(self.unknown_short(letters)) };
        let value = value(rest)?;
        self.said.push(setting, value);
        Ok(())
    }

    fn unknown(&self, name: &str) -> Problem {
        let problem = Problem::new(format!("unknown flag: --{name}"));
        if let Some(instead) = removed::instead_of(name) {
            return problem.hint(instead);
        }
        let flags = schema::settings().filter_map(|setting| setting.flag);
        let known = flags.filter(|flag| (self.find)(flag).is_some());
        match (nearest(name, known), schema::by_field(name)) {
            (Some(known), _) => problem.hint(format!("did you mean `--{known}`?")),
            (None, Some(Setting { flag: Some(flag), .. })) => {
                problem.hint(format!("`{name}` is a config field; the flag is `--{flag}`"))
            }
            (None, Some(_)) => {
                problem.hint(format!("`{name}` can only be said in the file behind `--config`"))
            }
            (None, None) => problem,
        }
    }

    fn unknown_short(&self, letters: &str) -> Problem {
        let letter: String = letters.chars().take(1).collect();
        let problem = Problem::new(format!("unknown shorthand flag: '{letter}' in -{letters}"));
        let name = letters.split('=').next().unwrap_or_default();
        match (self.find)(name) {
            Some(_) => problem.hint(format!("long flags have two dashes: `--{name}`")),
            None => problem,
        }
    }
}

impl Said {
    /// As if only `--config` had been typed.
    pub fn with_config(path: &Path) -> Self {
        let mut said = Self::default();
        if let Some(setting) = schema::by_flag("config") {
            said.push(setting, path.to_string_lossy().into_owned());
        }
        said
    }

    fn push(&mut self, setting: &'static Setting, value: String) {
        match self.values.iter_mut().find(|(known, _)| known.flag == setting.flag) {
            Some((_, values)) => values.push(value),
            None => self.values.push((setting, vec![value])),
        }
    }

    /// The last value of a flag.
    pub fn last(&self, flag: &str) -> Option<&str> {
        let (_, values) = self.values.iter().find(|(setting, _)| setting.flag == Some(flag))?;
        values.last().map(String::as_str)
    }

    /// All values of a flag, in their order.
    pub fn all(&self, flag: &str) -> &[String] {
        let said = self.values.iter().find(|(setting, _)| setting.flag == Some(flag));
        said.map_or(&[], |(_, values)| values)
    }

    /// Writes over what the file says. Every value that was said must make sense, also one that a later one replaces.
    pub fn apply(&self, tree: &mut Tree) -> Result<(), Problem> {
        for (setting, texts) in &self.values {
            let key = setting.key();
            let before = tree.get(&key).cloned();
            match value::from_flag(setting, before, texts) {
                Ok(Some(value)) => tree.set(key, value, Origin::Flag),
                Ok(None) => tree.unset(&key),
                Err((text, why)) => return Err(refused(setting, &text, &why)),
            }
        }
        Ok(())
    }

    /// What upstream prints about flags that it wants to be rid of.
    pub fn deprecations(&self) -> impl Iterator<Item = String> {
        self.values.iter().filter_map(|(setting, _)| {
            let (flag, notice) = (setting.flag?, setting.deprecated?);
            Some(format!("Flag --{flag} has been deprecated, {notice}"))
        })
    }

    /// The agent takes no arguments: a word that stands alone is a mistake.
    pub fn no_positional(&self) -> Result<(), Problem> {
        let Some(word) = self.positional.first() else { return Ok(()) };
        let problem = Problem::new(format!("unknown command {word}"));
        Err(match go::parse_bool(word) {
            Some(_) => {
                problem.hint(format!("a switch takes its value after `=`, like `--cpu-cfs-quota={word}`"))
            }
            None if matches!(word.as_str(), "explain" | "pulls" | "config" | "check") => {
                problem.hint(format!("a subcommand comes first: `crablet {word} ...`"))
            }
            None => problem.hint("run `crablet --help` for what can be said"),
        })
    }
}

fn refused(setting: &Setting, text: &str, why: &str) -> Problem {
    let flag = setting.flag.unwrap_or_default();
    let flag = setting.short.map_or(format!("--{flag}"), |letter| format!("-{letter}, --{flag}"));
    match setting.kind {
        // What was typed may be a credential: it is not repeated.
        Kind::Headers => Problem::new(format!("invalid argument for {flag:?} flag: {why}"))
            .hint("write it like `--manifest-url-header=Accept:application/json`"),
        _ => Problem::new(format!("invalid argument {text:?} for {flag:?} flag: {why}")),
    }
}

fn next<'a>(flag: &str, rest: &mut impl Iterator<Item = &'a String>) -> Result<String, Problem> {
    rest.next().cloned().ok_or_else(|| Problem::new(format!("flag needs an argument: {flag}")))
}

fn switch(name: &str, value: Option<&str>) -> Result<bool, Problem> {
    let Some(value) = value else { return Ok(true) };
    go::parse_bool(value).ok_or_else(|| {
        Problem::new(format!("invalid argument {value:?} for \"--{name}\" flag: give `true` or `false`"))
    })
}
