//! What a node log query asks for.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::pattern;
use crate::query::Query;

const MOST_SERVICES: usize = 4;
const LONGEST_SERVICE: usize = 256;
const MOST_LINES: i64 = 100_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub services: Vec<String>,
    pub files: Vec<String>,
    pub since: Option<Moment>,
    pub until: Option<Moment>,
    pub lines: Option<i64>,
    pub boot: Option<i64>,
    pub pattern: String,
}

/// A time in the zone in which it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    text: String,
    local: DateTime,
    time: Timestamp,
}

impl Moment {
    /// RFC 3339 and nothing else.
    fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_once('T')?;
        let zone = rest.find(['Z', '+', '-'])?;
        let (clock, zone) = rest.split_at(zone);
        let local: DateTime = format!("{date}T{clock}").parse().ok()?;
        let fraction = clock.get(8..)?;
        if date.len() != 10 || !(fraction.is_empty() || fraction.starts_with('.')) {
            return None;
        }
        let offset = match zone {
            "Z" => Offset::UTC,
            _ => {
                let (hours, minutes) = zone.get(1..)?.split_once(':').filter(|_| zone.len() == 6)?;
                let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
                let seconds = hours * 3600 + minutes * 60;
                Offset::from_seconds(if zone.starts_with('-') { -seconds } else { seconds }).ok()?
            }
        };
        Some(Self { text: text.to_owned(), local, time: offset.to_timestamp(local).ok()? })
    }

    /// As upstream hands it to journalctl.
    fn for_journal(&self) -> String {
        let (date, clock) = (self.local.date(), self.local.time());
        let (year, month, day) = (date.year(), date.month(), date.day());
        format!("{year:04}-{month}-{day} {}:{}:{}", clock.hour(), clock.minute(), clock.second())
    }
}

impl Asked {
    /// `None`: there is no query. `Err` with everything that cannot be read.
    pub fn parse(query: &Query) -> Result<Option<Self>, Vec<String>> {
        let mut asked = Self::default();
        let mut errors = Vec::new();
        let queries: Vec<&str> = query.all("query").collect();
        for value in &queries {
            // A slash says that it is a file.
            if value.contains(['/', '\\']) {
                asked.files.push((*value).to_owned());
            } else if !value.trim().is_empty() {
                asked.services.push((*value).to_owned());
            }
        }
        if !queries.is_empty() && asked.files.is_empty() && asked.services.is_empty() {
            errors.push(invalid("query", &json(&queries), "may not be empty"));
        }
        let given = |name| query.first(name).filter(|value| !value.is_empty());
        let mut time = |name| {
            let value = given(name)?;
            let time = Moment::parse(value);
            if time.is_none() {
                errors.push(invalid(name, &quoted(value), "invalid time format"));
            }
            time
        };
        asked.since = time("sinceTime");
        asked.until = time("untilTime");
        let mut number = |name| match integer(given(name)?) {
            Ok(number) => Some(number),
            Err(why) => {
                errors.push(invalid(name, &quoted(given(name)?), &why));
                None
            }
        };
        asked.boot = number("boot");
        asked.lines = number("tailLines");
        asked.pattern = given("pattern").unwrap_or_default().to_owned();
        match errors.is_empty() {
            true => Ok(Some(asked).filter(|asked| *asked != Self::default())),
            false => Err(errors),
        }
    }

    pub fn has_options(&self) -> bool {
        let Self { since, until, lines, boot, pattern, .. } = self;
        since.is_some() || until.is_some() || lines.is_some() || boot.is_some() || !pattern.is_empty()
    }

    /// The file that is asked for, if that is all.
    pub fn one_file(&self) -> Option<&str> {
        match self.files.as_slice() {
            [file] if self.services.is_empty() && !self.has_options() => Some(file),
            _ => None,
        }
    }

    /// Everything that is wrong. `missing` says why the one file cannot be had.
    pub fn validate(&self, missing: Option<String>) -> Vec<String> {
        let mut errors: Vec<String> =
            self.services.iter().filter_map(|service| unsafe_name(service)).collect();
        if self.services.len() > MOST_SERVICES {
            let count = self.services.len();
            errors.push(format!("query: Too many: {count}: must have at most {MOST_SERVICES} items"));
        }
        let files = || json(&self.files);
        match (self.files.as_slice(), self.services.is_empty()) {
            ([], true) => errors.push("query: Required value: cannot be empty with options".to_owned()),
            ([_, ..], false) => {
                let both = format!("[{}], [{}]", self.files.join(" "), self.services.join(" "));
                errors.push(invalid("query", &quoted(&both), "cannot specify a file and service"));
            }
            ([_, _, ..], true) => {
                errors.push(invalid("query", &files(), "cannot specify more than one file"))
            }
            ([_], true) if self.has_options() => {
                errors.push(invalid("query", &files(), "cannot specify file with options"));
            }
            _ => errors.extend(missing.map(|why| invalid("query", &files(), &why))),
        }
        if let (Some(since), Some(until)) = (&self.since, &self.until)
            && since.time > until.time
        {
            errors.push(invalid("untilTime", &quoted(&until.text), "must be after `sinceTime`"));
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            errors.push(invalid("boot", &boot.to_string(), "must be less than 1"));
        }
        if let Some(lines) = self.lines.filter(|lines| !(0..=MOST_LINES).contains(lines)) {
            let range = format!("must be between 0 and {MOST_LINES}, inclusive");
            errors.push(invalid("tailLines", &lines.to_string(), &range));
        }
        if let Err(why) = pattern::check(&self.pattern) {
            errors.push(invalid("pattern", &quoted(&self.pattern), &format!("error parsing regexp: {why}")));
        }
        errors
    }

    /// For journalctl. Each value is part of an argument that begins with its name, so that none is taken for an option.
    pub fn arguments(&self, services: &[String]) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned).into();
        arguments.extend(self.since.iter().map(|since| format!("--since={}", since.for_journal())));
        arguments.extend(self.until.iter().map(|until| format!("--until={}", until.for_journal())));
        if let Some(lines) = self.lines {
            arguments.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
        }
        arguments.extend(services.iter().map(|service| format!("--unit={service}")));
        if !self.pattern.is_empty() {
            arguments.push(format!("--grep={}", self.pattern));
        }
        if let Some(boot) = self.boot {
            arguments.extend(["--boot".to_owned(), boot.to_string()]);
        }
        arguments
    }
}

fn unsafe_name(service: &str) -> Option<String> {
    let why = if service.len() > LONGEST_SERVICE {
        format!("length must be less than {LONGEST_SERVICE}")
    } else if service.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(c)) {
        return None;
    } else {
        "input contains unsupported characters".to_owned()
    };
    Some(invalid("query", &quoted(service), &why))
}

fn integer(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let syntax = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let wrong = if syntax { "value out of range" } else { "invalid syntax" };
    text.parse().ok().filter(|_| syntax).ok_or_else(|| format!("strconv.Atoi: parsing {text:?}: {wrong}"))
}

fn invalid(field: &str, value: &str, why: &str) -> String {
    format!("{field}: Invalid value: {value}: {why}")
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn json<T: serde::Serialize>(values: &[T]) -> String {
    serde_json::to_string(values).unwrap_or_default()
}

/// As upstream says several things at once: each only once.
pub fn aggregate(errors: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let once: Vec<&str> = errors.iter().map(String::as_str).filter(|error| seen.insert(*error)).collect();
    match once.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
