//! Files to a container and back.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::clients;
use crate::cluster::support::{QUIET, Room, shell_pod};

const SIZE: usize = 200_000_000;
const BLOCK: usize = 1_000_000;

pub fn two_hundred_megabytes_are_copied(room: &Room<'_>) -> Result<()> {
    room.create_ready(&shell_pod("box", QUIET))?;
    let (there, back) = (room.folder().join("there"), room.folder().join("back"));
    write_random(&there)?;
    for client in clients::both()? {
        let path = |path: &Path| path.to_str().map(str::to_owned).context("an odd path");
        client.output(room, &["cp", &path(&there)?, "box:/tmp/file"])?;
        client.output(room, &["cp", "box:/tmp/file", &path(&back)?])?;
        ensure!(equal(&there, &back)?, "the {} kubectl brought back something else", client.name);
        fs::remove_file(&back)?;
        client.output(room, &["exec", "box", "--", "rm", "/tmp/file"])?;
    }
    fs::remove_file(&there)?;
    room.delete(&["pod", "box"])
}

fn write_random(path: &Path) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(36);
    let mut file = BufWriter::new(File::create(path)?);
    let mut block = vec![0; BLOCK];
    for _ in 0..SIZE / BLOCK {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    Ok(file.flush()?)
}

fn equal(one: &Path, other: &Path) -> Result<bool> {
    if fs::metadata(one)?.len() != fs::metadata(other)?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
    let (mut left, mut right) = (vec![0; BLOCK], vec![0; BLOCK]);
    for _ in 0..SIZE / BLOCK {
        one.read_exact(&mut left)?;
        other.read_exact(&mut right)?;
        if left != right {
            return Ok(false);
        }
    }
    Ok(true)
}
