//! The test bed's CSI driver as a program. See `crablet_testbed::csi`.

use std::io::Read;

use anyhow::Result;
use crablet_testbed::csi::{DriverOptions, service};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = DriverOptions::from_arguments(std::env::args().skip(1))?;
    // Whoever started it holds the other end: it goes with them, however they go.
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    });
    service::serve(options).await
}
