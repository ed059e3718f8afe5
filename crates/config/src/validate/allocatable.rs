//! What is enforced of the node's resources.

use super::Check;

const KEY: &str = "enforceNodeAllocatable";
const SYSTEM: &str = "system-reserved";
const SYSTEM_COMPRESSIBLE: &str = "system-reserved-compressible";
const KUBE: &str = "kube-reserved";
const KUBE_COMPRESSIBLE: &str = "kube-reserved-compressible";

pub(super) fn check(check: &mut Check<'_>) {
    let tree = check.tree;
    let levels = tree.texts(KEY);
    let title = check.title(KEY);
    for (plain, compressible) in [(SYSTEM, SYSTEM_COMPRESSIBLE), (KUBE, KUBE_COMPRESSIBLE)] {
        if levels.contains(&plain) && levels.contains(&compressible) {
            let message =
                format!("both {plain:?} and {compressible:?} cannot be specified together in {title}");
            check.invalid(KEY, message, "keep one of the two");
        }
    }
    for (index, level) in levels.iter().enumerate() {
        if levels[..index].contains(level) {
            check.invalid(KEY, format!("duplicated enforcements {level:?} in {title}"), "name it once");
            continue;
        }
        one(check, level, levels.len());
    }
    reserved_cpus(check);
}

fn one(check: &mut Check<'_>, level: &str, levels: usize) {
    let title = check.title(KEY);
    match level {
        "pods" => (),
        SYSTEM | SYSTEM_COMPRESSIBLE => {
            needs_cgroup(check, "systemReservedCgroup", SYSTEM, SYSTEM_COMPRESSIBLE);
        }
        KUBE | KUBE_COMPRESSIBLE => needs_cgroup(check, "kubeReservedCgroup", KUBE, KUBE_COMPRESSIBLE),
        "none" => {
            if levels > 1 {
                let message =
                    format!("{title} may not contain additional enforcements when \"none\" is specified");
                check.invalid(KEY, message, "keep `none` alone, or take it out");
            }
            return;
        }
        _ => {
            let message = format!(
                "option {level:?} specified for {title}. Valid options are \"pods\", \"{SYSTEM}\", \"{SYSTEM_COMPRESSIBLE}\", \"{KUBE}\", \"{KUBE_COMPRESSIBLE}\" or \"none\""
            );
            check.invalid(KEY, message, "give one of them");
            return;
        }
    }
    if !check.tree.is("cgroupsPerQOS") {
        let cgroups = check.title("cgroupsPerQOS");
        let message = format!("{cgroups} must be set to true when {level:?} contained in {title}");
        check.invalid("cgroupsPerQOS", message, "set it to true, or `enforceNodeAllocatable: [none]`");
    }
}

fn needs_cgroup(check: &mut Check<'_>, cgroup: &str, plain: &str, compressible: &str) {
    if check.tree.text(cgroup).is_empty() {
        let (title, list) = (check.title(cgroup), check.title(KEY));
        let message =
            format!("{title} must be specified when {plain:?} or {compressible:?} included in {list}");
        check.invalid(KEY, message, format!("set `{cgroup}`, or take the level out"));
    }
}

fn reserved_cpus(check: &mut Check<'_>) {
    const CPUS: &str = "reservedSystemCPUs";
    let cpus = check.tree.text(CPUS);
    if cpus.is_empty() {
        return;
    }
    let titles = [CPUS, "systemReservedCgroup", "kubeReservedCgroup"].map(|key| check.title(key));
    let [title, system, kube] = titles;
    if !check.tree.text("systemReservedCgroup").is_empty()
        || !check.tree.text("kubeReservedCgroup").is_empty()
    {
        let message = format!("can't use {title} with {system} or {kube}");
        check.invalid(CPUS, message, "leave one of them out");
    }
    if let Some(part) = cpus.split(',').find(|part| !is_cpu_range(part)) {
        let message =
            format!("unable to parse {title} {cpus}, error: {part:?} is not a CPU or a range of CPUs");
        check.invalid(CPUS, message, "write it like `0-1,8`");
    }
}

fn is_cpu_range(text: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    match text.split_once('-') {
        None => number(text).is_some(),
        Some((from, to)) => matches!((number(from), number(to)), (Some(from), Some(to)) if from <= to),
    }
}
