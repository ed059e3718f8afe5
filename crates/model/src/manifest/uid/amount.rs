//! A quantity as upstream v1.36 holds it in memory: which of its two representations a text leads to, and whether the text
//! itself is kept, is all printed into a pod's hash.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

/// Nothing finer is held.
const NANO: i32 = -9;
/// Resources of pods are rounded up to this.
const MILLI: i32 = -3;
/// Decimal digits that surely fit the quick representation.
const SURE_DIGITS: i32 = 18;
/// The most that an amount with a binary suffix can be.
const MOST: i128 = i64::MAX as i128;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    number: Number,
    /// What was written, if that is the canonical form already.
    text: String,
    format: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Number {
    /// `value` times ten to the power of `scale`.
    Quick { value: i64, scale: i32 },
    /// The digits as words, the lowest first, divided by ten to the power of `scale`.
    Exact { is_negative: bool, words: [u64; 2], scale: i32 },
}

impl Default for Number {
    fn default() -> Self {
        Self::Quick { value: 0, scale: 0 }
    }
}

impl Number {
    fn exact(digits: i128, scale: i32) -> Self {
        let size = digits.unsigned_abs();
        Self::Exact { is_negative: digits < 0, words: [size as u64, (size >> 64) as u64], scale }
    }

    /// Digits, and the power of ten that they are divided by.
    fn digits(self) -> (i128, i32) {
        match self {
            Self::Quick { value, scale } => (value.into(), -scale),
            Self::Exact { is_negative, words: [low, high], scale } => {
                let size = (i128::from(high & (u64::MAX >> 1)) << 64) | i128::from(low);
                (if is_negative { -size } else { size }, scale)
            }
        }
    }
}

enum Suffix {
    Binary(u32),
    Decimal(i32),
    Exponent(i32),
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        if let Some(power) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == text) {
            return Some(Self::Binary(10 * (u32::try_from(power).ok()? + 1)));
        }
        let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if let Some(power) = decimal.iter().position(|known| *known == text) {
            return Some(Self::Decimal(3 * (i32::try_from(power).ok()? - 3)));
        }
        text.strip_prefix(['e', 'E'])?.parse().ok().map(Self::Exponent)
    }

    fn format(&self) -> &'static str {
        match self {
            Self::Binary(_) => "BinarySI",
            Self::Decimal(_) => "DecimalSI",
            Self::Exponent(_) => "DecimalExponent",
        }
    }
}

impl Amount {
    /// `None` for what is no quantity; validation refuses that.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self { text: text.to_owned(), ..Self::plain(Number::default(), "DecimalSI") });
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let suffix = Suffix::parse(suffix)?;
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let is_negative = text.starts_with('-');
        match quick(whole, fraction, &suffix) {
            Some((value, scale, is_canonical)) => {
                let value = if is_negative { -value } else { value };
                let kept = if is_canonical { text.to_owned() } else { String::new() };
                Some(Self { text: kept, ..Self::plain(Number::Quick { value, scale }, suffix.format()) })
            }
            None => exact(whole, fraction, &suffix, is_negative),
        }
    }

    fn plain(number: Number, format: &str) -> Self {
        Self { number, text: String::new(), format: format.to_owned() }
    }

    /// Rounded up to thousandths, as all resources of pods are.
    pub fn rounded(mut self) -> Self {
        match self.number {
            Number::Quick { scale, .. } if scale >= MILLI => return self,
            Number::Quick { value, scale } => {
                let value = rounded_up(value.into(), -scale, -MILLI).and_then(|value| value.try_into().ok());
                self.number = Number::Quick { value: value.unwrap_or_default(), scale: MILLI };
            }
            Number::Exact { .. } => {
                let (digits, scale) = self.number.digits();
                if let Some(digits) = rounded_up(digits, scale, -MILLI) {
                    self.number = Number::exact(digits, -MILLI);
                }
            }
        }
        self.text.clear();
        self
    }

    fn is_zero(&self) -> bool {
        self.number.digits().0 == 0
    }

    pub fn add(&mut self, other: &Self) {
        self.text.clear();
        if self.is_zero() {
            self.format.clone_from(&other.format);
        }
        if let (Number::Quick { .. }, Number::Quick { .. }) = (self.number, other.number)
            && let Some(sum) = quick_sum(self.number, other.number)
        {
            self.number = sum;
            return;
        }
        let ((one, one_scale), (two, two_scale)) = (self.number.digits(), other.number.digits());
        let scale = one_scale.max(two_scale);
        let sum = rounded_up(one, one_scale, scale).zip(rounded_up(two, two_scale, scale));
        if let Some((one, two)) = sum {
            self.number = Number::exact(one.saturating_add(two), scale);
        }
    }

    /// Leaves the exact representation behind when the other has it, as upstream's comparison does.
    pub fn compare(&mut self, other: &Self) -> Ordering {
        let ((one, one_scale), (two, two_scale)) = (self.number.digits(), other.number.digits());
        if let (Number::Quick { .. }, Number::Exact { .. }) = (self.number, other.number) {
            self.number = Number::exact(one, one_scale);
        }
        let scale = one_scale.max(two_scale);
        match (rounded_up(one, one_scale, scale), rounded_up(two, two_scale, scale)) {
            (Some(one), Some(two)) => one.cmp(&two),
            (one, two) => two.is_some().cmp(&one.is_some()),
        }
    }

    pub fn print(&self, out: &mut impl Write) -> fmt::Result {
        let quick = match self.number {
            Number::Quick { value, scale } => (value, scale),
            Number::Exact { .. } => (0, 0),
        };
        write!(
            out,
            "{{i:(resource.int64Amount){{value:(int64){} scale:(resource.Scale){}}}",
            quick.0, quick.1
        )?;
        write!(out, " d:(resource.infDecAmount){{Dec:(*inf.Dec)")?;
        match self.number {
            Number::Quick { .. } => write!(out, "<nil>")?,
            Number::Exact { is_negative, words, scale } => {
                write!(out, "{{unscaled:(big.Int){{neg:(bool){is_negative} abs:(big.nat)")?;
                match words {
                    [0, 0] => write!(out, "<nil>")?,
                    [low, 0] => write!(out, "[{low}]")?,
                    [low, high] => write!(out, "[{low} {high}]")?,
                }
                write!(out, "}} scale:(inf.Scale){scale}}}")?;
            }
        }
        write!(out, "}} s:(string){} Format:(resource.Format){}}}", self.text, self.format)
    }
}

/// Value, scale, and whether the text is canonical; `None` where upstream takes the exact representation.
fn quick(whole: &str, fraction: &str, suffix: &Suffix) -> Option<(i64, i32, bool)> {
    let digits = |text: &str| i32::try_from(text.len()).ok();
    let (factor, scale, spare) = match *suffix {
        Suffix::Decimal(power) | Suffix::Exponent(power) => {
            (1, power, SURE_DIGITS - digits(whole)?.checked_add(digits(fraction)?)?)
        }
        Suffix::Binary(_) if !fraction.is_empty() => return None,
        // A thousand and twenty-four is counted as three digits.
        Suffix::Binary(power) => {
            (1_i64 << power, 0, 15 - digits(whole)? - i32::try_from(power).ok()? * 3 / 10 - 1)
        }
    };
    let scale = scale.checked_sub(digits(fraction)?)?;
    if spare < 0 || scale < NANO {
        return None;
    }
    let written = format!("{whole}{fraction}");
    let value: i64 = written.parse().ok()?;
    let is_canonical = match suffix {
        Suffix::Binary(_) => value & 7 != 0,
        _ => scale % 3 == 0 && !written.ends_with("000") && !written.starts_with('0'),
    };
    Some((value.checked_mul(factor)?, scale, is_canonical))
}

fn exact(whole: &str, fraction: &str, suffix: &Suffix, is_negative: bool) -> Option<Amount> {
    let written: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let (mut digits, mut scale) = match *suffix {
        Suffix::Binary(power) => (written.checked_mul(1_i128 << power)?, places),
        Suffix::Decimal(power) | Suffix::Exponent(power) => (written, places.checked_sub(power)?),
    };
    if digits != 0 {
        (digits, scale) = (rounded_up(digits, scale, -NANO)?, -NANO);
    }
    let mut format = suffix.format();
    if let Suffix::Binary(_) = suffix {
        let one = 10_i128.pow(9);
        if digits > MOST.saturating_mul(one) {
            (digits, scale) = (MOST, 0);
        } else if digits > 0 && digits < one {
            // A fraction of one has no binary form.
            format = "DecimalSI";
        }
    }
    Some(Amount::plain(Number::exact(if is_negative { -digits } else { digits }, scale), format))
}

/// Digits for another number of decimal places, away from zero where some are lost. `None` when it is too large.
fn rounded_up(digits: i128, places: i32, wanted: i32) -> Option<i128> {
    let power = |places: i32| 10_i128.checked_pow(places.try_into().ok()?);
    if wanted >= places {
        return if digits == 0 { Some(0) } else { digits.checked_mul(power(wanted.checked_sub(places)?)?) };
    }
    // So many places that nothing but the sign is left.
    let Some(divisor) = power(places.checked_sub(wanted)?) else { return Some(digits.signum()) };
    let rest = digits % divisor;
    Some(digits / divisor + rest.signum())
}

/// `None` when it does not fit.
fn quick_sum(one: Number, two: Number) -> Option<Number> {
    let (Number::Quick { value: a, scale: a_scale }, Number::Quick { value: b, scale: b_scale }) = (one, two)
    else {
        return None;
    };
    if b == 0 {
        return Some(one);
    }
    if a == 0 {
        return Some(two);
    }
    let scale = a_scale.min(b_scale);
    let at =
        |value: i64, from: i32| i64::try_from(rounded_up(value.into(), 0, from.checked_sub(scale)?)?).ok();
    Some(Number::Quick { value: at(a, a_scale)?.checked_add(at(b, b_scale)?)?, scale })
}
