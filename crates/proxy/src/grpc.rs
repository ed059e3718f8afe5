//! gRPC's status codes, for rules and for reading records.

pub const OK: u16 = 0;
pub const CANCELLED: u16 = 1;
pub const UNKNOWN: u16 = 2;
pub const INVALID_ARGUMENT: u16 = 3;
pub const DEADLINE_EXCEEDED: u16 = 4;
pub const NOT_FOUND: u16 = 5;
pub const ALREADY_EXISTS: u16 = 6;
pub const PERMISSION_DENIED: u16 = 7;
pub const RESOURCE_EXHAUSTED: u16 = 8;
pub const FAILED_PRECONDITION: u16 = 9;
pub const ABORTED: u16 = 10;
pub const OUT_OF_RANGE: u16 = 11;
pub const UNIMPLEMENTED: u16 = 12;
pub const INTERNAL: u16 = 13;
pub const UNAVAILABLE: u16 = 14;
pub const DATA_LOSS: u16 = 15;
pub const UNAUTHENTICATED: u16 = 16;
