//! Kubernetes quantities: `500m`, `1.5Gi`, `2e3`.
//!
//! Upstream holds nothing finer than a nano and nothing beyond 2^63-1: what is finer is rounded up (away from zero), what
//! is larger is capped. So every quantity is a whole number of nanos, and that number fits an `i128` with room for sums.

use std::cmp::Ordering;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::image::shorten;

const NANOS: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// 2^63-1 whole units.
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS;

/// Which family of suffixes a quantity was written with, and is printed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`
    #[default]
    Decimal,
    /// `Ki Mi Gi Ti Pi Ei`
    Binary,
    /// `e3`, `E-6`
    Exponent,
}

/// An exact amount. Two quantities are equal when their amounts are, however they are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("the quantity is empty; write a number such as `500m` or `128Mi`")]
    Empty,
    #[error("{text:?} is not a quantity; write a number such as `500m` or `128Mi`")]
    NotANumber { text: String },
    #[error(
        "{text:?} has the unknown suffix {suffix:?}; use one of `n`, `u`, `m`, `k`, `M`, `G`, `T`, `P`, `E`, `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei` or an exponent such as `e3`"
    )]
    UnknownSuffix { text: String, suffix: String },
}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: Format::Decimal };

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let not_a_number = || QuantityError::NotANumber { text: shorten(text) };
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(not_a_number());
        }
        let suffix = Suffix::parse(suffix)
            .ok_or_else(|| QuantityError::UnknownSuffix { text: shorten(text), suffix: shorten(suffix) })?;
        let nanos = Digits::new(whole, fraction).to_nanos(suffix.power_of_two, suffix.power_of_ten);
        let mut format = suffix.format;
        // A fraction of one has no binary form, as upstream v1.36 sees it.
        if format == Format::Binary && nanos > 0 && nanos < NANOS {
            format = Format::Decimal;
        }
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    pub fn from_value(value: i64, format: Format) -> Self {
        Self { nanos: i128::from(value) * NANOS, format }
    }

    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self { nanos: i128::from(milli) * NANOS_PER_MILLI, format }
    }

    /// Whole units, rounded up (away from zero).
    pub fn value(&self) -> i64 {
        saturate(div_away_from_zero(self.nanos, NANOS))
    }

    /// Thousandths, rounded up (away from zero), capped at what an `i64` holds.
    pub fn milli_value(&self) -> i64 {
        saturate(div_away_from_zero(self.nanos, NANOS_PER_MILLI))
    }

    /// The quantity rounded up to whole thousandths, which is the finest that the API keeps for resources.
    pub fn rounded_to_milli(self) -> Self {
        Self {
            nanos: div_away_from_zero(self.nanos, NANOS_PER_MILLI).saturating_mul(NANOS_PER_MILLI),
            ..self
        }
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    pub fn is_whole(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// The sum, in the format of `self` unless `self` is zero.
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    pub fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos), ..self }
    }

    pub fn format(&self) -> Format {
        self.format
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<&ApiQuantity> for Quantity {
    type Error = QuantityError;

    fn try_from(quantity: &ApiQuantity) -> Result<Self, Self::Error> {
        Self::parse(&quantity.0)
    }
}

impl From<Quantity> for ApiQuantity {
    fn from(quantity: Quantity) -> Self {
        ApiQuantity(quantity.to_string())
    }
}

/// The canonical form: no fraction, the largest suffix that keeps the amount exact.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Small amounts print in decimal even when they were written in binary.
        if self.format == Format::Binary && self.nanos.abs() >= 1024 * NANOS {
            const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            let (mantissa, power) =
                shift_out(div_away_from_zero(self.nanos, NANOS), 1024, SUFFIXES.len() - 1);
            return write!(f, "{mantissa}{}", SUFFIXES[power]);
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let (mantissa, power) = shift_out(self.nanos, 1000, SUFFIXES.len() - 1);
        match (self.format, power) {
            (Format::Exponent, 3) => write!(f, "{mantissa}"),
            (Format::Exponent, _) => write!(f, "{mantissa}e{}", power as i64 * 3 - 9),
            _ => write!(f, "{mantissa}{}", SUFFIXES[power]),
        }
    }
}

/// Divides by `base` as often as it divides exactly, at most `most` times.
fn shift_out(mut mantissa: i128, base: i128, most: usize) -> (i128, usize) {
    let mut power = 0;
    while power < most && mantissa % base == 0 {
        mantissa /= base;
        power += 1;
    }
    (mantissa, power)
}

fn div_away_from_zero(value: i128, unit: i128) -> i128 {
    value / unit + if value % unit == 0 { 0 } else { value.signum() }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

struct Suffix {
    power_of_two: u32,
    power_of_ten: i64,
    format: Format,
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        let decimal = |power_of_ten| Some(Self { power_of_two: 0, power_of_ten, format: Format::Decimal });
        let binary = |power_of_two| Some(Self { power_of_two, power_of_ten: 0, format: Format::Binary });
        match text {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let exponent = text.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
                // Beyond this the amount is capped or rounded to one nano anyway.
                let power_of_ten = exponent.clamp(-1_000_000_000, 1_000_000_000);
                Some(Self { power_of_two: 0, power_of_ten, format: Format::Exponent })
            }
        }
    }
}

/// A non-negative decimal number as digits times a power of ten, with no leading or trailing zeros.
struct Digits<'a> {
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Digits<'a> {
    fn new(whole: &'a str, fraction: &'a str) -> Self {
        Self { whole: whole.trim_start_matches('0'), fraction: fraction.trim_end_matches('0') }
    }

    /// The number times 2^`two` times 10^`ten`, in nanos, rounded up and capped.
    fn to_nanos(&self, two: u32, ten: i64) -> i128 {
        // As many digits as still fit an i128 after the shift: 37, or 19 with the largest binary suffix. Three tenths of
        // a digit make a bit.
        let most = (126 - two as usize) * 3 / 10;
        let mut significant =
            self.whole.bytes().chain(self.fraction.bytes()).skip_while(|digit| *digit == b'0').peekable();
        if significant.peek().is_none() {
            return 0;
        }
        let leading_zeros = if self.whole.is_empty() {
            self.fraction.bytes().take_while(|digit| *digit == b'0').count()
        } else {
            0
        };
        // The number is 0.d1d2d3... times 10^magnitude.
        let magnitude = self.whole.len() as i64 - leading_zeros as i64 + ten;
        if magnitude > 20 {
            return MAX_NANOS;
        }
        let (mut mantissa, mut kept) = (0_i128, 0);
        while kept < most
            && let Some(digit) = significant.next()
        {
            mantissa = mantissa * 10 + i128::from(digit - b'0');
            kept += 1;
        }
        let dropped = i128::from(significant.any(|digit| digit != b'0'));
        let shifted = mantissa << two;
        let nanos = match magnitude - kept as i64 + 9 {
            up @ 0.. => 10_i128
                .checked_pow(up as u32)
                .and_then(|factor| shifted.checked_mul(factor)?.checked_add(dropped))
                .unwrap_or(MAX_NANOS),
            down => match u32::try_from(-down).ok().and_then(|down| 10_i128.checked_pow(down)) {
                Some(divisor) => shifted / divisor + i128::from(shifted % divisor != 0).max(dropped),
                None => 1,
            },
        };
        nanos.min(MAX_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn values_round_up() {
        for (text, value, milli) in [
            ("0", 0, 0),
            ("1", 1, 1000),
            ("+1", 1, 1000),
            ("100m", 1, 100),
            ("0.1", 1, 100),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("1500m", 2, 1500),
            ("1n", 1, 1),
            ("0.0000000001", 1, 1),
            ("1e-999999999999", 1, 1),
            ("0.1m", 1, 1),
            ("-1500m", -2, -1500),
            ("1k", 1_000, 1_000_000),
            ("1Ki", 1_024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("128Mi", 134_217_728, 134_217_728_000),
            ("0.5Ki", 512, 512_000),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("7Ei", 8_070_450_532_247_928_832, i64::MAX),
            ("1e3", 1_000, 1_000_000),
            ("1E3", 1_000, 1_000_000),
            ("1e+3", 1_000, 1_000_000),
            ("12e-1", 2, 1_200),
            ("1234567890123.000000001", 1_234_567_890_124, 1_234_567_890_123_001),
            ("0.00000000000000000000000000000000000000001Ei", 1, 1),
            ("0000000000000000000000000000000012", 12, 12_000),
            ("9223372036854775807", i64::MAX, i64::MAX),
        ] {
            let quantity = parse(text);
            assert_eq!((quantity.value(), quantity.milli_value()), (value, milli), "{text}");
        }
    }

    #[test]
    fn what_is_too_large_is_capped() {
        for text in [
            "9223372036854775808",
            "8Ei",
            "1e99999999",
            "99999999999999999999999999999999999999999999E",
            "9999999999999999999Ki",
        ] {
            assert_eq!(parse(text).value(), i64::MAX, "{text}");
        }
        assert_eq!(parse("-1e99").value(), -i64::MAX);
    }

    #[test]
    fn the_canonical_form_is_upstreams() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("-0", "0"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1500000", "1500k"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1000Ki", "1000Ki"),
            ("1025.5Ki", "1050112"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1000e0", "1e3"),
            ("1e0", "1"),
            ("1e-3", "1e-3"),
            ("12e-1", "1200e-3"),
            ("100n", "100n"),
            ("0.00000000001", "1n"),
            ("-1.5Gi", "-1536Mi"),
            ("0.5n", "1n"),
            ("1E", "1E"),
        ] {
            assert_eq!(parse(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, start) in [
            ("", "the quantity is empty; write"),
            ("-", "\"-\" is not a quantity; write"),
            (".", "\".\" is not a quantity; write"),
            ("1.2.3", "\"1.2.3\" is not a quantity; write"),
            ("Mi", "\"Mi\" is not a quantity; write"),
            ("--1", "\"--1\" is not a quantity; write"),
            (" 1", "\" 1\" is not a quantity; write"),
            ("1 ", "\"1 \" has the unknown suffix \" \"; use"),
            ("1e", "\"1e\" has the unknown suffix \"e\"; use"),
            ("1K", "\"1K\" has the unknown suffix \"K\"; use"),
            ("128MB", "\"128MB\" has the unknown suffix \"MB\"; use"),
            ("1e3.5", "\"1e3.5\" has the unknown suffix \"e3.5\"; use"),
        ] {
            let message = Quantity::parse(text).map_err(|error| error.to_string()).unwrap_err();
            assert!(message.starts_with(start), "{text}: {message}");
        }
    }

    #[test]
    fn rounding_to_milli_keeps_what_is_exact() {
        assert_eq!(parse("100u").rounded_to_milli().to_string(), "1m");
        assert_eq!(parse("250m").rounded_to_milli().to_string(), "250m");
        assert_eq!(parse("1Gi").rounded_to_milli().to_string(), "1Gi");
    }

    #[test]
    fn sums_keep_the_first_format() {
        assert_eq!(parse("1Gi").plus(parse("1024")).to_string(), "1048577Ki");
        assert_eq!(Quantity::ZERO.plus(parse("1Gi")).to_string(), "1Gi");
        assert_eq!(parse("1Gi").minus(parse("1Gi")), Quantity::ZERO);
    }

    proptest! {
        #[test]
        fn the_canonical_form_parses_to_the_same_amount(text in "[+-]?[0-9]{1,12}(\\.[0-9]{0,6})?([numkMGTPE]|[KMGTPE]i|e[+-]?[0-9]{1,2})?") {
            let quantity = parse(&text);
            let printed = parse(&quantity.to_string());
            if quantity.format() == Format::Binary && !quantity.is_whole() {
                // Printed binary amounts are whole units, rounded up.
                prop_assert_eq!(printed.value(), quantity.value());
            } else {
                prop_assert_eq!(printed, quantity);
            }
        }

        #[test]
        fn integers_are_exact(value: i64) {
            let quantity = parse(&value.to_string());
            prop_assert_eq!(quantity.value(), value.max(-i64::MAX));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,30}|[-+0-9.eEinumkKMGTP]{0,60}") {
            if let Ok(quantity) = Quantity::parse(&text) {
                let _ = (quantity.value(), quantity.milli_value(), quantity.to_string(), quantity.rounded_to_milli());
            }
        }
    }
}
