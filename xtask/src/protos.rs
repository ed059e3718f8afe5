//! `protos`: makes `crates/protos/src/generated` from `crates/protos/proto`.
//!
//! `protos --check PATH` instead compares our file of the same package with upstream's file at PATH: whatever ours has must
//! be there under the same name, number and type. Upstream may have more. `CRABLET_UPSTREAM_CRI_PROTO` names CRI's file for
//! the test that does the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use protox::prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MethodDescriptor};

/// Our files, each of a package of its own.
const FILES: [&str; 4] = ["content.proto", "cri.proto", "csi.proto", "pluginregistration.proto"];
/// Written by hand in crates/protos/src/debug.rs, because they hold secrets.
const SECRET: [&str; 4] = [
    ".runtime.v1.AuthConfig",
    ".csi.v1.NodeStageVolumeRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
];

pub fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip_while(|a| a != "protos").skip(1).collect();
    match arguments.as_slice() {
        [] => generate(),
        [flag, path] if flag == "--check" => check(Path::new(path)),
        _ => bail!("usage: `xtask protos [--check PATH]`"),
    }
}

fn generate() -> Result<()> {
    let crate_dir = protos_dir();
    let descriptors = protox::compile(FILES, [crate_dir.join("proto")])?;
    let out = crate_dir.join("src/generated");
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        // Sorted maps, so that the same request is always the same bytes and prints the same.
        .btree_map(".")
        .skip_debug(SECRET)
        .emit_rerun_if_changed(false)
        .out_dir(&out)
        .compile_fds(descriptors)
        .with_context(|| format!("cannot write `{}`", out.display()))?;
    eprintln!("wrote `{}`", out.display());
    Ok(())
}

fn check(upstream: &Path) -> Result<()> {
    let theirs = pool(upstream)?;
    let ours = counterpart(&theirs)?;
    let (ours, theirs) = (items(&ours), items(&theirs));
    let differences: Vec<String> = ours
        .iter()
        .filter_map(|(name, ours)| match theirs.get(name) {
            None => Some(format!("`{name}` is not in upstream's file")),
            Some(theirs) if theirs != ours => Some(format!("`{name}` is `{ours}`, upstream has `{theirs}`")),
            Some(_) => None,
        })
        .collect();
    if !differences.is_empty() {
        bail!("{} differences:\n{}", differences.len(), differences.join("\n"));
    }
    println!("{} names, numbers and types equal upstream's ({} there)", ours.len(), theirs.len());
    Ok(())
}

/// Our file of the package that theirs has.
fn counterpart(theirs: &DescriptorPool) -> Result<DescriptorPool> {
    let packages: Vec<String> = theirs.services().map(|service| service.package_name().to_owned()).collect();
    for file in FILES {
        let ours = pool(&protos_dir().join("proto").join(file))?;
        if ours.services().any(|service| packages.iter().any(|package| package == service.package_name())) {
            return Ok(ours);
        }
    }
    bail!("none of our files has a package of that file: {}", packages.join(", "))
}

fn pool(proto: &Path) -> Result<DescriptorPool> {
    let folder = proto.parent().context("not a file")?;
    let descriptors = protox::compile([proto], [folder])?;
    Ok(DescriptorPool::from_file_descriptor_set(descriptors)?)
}

/// Everything that two sides of a connection must agree on, as `full name -> what it is`.
fn items(pool: &DescriptorPool) -> BTreeMap<String, String> {
    let mut items = BTreeMap::new();
    for message in pool.all_messages() {
        items.insert(message.full_name().to_owned(), "message".to_owned());
        for field in message.fields() {
            items.insert(field.full_name().to_owned(), field_type(&field));
        }
    }
    for value in pool.all_enums().flat_map(|e| e.values().collect::<Vec<_>>()) {
        let name = format!("{}.{}", value.parent_enum().full_name(), value.name());
        items.insert(name, format!("value {}", value.number()));
    }
    for method in pool.services().flat_map(|s| s.methods().collect::<Vec<_>>()) {
        items.insert(method.full_name().to_owned(), method_type(&method));
    }
    items
}

fn field_type(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(values) => values.full_name().to_owned(),
        scalar => format!("{scalar:?}"),
    };
    format!("{:?} {kind} = {}", field.cardinality(), field.number())
}

fn method_type(method: &MethodDescriptor) -> String {
    let side = |message: &str, stream| format!("{}{message}", if stream { "stream " } else { "" });
    format!(
        "rpc ({}) -> ({})",
        side(method.input().full_name(), method.is_client_streaming()),
        side(method.output().full_name(), method.is_server_streaming()),
    )
}

fn protos_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/protos")
}

#[cfg(test)]
mod tests {
    #[test]
    fn our_cri_proto_agrees_with_upstreams_where_that_is_at_hand() {
        if let Some(path) = std::env::var_os("CRABLET_UPSTREAM_CRI_PROTO") {
            super::check(path.as_ref()).unwrap();
        }
    }
}
