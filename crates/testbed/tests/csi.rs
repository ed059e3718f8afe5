//! The test bed's own CSI driver keeps to the specification.

use crablet_testbed::csi::{Driver, DriverOptions, sanity};

#[test]
fn the_driver_passes_csi_sanity() {
    if !sanity::is_built() {
        eprintln!("skipped: `csi-sanity` is not built (`cargo xtask test` builds it)");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let all = ["stage", "stats", "expand", "condition", "single-writers", "mount-group"];
    let options = DriverOptions {
        capabilities: all.map(String::from).to_vec(),
        ..DriverOptions::new("hostpath.csi.crablet.example", home.path())
    };
    let driver = Driver::start(options).unwrap_or_else(|e| panic!("{e:#}"));
    let said = sanity::judge(&driver.options().endpoint(), home.path()).unwrap_or_else(|e| panic!("{e:#}"));
    assert!(said.contains(" 0 Failed"), "{said}");
}
