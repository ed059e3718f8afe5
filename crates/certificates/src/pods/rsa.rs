//! RSA keys. Primes are looked for by `crypto-primes`; ring, which cannot make keys, checks and uses them.

use crypto_bigint::rand_core::UnwrapErr;
use crypto_bigint::{BoxedUint, ConcatenatingMul, Gcd, Limb, NonZero, Odd};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use getrandom::SysRng;

use super::der;
use super::keys::KeyError;

/// Everybody's choice. It is a prime, which two steps below rely on.
const EXPONENT: u32 = 65_537;

/// A PKCS #1 private key. Takes seconds.
pub fn generate(bits: u32) -> Result<Vec<u8>, KeyError> {
    let failed = || KeyError::Generate(format!("RSA {bits}"));
    loop {
        let (mut p, mut q) = (prime(bits / 2).ok_or_else(failed)?, prime(bits / 2).ok_or_else(failed)?);
        if p == q {
            continue;
        }
        if p < q {
            std::mem::swap(&mut p, &mut q);
        }
        // Nothing only if a prime less one is a multiple of the exponent: then others are looked for.
        if let Some(key) = assembled(&p, &q) {
            return Ok(key);
        }
    }
}

/// With its two first bits set, so that the product of two of them has exactly twice as many.
fn prime(bits: u32) -> Option<BoxedUint> {
    let sieve = SmallFactorsSieveFactory::<BoxedUint>::new(Flavor::Any, bits, SetBits::TwoMsb).ok()?;
    sieve_and_find(&mut UnwrapErr(SysRng), sieve, |_, candidate| is_prime(Flavor::Any, candidate)).ok()?
}

/// `RSAPrivateKey` of RFC 8017, A.1.2.
fn assembled(p: &BoxedUint, q: &BoxedUint) -> Option<Vec<u8>> {
    let one = BoxedUint::one_with_precision(p.bits_precision());
    let (p1, q1) = (p.wrapping_sub(&one), q.wrapping_sub(&one));
    let (p1, q1) = (nonzero(p1)?, nonzero(q1)?);
    let modulus = p.concatenating_mul(q);
    // The least common multiple of both: what FIPS 186 wants the exponents to be inverse by.
    let together = p1.as_ref().concatenating_mul(q1.as_ref());
    let order = together.div_rem(&nonzero(p1.as_ref().gcd(q1.as_ref()))?).0;
    let d = inverse_of_exponent(&order)?;
    let coefficient = q.invert_odd_mod(&Option::<Odd<BoxedUint>>::from(Odd::new(p.clone()))?);
    let coefficient: BoxedUint = Option::from(coefficient)?;
    let number = |number: &BoxedUint| der::integer(&number.to_be_bytes());
    Some(der::sequence(&[
        &der::integer(&[0]),
        &number(&modulus),
        &der::integer(&EXPONENT.to_be_bytes()),
        &number(&d),
        &number(p),
        &number(q),
        &number(&d.rem(&p1)),
        &number(&d.rem(&q1)),
        &number(&coefficient),
    ]))
}

/// `d` with `d * EXPONENT = 1 + k * order`: `k` is found modulo the small prime, the rest is a division without rest.
fn inverse_of_exponent(order: &BoxedUint) -> Option<BoxedUint> {
    let exponent: NonZero<Limb> = Option::from(NonZero::new(Limb::from(EXPONENT)))?;
    let rest = order.rem_limb(exponent).0;
    if rest == 0 {
        return None;
    }
    let modulus = u128::from(EXPONENT);
    // By Fermat, the inverse of `rest` is its power to the prime less two.
    let (mut inverse, mut base, mut power) = (1, u128::from(rest), modulus - 2);
    while power > 0 {
        if power & 1 == 1 {
            inverse = inverse * base % modulus;
        }
        base = base * base % modulus;
        power >>= 1;
    }
    let k = BoxedUint::from(u64::try_from(modulus - inverse).ok()?);
    let one = BoxedUint::one_with_precision(k.bits_precision());
    let (d, rest) = order.concatenating_mul(&k).wrapping_add(&one).div_rem_limb(exponent);
    (rest.0 == 0).then_some(d)
}

fn nonzero(number: BoxedUint) -> Option<NonZero<BoxedUint>> {
    Option::from(NonZero::new(number))
}
