//! Wall-clock time.

use jiff::Timestamp;

/// What time it is. Waiting is not asked of a clock: deadlines and sleeps are tokio's.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A moment on the clock of this machine's time zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalTime {
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
}

/// `seconds` since 1970. The C library knows the time zone; it looks for it once.
#[allow(unsafe_code)]
pub fn local_time(seconds: libc::time_t) -> LocalTime {
    let mut broken_down = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and all zeroes are a valid `tm`, which is what is left on failure.
    let tm = unsafe {
        libc::localtime_r(&raw const seconds, broken_down.as_mut_ptr());
        broken_down.assume_init()
    };
    let small = |number: libc::c_int| u8::try_from(number).unwrap_or_default();
    LocalTime {
        month: small(tm.tm_mon + 1),
        day: small(tm.tm_mday),
        hour: small(tm.tm_hour),
        minute: small(tm.tm_min),
        second: small(tm.tm_sec),
    }
}
