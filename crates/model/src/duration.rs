//! Go-style durations: what people write into settings (`1h2m3.5s`) and what messages print (`1m20s`).

use std::fmt;
use std::time::Duration;

/// The longest duration that Go can hold, about 292 years.
const MAX_NANOS: u128 = i64::MAX as u128;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("{text:?} is not a duration; write it like `300ms`, `20s` or `1h30m`")]
    Malformed { text: String },
    #[error("{text:?} has no unit; add one of `ns`, `us`, `ms`, `s`, `m`, `h`")]
    MissingUnit { text: String },
    #[error("{text:?} has the unknown unit {unit:?}; use one of `ns`, `us`, `ms`, `s`, `m`, `h`")]
    UnknownUnit { text: String, unit: String },
    #[error("{text:?} is negative; durations here start at 0")]
    Negative { text: String },
    #[error("{text:?} is longer than 292 years; use a shorter one")]
    TooLong { text: String },
}

/// Parses what Go's duration parser accepts, except negative durations.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let fail = || DurationError::Malformed { text: text.to_owned() };
    let too_long = || DurationError::TooLong { text: text.to_owned() };
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(fail());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = take(rest, |c| c.is_ascii_digit());
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => take(after, |c| c.is_ascii_digit()),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(fail());
        }
        let (unit, after) = take(after, |c| c != '.' && !c.is_ascii_digit());
        if unit.is_empty() {
            return Err(DurationError::MissingUnit { text: text.to_owned() });
        }
        let unit = nanos_of(unit)
            .ok_or_else(|| DurationError::UnknownUnit { text: text.to_owned(), unit: unit.to_owned() })?;
        let nanos = element_nanos(whole, fraction, unit).ok_or_else(too_long)?;
        total = total.checked_add(nanos).filter(|total| *total <= MAX_NANOS).ok_or_else(too_long)?;
        rest = after;
    }
    if negative && total > 0 {
        return Err(DurationError::Negative { text: text.to_owned() });
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| too_long())
}

fn take(text: &str, accept: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !accept(c)).unwrap_or(text.len()))
}

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // Both the micro sign and the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// One element such as `3.5s`; what is finer than a nanosecond is cut off. `None` when it is too long.
fn element_nanos(whole: &str, fraction: &str, unit: u128) -> Option<u128> {
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let mut nanos = u128::from(whole).checked_mul(unit).filter(|nanos| *nanos <= MAX_NANOS)?;
    // Eighteen digits are finer than a nanosecond of an hour: the rest cannot matter.
    let kept = &fraction[..fraction.len().min(18)];
    if !kept.is_empty() {
        nanos += u128::from(kept.parse::<u64>().ok()?) * unit / 10_u128.pow(kept.len() as u32);
    }
    Some(nanos)
}

/// Prints a duration as Go does: `0s`, `1.5s`, `300ms`, `1m20s`, `5m0s`, `1h0m0s`.
pub fn format(duration: Duration) -> String {
    Go(duration).to_string()
}

/// A duration that displays as Go prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go(pub Duration);

impl fmt::Display for Go {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}\u{b5}s", decimal(nanos, 3)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", decimal(nanos, 6)),
            _ => {
                let minutes = nanos / 60_000_000_000;
                let seconds = decimal(nanos % 60_000_000_000, 9);
                match (minutes / 60, minutes % 60) {
                    (0, 0) => write!(f, "{seconds}s"),
                    (0, minutes) => write!(f, "{minutes}m{seconds}s"),
                    (hours, minutes) => write!(f, "{hours}h{minutes}m{seconds}s"),
                }
            }
        }
    }
}

/// `value` divided by 10^`places`, without trailing zeros.
fn decimal(value: u128, places: u32) -> String {
    let unit = 10_u128.pow(places);
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{fraction:0width$}", width = places as usize);
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_what_go_accepts() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+5s", 5_000_000_000),
            ("0s", 0),
            ("300ms", 300_000_000),
            ("1h2m3.5s", 3_723_500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1us1\u{b5}s1\u{3bc}s", 3_000),
            ("1.0000000000000000000000001s", 1_000_000_000),
            ("9223372036854775807ns", i64::MAX as u64),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses_and_says_what_to_do() {
        for (text, message) in [
            ("", "\"\" is not a duration; write it like `300ms`, `20s` or `1h30m`"),
            ("-", "\"-\" is not a duration; write it like `300ms`, `20s` or `1h30m`"),
            ("s", "\"s\" is not a duration; write it like `300ms`, `20s` or `1h30m`"),
            (".s", "\".s\" is not a duration; write it like `300ms`, `20s` or `1h30m`"),
            ("20", "\"20\" has no unit; add one of `ns`, `us`, `ms`, `s`, `m`, `h`"),
            ("20 s", "\"20 s\" has the unknown unit \" s\"; use one of `ns`, `us`, `ms`, `s`, `m`, `h`"),
            ("1d", "\"1d\" has the unknown unit \"d\"; use one of `ns`, `us`, `ms`, `s`, `m`, `h`"),
            ("-1s", "\"-1s\" is negative; durations here start at 0"),
            (
                "9223372036854775808ns",
                "\"9223372036854775808ns\" is longer than 292 years; use a shorter one",
            ),
            (
                "99999999999999999999h",
                "\"99999999999999999999h\" is longer than 292 years; use a shorter one",
            ),
        ] {
            assert_eq!(parse(text).map_err(|e| e.to_string()), Err(message.to_owned()));
        }
    }

    #[test]
    fn prints_as_go_prints() {
        for (millis, text) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1.5s"),
            (10_000, "10s"),
            (80_000, "1m20s"),
            (300_000, "5m0s"),
            (3_600_000, "1h0m0s"),
            (3_723_500, "1h2m3.5s"),
        ] {
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
        assert_eq!(format(Duration::from_nanos(1)), "1ns");
        assert_eq!(format(Duration::from_nanos(1_100)), "1.1\u{b5}s");
        assert_eq!(format(Duration::from_nanos(1_050_000)), "1.05ms");
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same(nanos in 0..=i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}|[-+0-9.nusmh\u{b5}]{0,30}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_duration_panics(seconds: u64, nanos in 0..1_000_000_000_u32) {
            let _ = format(Duration::new(seconds, nanos));
        }
    }
}
