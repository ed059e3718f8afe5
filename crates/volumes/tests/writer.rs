//! Whatever is written after whatever: a volume holds what was written last. The host in memory does as the real one.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use crablet_volumes::fake::FakeVolumeHost;
use crablet_volumes::payload::{Payload, PayloadFile};
use crablet_volumes::port::PathKind;
use crablet_volumes::{LinuxVolumeHost, VolumeHost};
use proptest::prelude::*;

const PATHS: [&str; 6] = ["a", "b.conf", "dir/a", "dir/b", "dir/deep/c", "other/d"];

type Files = BTreeMap<usize, String>;

fn payload(files: &Files) -> Arc<Payload> {
    let mut payload = Payload::default();
    for (index, content) in files {
        let file = PayloadFile { content: content.clone().into_bytes(), mode: 0o644, owner: None };
        payload.add(PATHS[*index], file).unwrap();
    }
    Arc::new(payload)
}

async fn check(rounds: Vec<Files>) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let (real, fake) = (LinuxVolumeHost::default(), FakeVolumeHost::default());
    fake.put(folder, PathKind::Folder);
    for (round, files) in rounds.iter().enumerate() {
        let name = format!("..{round}");
        let changed = real.write_payload(folder, payload(files), &name, None).await.unwrap();
        assert_eq!(fake.write_payload(folder, payload(files), &name, None).await.unwrap(), changed);
        assert_eq!(changed, round == 0 || rounds[round - 1] != *files);
        for (index, path) in PATHS.iter().enumerate() {
            let expected = files.get(&index).map(|content| content.clone().into_bytes());
            assert_eq!(fs::read(folder.join(path)).ok(), expected, "{path}");
            assert_eq!(fake.content(folder.join(path)), expected, "{path}");
        }
        assert_eq!(real.names(folder).await.unwrap(), fake.names(folder).await.unwrap());
    }
}

/// Each case is many files on a real disk: few, unless the environment asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var_os("PROPTEST_CASES").map_or(48, |_| ProptestConfig::default().cases);
    ProptestConfig { failure_persistence: None, cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_volume_holds_what_was_written_last(
        rounds in prop::collection::vec(prop::collection::btree_map(0..PATHS.len(), "[xy]{0,2}", 0..5), 1..6)
    ) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(check(rounds));
    }
}
