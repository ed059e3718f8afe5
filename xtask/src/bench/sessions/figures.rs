//! All figures side by side: medians over the rounds.

use crate::bench::node::family::Rest;
use crate::cluster::Which;
use crate::table;

use super::Plan;
use super::load::Load;

/// What one load did to one kubelet.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    memory_mib: f64,
    kib_per_session: f64,
    cpu_percent: f64,
    runtime_cpu_percent: f64,
    threads: f64,
    mib_per_second: f64,
    cpu_seconds_per_gib: f64,
}

impl Figure {
    /// `each_kib` is the memory that each session added; `carried` is in bytes a second, as they came back to the clients.
    pub fn new(before: &Rest, during: &Rest, each_kib: f64, carried: f64) -> Figure {
        let mib_per_second = carried / 1024.0 / 1024.0;
        let cpu_percent = (during.cpu_percent - before.cpu_percent).max(0.0);
        Figure {
            memory_mib: during.rss_mib,
            kib_per_session: each_kib,
            cpu_percent,
            runtime_cpu_percent: (during.runtime_cpu_percent - before.runtime_cpu_percent).max(0.0),
            threads: during.threads,
            mib_per_second,
            cpu_seconds_per_gib: cpu_percent / 100.0 / mib_per_second * 1024.0,
        }
    }
}

#[derive(Default)]
pub struct Results(Vec<(Which, Load, Figure)>);

/// One figure of both kubelets. What was not measured is `None`.
pub struct Line {
    pub what: &'static str,
    unit: &'static str,
    crablet: Option<f64>,
    upstream: Option<f64>,
}

impl Line {
    /// Crablet, upstream, how many times as much upstream has.
    pub fn cells(&self) -> [String; 3] {
        let shown = |value: Option<f64>| match value {
            None => "-".to_owned(),
            Some(value) => format!("{value:.1} {}", self.unit).trim_end().to_owned(),
        };
        let ratio = match (self.crablet, self.upstream) {
            (Some(ours), Some(theirs)) if ours > 0.0 => format!("1 : {:.1}", theirs / ours),
            _ => "-".to_owned(),
        };
        [shown(self.crablet), shown(self.upstream), ratio]
    }
}

impl Results {
    pub fn add(&mut self, which: Which, load: Load, figure: Figure) {
        self.0.push((which, load, figure));
    }

    pub fn lines(&self, load: Load) -> Vec<Line> {
        let line = |what, unit, value: fn(&Figure) -> f64| Line {
            what,
            unit,
            crablet: self.median(Which::Crablet, load, value),
            upstream: self.median(Which::Upstream, load, value),
        };
        let mut lines = vec![
            line("memory (RSS) in all", "MiB", |figure| figure.memory_mib),
            line("memory for each session", "KiB", |figure| figure.kib_per_session),
            line("CPU for all sessions", "%", |figure| figure.cpu_percent),
            line("containerd's CPU for them", "%", |figure| figure.runtime_cpu_percent),
            line("threads", "", |figure| figure.threads),
        ];
        if load.is_busy() {
            lines.push(line("carried back to the clients", "MiB/s", |figure| figure.mib_per_second));
            lines.push(line("CPU time for a GiB", "s", |figure| figure.cpu_seconds_per_gib));
        }
        lines
    }

    fn median(&self, which: Which, load: Load, value: fn(&Figure) -> f64) -> Option<f64> {
        let of = self.0.iter().filter(|(who, what, _)| *who == which && *what == load);
        let mut values: Vec<f64> = of.map(|(_, _, figure)| value(figure)).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
        Some((low + high) / 2.0)
    }
}

pub fn print(plan: &Plan, results: &Results) {
    for load in Load::ALL {
        let heading = [load.title(plan), "CRABLET".into(), "UPSTREAM".into(), "RATIO".into()];
        let mut rows = vec![heading.to_vec()];
        for line in results.lines(load) {
            rows.push(std::iter::once(line.what.to_owned()).chain(line.cells()).collect());
        }
        println!("\n{}", table::render(&rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_costs_what_it_adds() {
        let rest = |rss_mib, cpu_percent| Rest {
            rss_mib,
            peak_mib: 0.0,
            pss_mib: 0.0,
            threads: 6.0,
            wakeups_per_second: 0.0,
            cpu_percent,
            runtime_cpu_percent: 0.0,
        };
        let load = Load::ALL[3];
        let mut results = Results::default();
        let figure = Figure::new(&rest(10.0, 1.0), &rest(20.0, 51.0), 102.4, 512.0 * 1024.0 * 1024.0);
        results.add(Which::Crablet, load, figure);
        let lines = results.lines(load);
        let cell =
            |what: &str| lines.iter().find(|line| line.what == what).map(|line| line.cells()[0].clone());
        assert_eq!(cell("memory for each session").as_deref(), Some("102.4 KiB"));
        assert_eq!(cell("carried back to the clients").as_deref(), Some("512.0 MiB/s"));
        assert_eq!(cell("CPU time for a GiB").as_deref(), Some("1.0 s"));
    }
}
