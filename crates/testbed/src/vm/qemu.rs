//! One run of QEMU: its command line, whether the processor can help, and the reading of what comes out.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::disk::{Disk, LABEL};
use super::folder::Folder;
use super::wire::Wire;
use crate::guard::{self, Group};
use crate::process::wait_child;
use crate::wait::{self, Deadline};
use crate::{packages, say};

const PROGRAM: &str = "qemu-system-x86_64";
/// How long a machine that has said its last may take to be gone.
const END: Duration = Duration::from_secs(30);

/// A machine's parts.
#[derive(Debug, Clone, Copy)]
pub struct Hardware {
    pub cpus: u32,
    pub memory_mib: u32,
    pub wire: Option<Wire>,
    /// Else a reboot ends it, also that of a kernel that panics.
    pub reboots: bool,
}

/// What came out of a machine.
pub struct Ended {
    pub output: Vec<u8>,
    /// As the machine wrote it; empty when it never came to that.
    pub exit_code: String,
    pub console: String,
    /// QEMU's own complaints.
    pub complaints: String,
    /// How QEMU ended.
    pub status: ExitStatus,
    /// It was ended because its time was up.
    pub late: bool,
}

/// Runs the machine to its end, or to the deadline. `sink` gets the script's output as it comes.
pub fn run(
    disk: &Disk,
    folder: &Folder,
    hardware: Hardware,
    deadline: Deadline,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<Ended> {
    let accelerator = Accelerator::choose(folder.dir())?;
    let mut command = command(disk, folder, hardware, accelerator);
    command
        // The changes to the disk go into a file that QEMU makes there and removes at once.
        .env("TMPDIR", folder.dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(folder.path("complaints"))?)
        .process_group(0);
    guard::refuse_when_stopping()?;
    let mut child = command.spawn().context("cannot run `setpriv`")?;
    let _group = Group::of(&child);
    folder.note_machine(child.id())?;
    let mut pipe = child.stdout.take().context("the pipe was asked for")?;
    let mut output = Vec::new();
    let mut late = false;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if !wait::readable(&[pipe.as_fd()], deadline)?[0] {
            late = true;
            child.kill()?;
            break;
        }
        match pipe.read(&mut buffer)? {
            0 => break,
            count => {
                sink(&buffer[..count]);
                output.extend_from_slice(&buffer[..count]);
            }
        }
    }
    let status = match wait_child(&mut child, END)? {
        Some(status) => status,
        None => {
            child.kill()?;
            child.wait()?
        }
    };
    guard::refuse_when_stopping()?;
    Ok(Ended {
        output,
        exit_code: text(&folder.path("exit-code")),
        console: text(&folder.path("console")),
        complaints: text(&folder.path("complaints")),
        status,
        late,
    })
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The kernel ends QEMU with the thread that calls this, however that ends.
fn command(disk: &Disk, folder: &Folder, hardware: Hardware, accelerator: Accelerator) -> Command {
    let drive = |id: &str, path: &Path, options: &str| {
        // A comma in a path is doubled in QEMU's options.
        let path = path.display().to_string().replace(',', ",,");
        format!("if=none,id={id},format=raw,{options},file={path}")
    };
    let file = |name: &str| folder.path(name).display().to_string().replace(',', ",,");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(packages::program(PROGRAM).unwrap_or_else(|| PROGRAM.into()));
    command.args(accelerator.arguments()).args(["-machine", "q35", "-smp", &hardware.cpus.to_string()]);
    command.args(["-m", &hardware.memory_mib.to_string()]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    if !hardware.reboots {
        command.arg("-no-reboot");
    }
    command.args(hardware.wire.into_iter().flat_map(Wire::arguments));
    command.arg("-kernel").arg(&disk.kernel).arg("-initrd").arg(&disk.initrd);
    // A kernel that panics reboots at once.
    command
        .arg("-append")
        .arg(format!("root=LABEL={LABEL} rw console=ttyS0 panic=-1 quiet SYSTEMD_COLORS=0"));
    command.arg("-drive").arg(drive("disk", &disk.image, "snapshot=on"));
    command.args(["-device", "virtio-blk-pci,drive=disk"]);
    command.arg("-drive").arg(drive("payload", &folder.path("payload"), "readonly=on"));
    command.args(["-device", "virtio-blk-pci,drive=payload,serial=payload"]);
    command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    command.arg("-chardev").arg(format!("file,id=console,path={}", file("console")));
    command.args(["-serial", "chardev:console"]);
    // The script's output is QEMU's own, so that it is read as it comes and its end is seen.
    command.args(["-chardev", "file,id=output,path=/dev/stdout"]);
    command.args(["-device", "virtserialport,chardev=output,name=output"]);
    command.arg("-chardev").arg(format!("file,id=exit-code,path={}", file("exit-code")));
    command.args(["-device", "virtserialport,chardev=exit-code,name=exit-code"]);
    command
}

/// Who executes the machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's translator: many times slower, works everywhere.
    Tcg,
}

impl Accelerator {
    fn choose(scratch: &Path) -> Result<Accelerator> {
        let open = || fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        Ok(if open().is_ok() && kvm_works(scratch)? { Accelerator::Kvm } else { Accelerator::Tcg })
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accelerator::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// A boot sector that ends QEMU with [`PROBE_EXIT`]: `mov al, 16; out 0xf4, al`, then halts for ever.
const PROBE: &[u8] = &[0xb0, 0x10, 0xe6, 0xf4, 0xf4, 0xeb, 0xfd];
/// What QEMU's `isa-debug-exit` makes of 16.
const PROBE_EXIT: i32 = 16 * 2 + 1;
/// Translated code takes a tenth of a second for it.
const PROBE_TIME: Duration = Duration::from_secs(2);

/// That the device can be opened means little: inside other virtual machines it may abort, or crawl. So a first sector
/// is booted with it.
fn kvm_works(scratch: &Path) -> Result<bool> {
    let path = scratch.join("probe");
    let mut sector = PROBE.to_vec();
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    fs::write(&path, sector)?;
    let Some(program) = packages::program(PROGRAM) else { bail!("no `{PROGRAM}` found") };
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).args(Accelerator::Kvm.arguments());
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    let shown = path.display().to_string().replace(',', ",,");
    command.arg("-drive").arg(format!("if=ide,format=raw,snapshot=on,file={shown}"));
    command
        .env("TMPDIR", scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    guard::refuse_when_stopping()?;
    let mut child = command.spawn().context("cannot run `setpriv`")?;
    let _group = Group::of(&child);
    let status = wait_child(&mut child, PROBE_TIME)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    let works = status.is_some_and(|status| status.code() == Some(PROBE_EXIT));
    if !works {
        say::note("`/dev/kvm` is there and does not serve; the machine is emulated");
    }
    Ok(works)
}
